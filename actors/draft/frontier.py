"""Which nodes of growing trees are run next: the most valuable ones, within every limit of request, model and policy.

A node's value, the product of the estimates on its path, is the probability that the target gets there. Nodes less
valuable than one place among those sent are not run: the drafter is far enough ahead and leaves the processor to others.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from outrider.actors.draft.seat import Entry, Seat
from outrider.actors.draft.session import DraftSession
from outrider.actors.draft.tree import NOT_RUN, ROOT
from outrider.actors.engine.protocol import Engine, Rows

KEPT_NODES = 3
"""Nodes kept for each that may be sent. Fewer lose what the next verdict would make worthwhile, more cost time in each
pass."""

Wish = tuple[float, int, list[tuple[float, int]]]
"""Value of a session's best node, its place among the sessions, and its nodes as (value, node), best first."""


class Frontier:
    """Chooses nodes to run."""

    def __init__(self, engine: Engine, *, expand: int, lockstep: bool) -> None:
        """
        Args:
            engine: The draft model.
            expand: Nodes of one session in one pass, at most.
            lockstep: Trees are as large as what the target verifies.
        """
        self._engine = engine
        self._expand = expand
        self._lockstep = lockstep

    def expandable(self, session: DraftSession, seat: Seat) -> list[tuple[float, int]]:
        """The most valuable nodes that may be run, as (value, node), best first; at most `expand`."""
        tree = session.tree
        limit = seat.node_limit
        if session.credits is not None and not self._lockstep:
            # Further ahead than the target allows, work would be for nobody.
            limit = min(limit, session.credits)
        room = limit - self._engine.scratch(seat.slot)
        if room <= 0 or len(tree) >= KEPT_NODES * seat.node_limit:
            return []
        floor = session.least_value
        if self._lockstep and len(tree) >= session.speculation.max_nodes:
            # Children are worth no more than their parent: below this none would be among those sent.
            floor = max(floor, heapq.nlargest(session.speculation.max_nodes, tree.values)[-1])
        deepest = self.deepest(session, seat)
        scratch, depths, tokens, values = tree.scratch, tree.depths, tree.tokens, tree.values
        stop_tokens = seat.stop_tokens
        found = [
            (values[node], -node)
            for node in range(len(tokens))
            if scratch[node] == NOT_RUN
            and values[node] > floor
            and depths[node] < deepest
            and tokens[node] not in stop_tokens
        ]
        if seat.halting is not None:
            goes_on, parents = seat.halting.goes_on, tree.parents
            found = [
                (value, node)
                for value, node in found
                if goes_on(ROOT if parents[-node] == ROOT else scratch[parents[-node]])
            ]
        return [(value, -node) for value, node in heapq.nlargest(min(self._expand, room), found)]

    def deepest(self, session: DraftSession, seat: Seat) -> int:
        """Greatest depth of a node that the target can still commit and the context holds."""
        end = min(session.final_length, self._engine.spec.max_context)
        return min(seat.depth_limit, end - session.length)

    def within(self, wishes: list[Wish], room: int) -> list[Wish]:
        """What of these may go into one pass."""
        if len(wishes) * self._expand > room:
            return most_valuable(wishes, room)
        return wishes


def entry_of(session: DraftSession, seat: Seat, nodes: list[int]) -> Entry:
    """A session's part of a pass that runs these nodes."""
    tree = session.tree
    # Ascending, so that a parent that is run in the same pass would come first.
    nodes.sort()
    parents = [
        ROOT if tree.parents[node] == ROOT else tree.scratch[tree.parents[node]] for node in nodes
    ]
    rows = Rows(
        slot=seat.slot,
        tokens=[tree.tokens[node] for node in nodes],
        parents=parents,
        mask=session.tree_mask,
    )
    return Entry(session=session, seat=seat, rows=rows, nodes=tuple(nodes))


def most_valuable(wishes: Sequence[Wish], room: int) -> list[Wish]:
    """The `room` most valuable nodes over all sessions, grouped as they came."""
    if room <= 0:
        return []
    every = [(value, -index, -node) for _, index, nodes in wishes for value, node in nodes]
    chosen: dict[int, list[tuple[float, int]]] = {}
    for value, index, node in heapq.nlargest(room, every):
        chosen.setdefault(-index, []).append((value, -node))
    return [(nodes[0][0], index, nodes) for index, nodes in chosen.items()]
