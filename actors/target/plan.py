"""What the next target pass runs: which sessions, with which candidates, or how long to wait instead.

Pure given the sessions' state and the clock. A pass that runs for any session takes along every other session that is
ready, because one more row costs little; only when every session lacks candidates does the target wait, and no longer
than the most impatient session's patience.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from outrider.actors.speculation.frame import FrozenTree
from outrider.actors.speculation.pool import Node, Selection
from outrider.actors.target.cost import CostModel
from outrider.actors.target.held import Ready
from outrider.actors.target.session import Session

LONGEST_CHAIN_WITH_TREE = 8
"""Rows before the root up to which candidates are verified in the same pass. Longer chains are prompts: they ask for
the logits of their last row only."""

INDIFFERENCE = 0.99
"""Of budgets that promise the same tokens a second within this, the largest is taken: the same pace in fewer rounds, and what
rounds cost others (messages, the coordinator) is not in the pace."""


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
    decoding: list[Entry] = []
    prefill_left = limits.prefill_chunk
    for session, num_cached in zip(sessions, cached, strict=True):
        pending = session.length - num_cached
        if pending > LONGEST_CHAIN_WITH_TREE:
            size = min(pending, prefill_left)
            prefill_left -= size
            if size > 0:
                prompts.append(_entry(session, num_cached, size, is_prefill=size < pending))
        else:
            decoding.append(_entry(session, num_cached, pending, is_prefill=False))
    if not limits.speculates:
        return Plan(entries=prompts + decoding, wait_s=None)
    decoding = choose_trees(choose_candidates(decoding, limits, cost), limits, cost)
    patient: list[Entry] = []
    ready: list[Entry] = []
    wait_s: float | None = None
    pass_s = cost.predict(max(len(decoding), 1))
    for entry in decoding:
        left_s = _patience_left(entry, live_drafters, limits, pass_s, now)
        if left_s > 0.0:
            patient.append(entry)
            wait_s = left_s if wait_s is None else min(wait_s, left_s)
        else:
            ready.append(entry)
    entries = prompts + ready
    if entries and not limits.lockstep:
        # One more row costs little, and its token may be the one that the drafter had foreseen.
        entries += patient
    return Plan(entries=entries, wait_s=wait_s)


def _entry(session: Session, num_cached: int, size: int, *, is_prefill: bool) -> Entry:
    chain = session.tokens[num_cached : num_cached + size]
    return Entry(session=session, chain=chain, is_prefill=is_prefill, selection=NOTHING)


def choose_candidates(decoding: Sequence[Entry], limits: Limits, cost: CostModel) -> list[Entry]:
    """Gives each session the candidates that are worth their time.

    Each session offers its best nodes; of all of them together the best are taken as long as one more raises the
    tokens that the pass is expected to commit in a second. So trees are deep when the target is idle and vanish when
    rows are dear; a pass with candidates is never expected to be slower, per token, than one without.
    """
    offers = [_offer(entry, limits.max_batch_nodes) for entry in decoding]
    if not any(offer.nodes for offer in offers):
        return list(decoding)
    num_rows = sum(len(entry.chain) for entry in decoding)
    plain_s = cost.predict(num_rows)
    plain_rate = best_rate = len(decoding) / plain_s
    values = sorted((value for offer in offers for value in offer.values), reverse=True)
    tokens, floor = float(len(decoding)), 2.0
    for count, value in enumerate(values[: limits.max_batch_nodes], start=1):
        tokens += value
        rate = tokens / cost.predict(num_rows + count)
        if rate >= max(INDIFFERENCE * best_rate, plain_rate):
            best_rate, floor = max(rate, best_rate), value
        elif value * plain_s < tokens * cost.marginal_s(num_rows + count) / 2.0:
            # Far past the top: what follows is worth less still.
            break
    chosen: list[Entry] = []
    left = limits.max_batch_nodes
    for entry, offer in zip(decoding, offers, strict=True):
        selection = offer.down_to(floor, left)
        left -= len(selection.nodes)
        chosen.append(
            Entry(
                session=entry.session,
                chain=entry.chain,
                is_prefill=False,
                selection=selection,
            )
        )
    return chosen


def _offer(entry: Entry, max_nodes: int) -> Selection:
    """The best candidates of one session within the request's own limits."""
    session, speculation = entry.session, entry.session.speculation
    depth = min(speculation.max_depth, session.remaining - 1)
    budget = min(speculation.max_nodes, max_nodes)
    if not speculation.enabled or depth < 1 or budget < 1 or session.pool.size == 0:
        return NOTHING
    return session.pool.select(budget, depth)


