"""How far away a target is, in tokens, from what its verdicts say that it has seen."""

from __future__ import annotations

from outrider.actors.draft.way import MOST_UNDER_WAY, SAMPLES, Way


def test_nothing_is_passed_without_a_delay() -> None:
    """Each message is seen before the next round: whatever rounds commit, nothing is known to be late."""
    way, length = Way(), 10
    for number in range(1, 20):
        way.left(number, length)
        way.heard(number, length)
        length += 4
        assert way.num_tokens == 0


def test_what_was_committed_before_a_message_came_is_passed() -> None:
    """Two rounds of three tokens while it is on its way: the round that saw it does not count."""
    way = Way()
    for number in range(1, 20):
        way.left(number, 3 * number)
        if number > 2:
            way.heard(number - 2, 3 * number)
        assert way.num_tokens == (6 if number >= 2 + SAMPLES else 0)


def test_the_nearest_of_some_counts() -> None:
    """A single message that came in time says that others may."""
    way = Way()
    for number in range(1, SAMPLES + 1):
        way.left(number, 0)
    way.heard(SAMPLES, 5)
    assert way.num_tokens == 5
    way.left(SAMPLES + 1, 9)
    way.heard(SAMPLES + 1, 9)
    assert way.num_tokens == 0


def test_silence_brings_it_nearer() -> None:
    """If all seems late and nothing leaves, nothing would ever be learned: each verdict lets one level more go."""
    way = Way()
    for number in range(1, SAMPLES + 1):
        way.left(number, 0)
    way.heard(SAMPLES, 7)
    told = []
    for before in range(20, 30):
        told.append(way.num_tokens)
        way.heard(SAMPLES, before)
    assert told == [7, 6, 5, 4, 3, 2, 1, 0, 0, 0]


def test_what_nobody_answers_is_forgotten_in_the_end() -> None:
    """A target that tells nothing costs no memory, and a text that was rewritten begins anew."""
    way = Way()
    for number in range(1, 3 * MOST_UNDER_WAY):
        way.left(number, number)
        way.heard(0, number)
    assert len(way._under_way) == MOST_UNDER_WAY
    assert way.num_tokens == 0
    way.forget()
    assert not way._under_way
