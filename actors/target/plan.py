"""What the next target pass runs: which sessions, with which candidates, or how long to wait instead.

Pure given the sessions' state and the clock. A pass that runs for any session takes along every other session that is
ready, because one more row costs little; only when every session lacks candidates does the target wait, and no longer
than the most impatient session's patience.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.actors.speculation.frame import FrozenTree
from outrider.actors.speculation.pool import Selection
from outrider.actors.target.choice import choose_candidates, choose_trees, whole
from outrider.actors.target.cost import CostModel
from outrider.actors.target.held import Ready
from outrider.actors.target.session import Session

LONGEST_CHAIN_WITH_TREE = 8
"""Rows before the root up to which candidates are verified in the same pass. Longer chains are prompts: they ask for
the logits of their last row only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One session's part of a pass."""

    session: Session
    """The session."""

    chain: list[int]
    """Committed tokens to run, oldest first; at least one."""

    is_prefill: bool
    """True: the chain ends before the last committed token, so nothing is drawn."""

    selection: Selection
    """Candidates below the last committed token."""

    is_in_time: bool = False
    """True if drafters' candidates were there when the pass was planned, worth their rows or not."""

    frozen: FrozenTree | None = None
    """The candidates with their laws, if the session's verifier tests frozen trees; `selection` holds the same nodes."""

    @property
    def is_drafted(self) -> bool:
        """True if a drafter proposed any of the candidates."""
        # The target's own roots come last.
        return bool(self.selection.nodes) and self.selection.nodes[0].drafter >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A pass, or a pause."""

    entries: list[Entry]
    """Empty: nothing to run yet."""

    wait_s: float | None
    """With no entries: seconds to wait for news at most; None: until there is news."""


NOTHING = Selection(tokens=[], parents=[], nodes=[], values=[])


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one pass."""

    prefill_chunk: int
    """Prompt tokens in all."""

    max_batch_nodes: int
    """Candidate nodes in all."""

    max_patience_s: float
    """Seconds that the target waits for candidates at most."""

    lockstep: bool
    """True: wait for candidates as long as allowed, whatever it is worth."""

    speculates: bool = True
    """False: no candidates in this pass, and no waiting for any."""


def plan_pass(
    sessions: Sequence[Session],
    cached: Sequence[int],
    live_drafters: frozenset[str],
    limits: Limits,
    cost: CostModel,
    now: float,
) -> Plan:
    """Chooses the next pass.

    Args:
        sessions: Every session that may run, oldest first.
        cached: Number of cached rows of each.
        live_drafters: Drafters whose stream is up.
        limits: Bounds of the pass.
        cost: What passes cost.
        now: Seconds of the worker's clock.
    """
    prompts: list[Entry] = []
    decoding: list[Session] = []
    starts: list[int] = []
    num_rows = 0
    prefill_left = limits.prefill_chunk
    for session, num_cached in zip(sessions, cached, strict=True):
        pending = session.length - num_cached
        if pending > LONGEST_CHAIN_WITH_TREE:
            size = min(pending, prefill_left)
            prefill_left -= size
            if size > 0:
                prompts.append(_prompt(session, num_cached, size, is_prefill=size < pending))
        else:
            decoding.append(session)
            starts.append(num_cached)
            num_rows += pending
    if not limits.speculates:
        plain = [_entry(*one, None, None) for one in zip(decoding, starts, strict=True)]
        return Plan(entries=prompts + plain, wait_s=None)
    max_nodes = limits.max_batch_nodes
    holders = [place for place, session in enumerate(decoding) if session.has_candidates]
    chosen = choose_candidates(decoding, holders, num_rows, max_nodes, cost)
    trees = choose_trees(
        decoding, holders, chosen, num_rows, max_nodes, cost, lockstep=limits.lockstep
    )
    holding = set(holders)
    ready: list[int] = []
    patient: list[int] = []
    wait_s: float | None = None
    pass_s = cost.predict(max(len(decoding), 1))
    for place, session in enumerate(decoding):
        if place not in holding:
            left_s = _patience_left(session, live_drafters, limits, pass_s, now)
        elif place in trees:
            left_s = _company_left(session, live_drafters, limits, now)
        elif place in chosen:
            left_s = _ripening_left(session, chosen[place], live_drafters, limits, pass_s, now)
        else:
            left_s = 0.0
        if left_s > 0.0:
            patient.append(place)
            if wait_s is None or left_s < wait_s:
                wait_s = left_s
        else:
            ready.append(place)
    if (prompts or ready) and not limits.lockstep:
        # One more row costs little, and its token may be the one that the drafter had foreseen.
        ready += patient
    entries = [
        _entry(
            decoding[place],
            starts[place],
            chosen.get(place),
            trees.get(place),
            is_in_time=place in holding,
        )
        for place in ready
    ]
    return Plan(entries=prompts + entries, wait_s=wait_s)


