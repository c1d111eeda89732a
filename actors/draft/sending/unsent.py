"""What of the trees goes into the next message: the nodes that are worth their bytes, with their ancestors. Pure.

A committed token may cost `bytes_per_token` bytes on the wire, so a byte has a price in tokens. A node that is kept back goes out after a verdict has raised
its value. A node that is worth its bytes but not its row at the target goes out: it is verified once a verdict has made it worth its row, and is there in time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.actors.draft.trees.forest import Forest, Int64s
from outrider.actors.speculation.trees.ragged import cells_of, starts_of


def node_bytes(vocab_size: int) -> int:
    """Bytes of a node in a frame: token, parent, estimate."""
    return 4 if vocab_size < 1 << 16 else 6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unsent:
    """Nodes of E sessions, in the form of `exchange.candidates.Candidates`. Sessions without any are not among them."""

    rows_E: Int64s
    starts_E: Int64s
    tokens_N: Int64s
    parents_N: Int64s
    estimates_N: NDArray[np.uint8]


_NONE = np.zeros(0, np.int64)

NOTHING = Unsent(
    rows_E=_NONE,
    starts_E=np.zeros(1, np.int64),
    tokens_N=_NONE,
    parents_N=_NONE,
    estimates_N=np.zeros(0, np.uint8),
)
"""Of no session."""


def take_unsent(
    forest: Forest,
    rows_E: Int64s,
    *,
    rooms_E: Int64s,
    floor: float,
    past: int,
    entry_worth: float,
    numbers_E: Int64s,
) -> Unsent:
    """Takes nodes that were not sent, the most valuable first, and marks them and their ancestors sent.

    Args:
        forest: The trees.
        rows_E: Sessions, none twice.
        rooms_E: Nodes of each that may have been sent afterwards, at most.
        floor: Value below which nodes are kept back.
        past: Levels below the text that will be committed before the message arrives: their nodes go along as ancestors only.
        entry_worth: Value that the nodes of a session need together.
        numbers_E: Of the message, for each session, at least 1.
    """
    width = forest.width(rows_E)
    sent_EM = forest.sent_SM[rows_E, :width]
    values_EM = forest.values_SM[rows_E, :width]
    is_sent_EM = sent_EM > 0
    # An array, so that numpy does not round the floor to float32 first.
    fresh_EM = values_EM >= np.array([floor])
    fresh_EM &= forest.depths_SM[rows_E, :width] > past
    fresh_EM[is_sent_EM] = False
    rooms_E = np.maximum(rooms_E - is_sent_EM.sum(axis=1), 0)
    if np.count_nonzero(fresh_EM.sum(axis=1) > rooms_E):
        # Stable: among equal values the ancestor, which comes first, is taken first.
        order_EM = np.argsort(np.where(fresh_EM, -values_EM, np.inf), axis=1, kind="stable")
        ranks_EM = np.empty_like(order_EM)
        np.put_along_axis(ranks_EM, order_EM, np.arange(width)[None, :], axis=1)
        fresh_EM &= ranks_EM < rooms_E[:, None]
    fresh_EM &= (values_EM * fresh_EM).sum(axis=1)[:, None] >= entry_worth
    if not np.count_nonzero(fresh_EM):
        return NOTHING
    parents_EM = forest.parents_SM[rows_E, :width]
    wanted_EM = _with_ancestors(fresh_EM, parents_EM)
    entries_N, nodes_N = cells_of(wanted_EM)
    places_N = forest.places(rows_E[entries_N], nodes_N)
    forest.sent_SM.put(places_N, numbers_E[entries_N])
    orders_EM = wanted_EM.cumsum(axis=1)
    orders_EM -= 1
    orders_EM[:, 0] = -1
    counts_E = np.bincount(entries_N, minlength=len(rows_E))
    some = counts_E.nonzero()[0]
    return Unsent(
        rows_E=rows_E[some],
        starts_E=starts_of(counts_E[some]),
        tokens_N=forest.tokens_SM.take(places_N).astype(np.int64),
        parents_N=orders_EM[entries_N, forest.parents_SM.take(places_N)],
        estimates_N=(forest.estimates_SM.take(places_N) * 255.0 + 0.5).astype(np.uint8),
    )


def _with_ancestors(
    fresh_EM: NDArray[np.bool_], parents_EM: NDArray[np.int32]
) -> NDArray[np.bool_]:
    wanted_EM = fresh_EM.copy()
    wanted_EM[:, 0] = True
    entries_N, nodes_N = cells_of(fresh_EM)
    while len(nodes_N):
        nodes_N = parents_EM[entries_N, nodes_N].astype(np.int64)
        new = (~wanted_EM[entries_N, nodes_N]).nonzero()[0]
        if not len(new):
            break
        entries_N, nodes_N = entries_N[new], nodes_N[new]
        wanted_EM[entries_N, nodes_N] = True
    wanted_EM[:, 0] = False
    return wanted_EM
