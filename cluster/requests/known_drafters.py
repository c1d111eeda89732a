"""The drafters that requests can name: those of the configuration, whichever replicas of each there are at the moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from outrider.cluster.links.draft_link import DraftLink
from outrider.cluster.roster.actor_status import ActorState
from outrider.cluster.roster.roster import Absent
from outrider.cluster.validation.limits import KnownDrafter

T = TypeVar("T")


def replicas_of(links: Iterable[DraftLink]) -> dict[str, list[DraftLink]]:
    """The replicas of each drafter."""
    found: dict[str, list[DraftLink]] = {}
    for link in links:
        found.setdefault(link.entry, []).append(link)
    return found


def known_drafters(
    links: Iterable[DraftLink], away: Iterable[Absent], misfit: Callable[[DraftLink], str]
) -> tuple[KnownDrafter, ...]:
    """What requests are checked against.

    Args:
        links: To the replicas of all drafters.
        away: Replicas that should be there and are not: requests may name their drafters, and are joined by them once they are.
        misfit: Why a replica cannot serve the model; empty if it can, or if that is not known yet.
    """
    there = {name: _united(name, replicas, misfit) for name, replicas in replicas_of(links).items()}
    expected: dict[str, KnownDrafter] = {}
    for one in away:
        lost = f"it was given up: {one.reason}" if one.state == ActorState.FAILED else ""
        if one.model not in there and (one.model not in expected or not lost):
            expected[one.model] = KnownDrafter(name=one.model, verifiers=(), mismatch=lost)
    return (*there.values(), *expected.values())


def _united(
    name: str, replicas: list[DraftLink], misfit: Callable[[DraftLink], str]
) -> KnownDrafter:
    """A drafter can what one of its replicas can: they differ while they are exchanged for others."""
    fits = [link for link in replicas if not misfit(link)]
    return KnownDrafter(
        name=name,
        verifiers=_union(link.verifiers for link in fits or replicas),
        draft_lengths=_union(link.draft_lengths for link in fits or replicas),
        mismatch="" if fits else misfit(replicas[0]),
    )


def _union(offers: Iterable[tuple[T, ...]]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(one for offer in offers for one in offer))
