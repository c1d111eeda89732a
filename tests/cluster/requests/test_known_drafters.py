"""The drafters that requests can name, from replicas that are there, away, or do not fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from outrider.actors.speculation.policies import LengthChoice
from outrider.cluster.requests.drafter_links import known_drafters, replicas_of
from outrider.cluster.roster.roster import Absent, Role
from outrider.cluster.validation.limits import KnownDrafter


@dataclass
class Replica:
    """As much of a link as is looked at."""

    name: str
    entry: str
    verifiers: tuple[str, ...] = ()
    draft_lengths: tuple[LengthChoice, ...] = ()
    misfit: str = ""


def known(replicas: list[Replica], *away: Absent) -> list[KnownDrafter]:
    """What requests are checked against."""
    links: list[Any] = list(replicas)
    return list(known_drafters(links, away, lambda link: str(link.misfit)))  # type: ignore[attr-defined]


def absent(name: str, drafter: str, state: str = "starting", reason: str = "") -> Absent:
    """One that should be there."""
    return Absent(
        name=name, role=Role.DRAFTER, model=drafter, state=state, reason=reason, restarts=0
    )


def test_replicas_are_one_drafter() -> None:
    """In the order of the first ones."""
    links: list[Any] = [Replica("a", "x"), Replica("b", "y"), Replica("a-1", "x")]
    assert [[one.name for one in own] for own in replicas_of(links).values()] == [
        ["a", "a-1"],
        ["b"],
    ]
    assert [one.name for one in known(links)] == ["x", "y"]


def test_a_drafter_can_what_one_of_its_replicas_can() -> None:
    """While they are exchanged for others; what is not known yet is none of it."""
    full, confident = LengthChoice.FULL, LengthChoice.CONFIDENCE
    old = Replica("a", "x", ("coupled", "exact_match"), (full,))
    new = Replica("b", "x", ("coupled", "mcsd"), (full, confident))
    (both,) = known([old, new, Replica("c", "x")])
    assert both.verifiers == ("coupled", "exact_match", "mcsd")
    assert both.draft_lengths == (full, confident)
    assert both.mismatch == ""


def test_one_that_does_not_fit_tells_only_if_none_does() -> None:
    """And what it could do else is nothing to this model."""
    wrong = Replica("a", "x", ("mcsd",), misfit="another tokenizer")
    (alone,) = known([wrong])
    assert (alone.mismatch, alone.verifiers) == ("another tokenizer", ("mcsd",))
    (one,) = known([wrong, Replica("b", "x", ("coupled",))])
    assert (one.mismatch, one.verifiers) == ("", ("coupled",))


def test_one_that_is_away_may_be_named_unless_all_were_given_up() -> None:
    """It joins once it is there; beside one that is there it is no news."""
    lost = absent("a", "x", "failed", "no file")
    (given_up,) = known([], lost)
    assert (given_up.name, given_up.mismatch) == ("x", "it was given up: no file")
    for order in ((lost, absent("b", "x")), (absent("b", "x"), lost)):
        (hoped_for,) = known([], *order)
        assert (hoped_for.name, hoped_for.mismatch, hoped_for.verifiers) == ("x", "", ())
    (there,) = known([Replica("c", "x", ("coupled",))], lost)
    assert (there.mismatch, there.verifiers) == ("", ("coupled",))
