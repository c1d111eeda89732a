"""Drafters that are sent to rest and woken again, between the real workers."""

from __future__ import annotations

import random

import pytest
from tests.actors.pair.pair import Pair, blurred, texts_alone

from outrider.actors.engine.tables.tabular_engine import random_table
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.target.schedule.mode import Mode

VOCAB = 12
TARGET = random_table(VOCAB, 2, seed=9, concentration=0.3)
DRAFT = blurred(TARGET, random_table(VOCAB, 2, seed=109, concentration=0.3), 0.2)
SAMPLED = Sampling(seed=1, max_tokens=240, temperature=0.9, top_p=0.95, repetition_penalty=1.2)


class Switched(Mode):
    """Speculates as it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted = True
        self.caught_up: list[bool] = []
        """Of each round."""

    def enter(self, num_sessions: int) -> bool:
        """As told."""
        super().enter(num_sessions)
        return self.wanted

    def observe(self, speed: float, rounds: float, *, is_caught_up: bool) -> None:
        """Notes."""
        super().observe(speed, rounds, is_caught_up=is_caught_up)
        self.caught_up.append(is_caught_up)


def plain() -> list[int]:
    """The text without a drafter."""
    return texts_alone(TARGET, [SAMPLED])[0]


@pytest.mark.parametrize("seed", range(6))
def test_resting_changes_no_token(seed: int) -> None:
    """However often drafters are sent to rest, whatever is lost meanwhile, the text is that of plain decoding."""
    draws = random.Random(seed)
    mode = Switched()
    pair = Pair(TARGET, DRAFT, mode=mode, is_lost=lambda: draws.random() < 0.1)
    for session in range(3):
        pair.open(session, SAMPLED, Speculation())
    while len(pair.ends) < 3:
        mode.wanted = draws.random() < 0.6
        for _ in range(draws.randrange(1, 12)):
            pair.step(draws.randrange(6))
    assert [pair.texts[session] for session in range(3)] == [plain()] * 3


def test_a_resting_drafter_sleeps_and_is_told_once() -> None:
    """While it rests a drafter gets one verdict, runs no pass, and sends nothing."""
    mode = Switched()
    pair = Pair(TARGET, DRAFT, mode=mode)
    pair.open(0, SAMPLED, Speculation())
    for _ in range(20):
        pair.step()
    mode.wanted = False
    for _ in range(3):
        pair.step()
    before = pair.draft.stats
    for _ in range(30):
        pair.step()
    after = pair.draft.stats
    assert (after.passes, after.messages, after.verdicts) == (
        before.passes,
        before.messages,
        before.verdicts,
    )


@pytest.mark.parametrize("verifier", ["coupled", "block"])
def test_a_woken_drafter_goes_on_from_the_right_place(verifier: str) -> None:
    """After a rest candidates are accepted as before, without a request for missing tokens."""
    mode = Switched()
    pair = Pair(TARGET, TARGET, mode=mode)
    pair.open(0, SAMPLED, Speculation(verifier=verifier))
    for _ in range(10):
        pair.step()
    mode.wanted = False
    for _ in range(30):
        pair.step()
    mode.wanted = True
    asked = pair.draft.stats.resyncs
    pair.step()
    start = len(pair.commits[0])
    pair.run()
    rounds = pair.commits[0][start:]
    assert sum(map(len, rounds)) > 2.5 * len(rounds)
    assert pair.draft.stats.resyncs == asked


def test_a_session_that_opens_while_drafters_rest_joins_them() -> None:
    """Its drafter rests too, and works once all are woken."""
    mode = Switched()
    mode.wanted = False
    pair = Pair(TARGET, TARGET, mode=mode)
    pair.open(0, SAMPLED, Speculation())
    for _ in range(20):
        pair.step()
    assert all(len(tokens) == 1 for tokens in pair.commits[0])
    mode.wanted = True
    pair.run()
    assert pair.stats(0).accepted > 50
    assert pair.texts[0] == plain()


def test_woken_drafters_are_caught_up_once_all_sessions_have_had_candidates() -> None:
    """They run what two texts have grown by one after the other."""
    mode = Switched()
    pair = Pair(TARGET, TARGET, mode=mode)
    mode.wanted = False
    for session in range(2):
        pair.open(session, SAMPLED, Speculation())
    for _ in range(150):
        pair.step()
    mode.wanted = True
    rounds: list[tuple[bool, ...]] = []
    while not (rounds and rounds[-1][0]):
        assert len(rounds) < 60
        mode.caught_up.clear()
        pair.step(2)
        # Those of the target's own model are all accepted.
        drafted = (len(pair.commits[session][-1]) > 1 for session in range(2))
        rounds.append((any(mode.caught_up), *drafted))
    assert rounds[-1] == (True, True, True)
    assert any(one != other for _, one, other in rounds), "one had candidates before the other"