def _prompt(session: Session, num_cached: int, size: int, *, is_prefill: bool) -> Entry:
    chain = session.tokens[num_cached : num_cached + size]
    return Entry(session=session, chain=chain, is_prefill=is_prefill, selection=NOTHING)


def _entry(
    session: Session,
    num_cached: int,
    chosen: Selection | None,
    tree: Ready | None,
    *,
    is_in_time: bool = False,
) -> Entry:
    """A session's part of the pass from its candidates or its tree, if it has any."""
    return Entry(
        session=session,
        chain=session.tokens[num_cached:],
        is_prefill=False,
        selection=whole(tree, session) if tree is not None else chosen or NOTHING,
        is_in_time=is_in_time,
        frozen=tree.frozen if tree is not None else None,
    )


def _patience_left(
    session: Session, live_drafters: frozenset[str], limits: Limits, pass_s: float, now: float
) -> float:
    """Seconds that a session that has no candidates may still wait for some; 0 if it should not."""
    if (
        session.joined.isdisjoint(live_drafters)
        or not session.speculation.enabled
        or session.remaining <= 1
    ):
        return 0.0
    if session.waits_until is not None:
        return max(session.waits_until - now, 0.0)
    patience_s = limits.max_patience_s
    if not limits.lockstep:
        patience_s = min(session.patience.limit_s(pass_s), patience_s)
    return max(session.last_verdict + patience_s - now, 0.0)


def _company_left(
    session: Session, live_drafters: frozenset[str], limits: Limits, now: float
) -> float:
    """Seconds that a frozen tree may still wait for those of other drafters: none, unless all wait for each other."""
    if not limits.lockstep or session.trees is None:
        return 0.0
    drafters = live_drafters & session.joined
    if session.trees.is_complete(session.length, session.hash, drafters):
        return 0.0
    return max(session.last_verdict + limits.max_patience_s - now, 0.0)


def _ripening_left(
    session: Session,
    selection: Selection,
    live_drafters: frozenset[str],
    limits: Limits,
    pass_s: float,
    now: float,
) -> float:
    """Seconds that a new tree may still grow before it is verified."""
    if limits.lockstep or not session.ripens or session.joined.isdisjoint(live_drafters):
        return 0.0
    if session.is_answered(live_drafters):
        # Each drafter has let its tree grow before it sent it: what follows comes later.
        return 0.0
    if len(selection.nodes) >= session.speculation.max_nodes:
        return 0.0
    parents = set(selection.parents)
    deepest = session.length + min(session.speculation.max_depth, session.remaining - 1)
    leaves = 0.0
    for index, node in enumerate(selection.nodes):
        if index not in parents and node.depth < deepest:
            leaves += selection.values[index]
    wait_s = min(session.patience.ripening_s(leaves, pass_s), limits.max_patience_s)
    return max(session.last_part + wait_s - now, 0.0)
