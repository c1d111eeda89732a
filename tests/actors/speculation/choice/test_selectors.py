"""Who drafts where fewer may work than there are: what every selector must do, and that the bandit finds who is best."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from outrider.actors.speculation.choice.selector_registry import SELECTORS
from outrider.actors.speculation.drafter_records import (
    MEMORY_TOKENS,
    STRETCH_TOKENS,
    DrafterRecords,
)
from outrider.actors.speculation.number_options import NumberOption
from outrider.actors.speculation.selector_spec import DrafterOffer, Selector, SelectorSpec
from outrider.actors.speculation.selectors.ucb import bound

NAMES = ("a", "b", "c")


def offers(
    names: Sequence[str] = NAMES, *, at_work: Sequence[str] = (), busy: Sequence[int] = ()
) -> list[DrafterOffer]:
    """Drafters that can be chosen."""
    return [
        DrafterOffer(
            name=name,
            num_sessions=busy[place] if busy else 0,
            is_at_work=name in at_work,
        )
        for place, name in enumerate(names)
    ]


def build(name: str, records: DrafterRecords | None = None, **given: float) -> Selector:
    """A selector, with these options."""
    spec = SELECTORS[name]
    return spec.build(DrafterRecords() if records is None else records, **spec.settled(given))


def first(selector: Selector, offered: Sequence[DrafterOffer]) -> str:
    """The name of who comes first."""
    return selector.ranked(offered)[0].name


@pytest.mark.parametrize("name", SELECTORS)
def test_every_selector_ranks_all_that_are_offered(name: str) -> None:
    """Each once, whatever it has seen; also one that it has never heard of, and one alone."""
    chance = random.Random(3)
    selector = build(name)
    for _ in range(50):
        offered = offers(chance.sample("abcdefg", chance.randint(1, 7)))
        ranked = selector.ranked(offered)
        assert sorted(one.name for one in ranked) == sorted(one.name for one in offered)
        selector.observe({ranked[0].name: chance.randint(0, STRETCH_TOKENS)}, STRETCH_TOKENS)


@pytest.mark.parametrize("name", SELECTORS)
def test_equal_drafters_share_the_texts(name: str) -> None:
    """Of those of whom nothing is known, or the same, the least busy one drafts."""
    assert first(build(name), offers(busy=(3, 1, 2))) == "b"


def test_who_is_at_work_stays_where_nothing_is_learned() -> None:
    """However busy it has become: a change costs something."""
    selector = build("least_busy")
    selector.observe({"a": 0}, STRETCH_TOKENS)
    assert first(selector, offers(at_work=("a",), busy=(9, 0, 0))) == "a"


def test_the_bound_is_that_of_the_source() -> None:
    """Worked out by hand for means .62, .55 and .40 after 4, 3 and 3 pulls."""
    arms = ((0.62, 4), (0.55, 3), (0.40, 3))
    assert [bound(*arm, 10.0, 1.0) for arm in arms] == pytest.approx([1.692983, 1.788974, 1.638974])
    assert [bound(*arm, 10.0, 0.1) for arm in arms] == pytest.approx([0.727298, 0.673897, 0.523897])
    assert bound(0.0, 0.0, 10.0, 0.1) == float("inf")
    # Nothing else is known, so nothing may be better; less than a pull in all counts as one.
    assert bound(0.5, 1.0, 1.0, 1.0) == bound(0.5, 0.1, 0.1, 1.0) == 0.5


def test_each_is_tried_once_before_any_is_twice() -> None:
    """The first pulls of a bandit that knows nothing."""
    selector = build("ucb")
    drafted: list[str] = []
    for proposed in (30, 20, 10):
        name = first(selector, offers(at_work=drafted[-1:]))
        drafted.append(name)
        selector.observe({name: proposed}, STRETCH_TOKENS)
    assert sorted(drafted) == list(NAMES)
    assert first(selector, offers()) == drafted[0]


def shares_of(
    rates: dict[str, float], *, stretches: int, selector: Selector, seed: int = 1
) -> dict[str, float]:
    """How much of a text each drafter drafts, if so much of what it drafts is drawn."""
    chance, counts, at_work = random.Random(seed), dict.fromkeys(rates, 0), ""
    for _ in range(stretches):
        at_work = first(selector, offers(tuple(rates), at_work=(at_work,)))
        counts[at_work] += 1
        drawn = sum(chance.random() < rates[at_work] for _ in range(STRETCH_TOKENS))
        selector.observe({at_work: drawn}, STRETCH_TOKENS)
    return {name: count / stretches for name, count in counts.items()}


def test_the_best_drafter_drafts_nearly_all_of_a_text() -> None:
    """Of three, by the shares of what they propose; the others are still looked at now and then, the far worse one least."""
    shares = shares_of({"a": 0.2, "b": 0.75, "c": 0.5}, stretches=400, selector=build("ucb"))
    assert shares["b"] > 0.85
    assert 0.0 < shares["a"] < shares["c"] < 0.1


def test_one_that_is_far_worse_is_tried_about_once_in_a_hundred_stretches() -> None:
    """What is known of it fades, and that is all that it costs."""
    shares = shares_of({"a": 0.0, "b": 0.8}, stretches=2000, selector=build("ucb"))
    assert 0.003 < shares["a"] < 0.02


def test_without_exploration_means_are_believed() -> None:
    """A first bad stretch is then the last one, as long as it is remembered."""
    selector = build("ucb", exploration=0.0)
    for name, proposed in (("a", 1), ("b", 2), ("c", 3)):
        selector.observe({name: proposed}, STRETCH_TOKENS)
    shares = shares_of({"a": 1.0, "b": 1.0, "c": 0.9}, stretches=20, selector=selector)
    assert shares == {"a": 0.0, "b": 0.0, "c": 1.0}


def test_a_text_begins_with_what_others_have_told() -> None:
    """So nobody is tried who is known; `prior` says how soon the text itself counts for more."""
    records = DrafterRecords()
    records.observe({"a": 30, "b": 3, "c": 3}, STRETCH_TOKENS)
    for _ in range(5):
        records.observe({"a": 30, "b": 3, "c": 3}, STRETCH_TOKENS)
    told, untold = build("ucb", records), build("ucb", records, prior=0.0)
    assert first(told, offers(at_work=("b",))) == "a"
    assert first(untold, offers(at_work=("b",))) == "b"
    # Here it is of no use, whatever it was elsewhere.
    stretches = 0
    while first(told, offers()) == "a":
        told.observe({"a": 0}, STRETCH_TOKENS)
        stretches += 1
    assert 2 <= stretches <= 20


def test_records_fade_whoever_was_at_work() -> None:
    """The share stays, how much it counts does not."""
    records = DrafterRecords()
    records.observe({"a": 24}, STRETCH_TOKENS)
    before = records["a"].committed
    tokens = 0
    while tokens < MEMORY_TOKENS:
        records.observe({"b": 0}, STRETCH_TOKENS)
        tokens += STRETCH_TOKENS
    assert records["a"].share == pytest.approx(0.75)
    assert records["a"].committed == pytest.approx(before / 2.718, rel=0.03)
    assert records["b"].share == 0.0
    assert records["c"].committed == records["c"].share == 0.0


def test_descriptions_that_cannot_be_are_refused() -> None:
    """A name that is none, a default outside its interval, nobody at work."""
    build_one = SELECTORS["least_busy"].build
    with pytest.raises(ValueError, match="selector 'Not One': a name is lower case"):
        SelectorSpec(name="Not One", build=build_one, summary="")
    with pytest.raises(ValueError, match=r"selector 'odd': at_work is 1 at least, got 0"):
        SelectorSpec(name="odd", build=build_one, summary="", at_work=0)
    # Type checkers see it, packages of others may have none.
    half: Any = 1.5
    with pytest.raises(ValueError, match=r"selector 'odd': at_work is a whole number, got 1.5"):
        SelectorSpec(name="odd", build=build_one, summary="", at_work=half)
    assert SelectorSpec(name="one", build=build_one, summary="", at_work=1).at_work == 1
    much = NumberOption(default=2.0, least=0.0, most=1.0, help="")
    with pytest.raises(ValueError, match=r"selector 'odd'.* much of odd must be in \[0, 1\]"):
        SelectorSpec(name="odd", build=build_one, summary="", options={"much": much})


def test_options_are_settled_or_refused_by_name() -> None:
    """With what is possible."""
    spec = SELECTORS["ucb"]
    assert spec.settled({"prior": 0.5}) == {"exploration": 0.1, "prior": 0.5}
    with pytest.raises(ValueError, match=r"ucb has no option 'width'; it has exploration, prior"):
        spec.settled({"width": 1.0})
    with pytest.raises(ValueError, match=r"prior of ucb must be in \[0, 100\], got -1"):
        spec.settled({"prior": -1.0})
