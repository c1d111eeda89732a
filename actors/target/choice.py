"""Which candidates a pass takes: of each session those that are worth their time. Pure given the sessions' state.

Sessions are named by their place in the pass, and those without candidates do not appear in what is returned: with many
sessions most have none most of the time, and a plan is made each time that news comes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from outrider.actors.speculation.best_first import BestFirst, Node, Selection
from outrider.actors.target.cost import CostModel
from outrider.actors.target.held import Ready
from outrider.actors.target.session import Session

INDIFFERENCE = 0.99
"""Of budgets that promise the same tokens a second within this, the largest is taken: the same pace in fewer rounds, and what
rounds cost others (messages, the coordinator) is not in the pace."""


def choose_candidates(
    decoding: Sequence[Session],
    holders: Sequence[int],
    num_rows: int,
    max_nodes: int,
    cost: CostModel,
) -> dict[int, Selection]:
    """The candidates of each session that are worth their time.

    Each session offers its best nodes; of all of them together the best are taken as long as one more raises the
    tokens that the pass is expected to commit in a second. So trees are deep when the target is idle and vanish when
    rows are dear; a pass with candidates is never expected to be slower, per token, than one without.

    Args:
        decoding: The sessions that decode.
        holders: Places of those that have candidates, ascending.
        num_rows: Rows that the pass has without candidates.
        max_nodes: Candidates in the pass, at most.
        cost: What passes cost.

    Returns:
        By place, ascending.
    """
    offers = BestFirst()
    has_any = False
    for place in holders:
        session = decoding[place]
        speculation = session.speculation
        if session.trees is None and speculation.enabled:
            depth = min(speculation.max_depth, session.remaining - 1)
            budget = min(speculation.max_nodes, max_nodes)
            if depth > 0 and budget > 0:
                session.pool.offer(offers, place, budget, depth)
                has_any = True
    if not has_any:
        return {}
    floor = _least_worth_taking(offers, len(decoding), num_rows, max_nodes, cost)
    return {} if floor is None else offers.taken(floor, max_nodes)


def _least_worth_taking(
    offers: BestFirst, num_sessions: int, num_rows: int, max_nodes: int, cost: CostModel
) -> float | None:
    """The value of the last candidate that is worth its row; None if none is. All of that value have been found then."""
    predict = cost.predict
    plain_s = predict(num_rows)
    plain_rate = best_rate = least_rate = num_sessions / plain_s
    tokens, floor, value = float(num_sessions), None, 0.0
    values = offers.values()
    for rows, value in enumerate(islice(values, max_nodes), num_rows + 1):
        tokens += value
        rate = tokens / predict(rows)
        if rate >= least_rate:
            floor = value
            if rate > best_rate:
                best_rate = rate
                least_rate = max(INDIFFERENCE * rate, plain_rate)
        elif value * plain_s < tokens * cost.marginal_s(rows) / 2.0:
            # Far past the top: what follows is worth less still.
            break
    while value == floor:
        value = next(values, -1.0)
    return floor


def choose_trees(
    decoding: Sequence[Session],
    holders: Sequence[int],
    chosen: Mapping[int, Selection],
    num_rows: int,
    max_nodes: int,
    cost: CostModel,
    *,
    lockstep: bool,
) -> dict[int, Ready]:
    """For each session whose verifier tests frozen trees the one for its text, if it is worth its time.

    A tree is verified whole or, where there is no room, without its last levels. Nothing here looks at its tokens, nor at
    its size, which may tell of them.

    Args:
        decoding: The sessions that decode.
        holders: Places of those that have candidates, ascending.
        chosen: The candidates of the others.
        num_rows: Rows that the pass has without candidates.
        max_nodes: Candidates in the pass, at most, those chosen included.
        cost: What passes cost.
        lockstep: True: every tree is worth its time.

    Returns:
        By place, ascending.
    """
    taken: dict[int, Ready] = {}
    if all(decoding[place].trees is None for place in holders):
        return taken
    num_nodes = sum(len(selection.nodes) for selection in chosen.values())
    num_rows += num_nodes
    tokens = len(decoding) + sum(sum(selection.values) for selection in chosen.values())
    for place in holders:
        session = decoding[place]
        trees, speculation = session.trees, session.speculation
        if trees is None or not speculation.enabled:
            continue
        ready = trees.ready(
            session.length,
            session.hash,
            max_nodes=min(speculation.max_nodes, max_nodes - num_nodes),
            max_depth=min(speculation.max_depth, session.remaining - 1),
        )
        if ready is None:
            continue
        gain = session.patience.tokens - 1.0
        is_gain = lockstep or (tokens + gain) * cost.predict(num_rows) >= tokens * cost.predict(
            num_rows + ready.expected_nodes
        )
        if trees.is_worth(is_gain=is_gain):
            taken[place] = ready
            size = len(ready.drafters_N)
            num_nodes, num_rows, tokens = num_nodes + size, num_rows + size, tokens + gain
    return taken


def whole(ready: Ready, session: Session) -> Selection:
    """All nodes of a frozen tree, in its order."""
    tree, length, drafters = ready.frozen.tree, session.length, session.drafters
    nodes: list[Node] = []
    for token, parent, name in zip(tree.tokens_N, tree.parents_N, ready.drafters_N, strict=True):
        depth = length if parent < 0 else nodes[parent].depth
        nodes.append(Node(token, depth + 1, drafters.index(name), 1.0, 1.0))
    return Selection(
        tokens=list(tree.tokens_N),
        parents=list(tree.parents_N),
        nodes=nodes,
        values=[1.0] * len(nodes),
    )
