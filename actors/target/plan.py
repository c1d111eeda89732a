"""What the next target pass runs: which sessions, with which candidates, or how long to wait instead.

Pure given the sessions' state and the clock. A pass that runs for any session takes along every other session that is
ready, because one more row costs little; only when every session lacks candidates does the target wait, and no longer
than the most impatient session's patience.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.actors.speculation.pool import Selection
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A pass, or a pause."""

    entries: list[Entry]
    """Empty: nothing to run yet."""

    wait_s: float | None
    """With no entries: seconds to wait for news at most; None: until there is news."""


NOTHING = Selection(tokens=[], parents=[], nodes=[])


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one pass."""

    prefill_chunk: int
    """Prompt tokens in all."""

    max_batch_nodes: int
    """Candidate nodes in all."""

    min_value: float
    """Estimated path probability below which a node costs more time than it is worth."""

    pass_s: float
    """Seconds of a plain pass."""

    max_patience_s: float
    """Seconds that the target waits for candidates at most."""

    lockstep: bool
    """True: wait for candidates as long as allowed, whatever it is worth."""


def plan_pass(
    sessions: Sequence[Session],
    cached: Sequence[int],
    live_drafters: frozenset[str],
    limits: Limits,
    now: float,
) -> Plan:
    """Chooses the next pass.

    Args:
        sessions: Every session that may run, oldest first.
        cached: Number of cached rows of each.
        live_drafters: Drafters whose stream is up.
        limits: Bounds of the pass.
        now: Seconds of the worker's clock.
    """
    prefill_left = limits.prefill_chunk
    nodes_left = limits.max_batch_nodes
    entries: list[Entry] = []
    waiting: list[Entry] = []
    wait_s: float | None = None
    for session, num_cached in zip(sessions, cached, strict=True):
        pending = session.length - num_cached
        if pending > LONGEST_CHAIN_WITH_TREE:
            if prefill_left <= 0:
                continue
            size = min(pending, prefill_left)
            prefill_left -= size
            entries.append(
                Entry(
                    session=session,
                    chain=session.tokens[num_cached : num_cached + size],
                    is_prefill=size < pending,
                    selection=NOTHING,
                )
            )
            continue
        selection = _candidates(session, nodes_left, limits.min_value)
        nodes_left -= len(selection.nodes)
        entry = Entry(
            session=session,
            chain=session.tokens[num_cached:],
            is_prefill=False,
            selection=selection,
        )
        left_s = 0.0 if selection.nodes else _patience_left(session, live_drafters, limits, now)
        if left_s > 0.0:
            waiting.append(entry)
            wait_s = left_s if wait_s is None else min(wait_s, left_s)
        else:
            entries.append(entry)
    if entries and not limits.lockstep:
        entries.extend(waiting)
    return Plan(entries=entries, wait_s=wait_s)


def _candidates(session: Session, nodes_left: int, min_value: float) -> Selection:
    speculation = session.speculation
    depth = min(speculation.max_depth, session.remaining - 1)
    budget = min(speculation.max_nodes, nodes_left)
    if not speculation.enabled or depth < 1 or budget < 1 or session.pool.size == 0:
        return NOTHING
    return session.pool.select(budget, depth, min_value)


def _patience_left(
    session: Session, live_drafters: frozenset[str], limits: Limits, now: float
) -> float:
    """Seconds that the session may still wait for candidates; 0 if it should not."""
    if not session.speculation.enabled or session.remaining <= 1 or session.pool.size > 0:
        return 0.0
    if session.joined.isdisjoint(live_drafters):
        return 0.0
    patience_s = (
        limits.max_patience_s
        if limits.lockstep
        else min(session.patience.limit_s(limits.pass_s), limits.max_patience_s)
    )
    return max(session.last_verdict + patience_s - now, 0.0)