def choose_trees(decoding: Sequence[Entry], limits: Limits, cost: CostModel) -> list[Entry]:
    """Gives each session whose verifier tests frozen trees the one for its text, if it is worth its time.

    A tree is verified whole or, where there is no room, without its last levels. Nothing here looks at its tokens, nor at
    its size, which may tell of them.
    """
    if all(entry.session.trees is None for entry in decoding):
        return list(decoding)
    num_nodes = sum(len(entry.selection.nodes) for entry in decoding)
    num_rows = sum(len(entry.chain) for entry in decoding) + num_nodes
    tokens = len(decoding) + sum(sum(entry.selection.values) for entry in decoding)
    chosen: list[Entry] = []
    for entry in decoding:
        session, trees = entry.session, entry.session.trees
        ready = None
        if trees is not None and session.speculation.enabled:
            ready = trees.ready(
                session.length,
                session.hash,
                max_nodes=min(session.speculation.max_nodes, limits.max_batch_nodes - num_nodes),
                max_depth=min(session.speculation.max_depth, session.remaining - 1),
            )
        if trees is None or ready is None:
            chosen.append(entry)
            continue
        size, gain = ready.frozen.tree.num_nodes, session.patience.tokens - 1.0
        before, after = cost.predict(num_rows), cost.predict(num_rows + ready.expected_nodes)
        if trees.is_worth(is_gain=limits.lockstep or (tokens + gain) * before >= tokens * after):
            entry = replace(entry, selection=_whole(ready, session), frozen=ready.frozen)
            num_nodes, num_rows, tokens = num_nodes + size, num_rows + size, tokens + gain
        chosen.append(entry)
    return chosen


def _whole(ready: Ready, session: Session) -> Selection:
    """All nodes of a frozen tree, in its order."""
    tree = ready.frozen.tree
    nodes: list[Node] = []
    for token, parent, drafter in zip(tree.tokens_N, tree.parents_N, ready.drafters_N, strict=True):
        depth = session.length if parent < 0 else nodes[parent].depth
        nodes.append(Node(token, depth + 1, session.drafters.index(drafter), 1.0, 1.0))
    return Selection(
        tokens=list(tree.tokens_N),
        parents=list(tree.parents_N),
        nodes=nodes,
        values=[1.0] * len(nodes),
    )


def _patience_left(
    entry: Entry, live_drafters: frozenset[str], limits: Limits, pass_s: float, now: float
) -> float:
    """Seconds that a session may still wait for candidates; 0 if it should not."""
    session = entry.session
    if not session.speculation.enabled or session.remaining <= 1:
        return 0.0
    if entry.frozen is not None:
        return _company_left(session, live_drafters, limits, now)
    if entry.selection.nodes:
        return _ripening_left(entry, live_drafters, limits, pass_s, now)
    if session.has_candidates or session.joined.isdisjoint(live_drafters):
        return 0.0
    patience_s = (
        limits.max_patience_s
        if limits.lockstep
        else min(session.patience.limit_s(pass_s), limits.max_patience_s)
    )
    return max(session.last_verdict + patience_s - now, 0.0)


def _company_left(
    session: Session, live_drafters: frozenset[str], limits: Limits, now: float
) -> float:
    """Seconds that a frozen tree may still wait for those of other drafters: none, unless all wait for each other."""
    drafters = live_drafters & session.joined
    if (
        not limits.lockstep
        or session.trees is None
        or session.trees.is_complete(session.length, session.hash, drafters)
    ):
        return 0.0
    return max(session.last_verdict + limits.max_patience_s - now, 0.0)


def _ripening_left(
    entry: Entry, live_drafters: frozenset[str], limits: Limits, pass_s: float, now: float
) -> float:
    """Seconds that a new tree may still grow before it is verified."""
    session, selection = entry.session, entry.selection
    if limits.lockstep or not session.ripens or session.joined.isdisjoint(live_drafters):
        return 0.0
    if len(selection.nodes) >= session.speculation.max_nodes:
        return 0.0
    parents = set(selection.parents)
    deepest = session.length + min(session.speculation.max_depth, session.remaining - 1)
    leaves = sum(
        value
        for index, (value, node) in enumerate(zip(selection.values, selection.nodes, strict=True))
        if index not in parents and node.depth < deepest
    )
    wait_s = min(session.patience.ripening_s(leaves, pass_s), limits.max_patience_s)
    return max(session.last_part + wait_s - now, 0.0)
