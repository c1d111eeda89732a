"""From candidates to nodes: which children of a run node are kept, what the target's own roots add, what verdicts teach."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from outrider.actors.draft.calibration import Calibration, Scoring
from outrider.actors.draft.candidates import Candidate
from outrider.actors.draft.frontier import KEPT_NODES
from outrider.actors.draft.seat import Entry, Seat
from outrider.actors.draft.session import DraftSession
from outrider.actors.draft.tree import ROOT
from outrider.actors.speculation.noise import NoiseCache

KEPT_SHARE = 1 / 16
"""Siblings worth this fraction of the least value that is sent are kept for later; the best child of a run node always
is."""


def add_children(
    session: DraftSession,
    seat: Seat,
    families: Sequence[tuple[int, Sequence[Candidate]]],
    calibration: Calibration,
) -> None:
    """Adds the children worth keeping, the most valuable first, as far as there is room.

    Args:
        session: The session.
        seat: Its seat.
        families: Nodes that were run, `ROOT` among them, each with its candidates.
        calibration: Gives the estimates.
    """
    tree = session.tree
    found: list[tuple[float, bool, int, Candidate, float]] = []
    for node, candidates in families:
        value = 1.0 if node == ROOT else tree.values[node]
        estimates = [calibration.estimate(candidate.feature) for candidate in candidates]
        best = max(estimates)
        for candidate, estimate in zip(candidates, estimates, strict=True):
            found.append((value * estimate, estimate == best, node, candidate, estimate))
    # The best child of every node comes before the others: it may be all that the target finds there.
    found.sort(key=lambda item: (not item[1], -item[0]))
    # No more nodes are run than may be sent, so this leaves room for the best child of each.
    enough = (KEPT_NODES - 1) * seat.node_limit
    floor = KEPT_SHARE * session.least_value
    for worth, is_best, node, candidate, estimate in found:
        if is_best or (worth >= floor and len(tree) < enough):
            tree.add(node, candidate.token, estimate, candidate.feature)


def add_roots(session: DraftSession, roots: Sequence[int], calibration: Calibration) -> None:
    """Adds the target's own candidates below the text where the drafter has not had the same idea.

    The target has them already, so they count as sent; what grows below them carries them along.
    """
    tree = session.tree
    for rank, token in enumerate(roots, start=1):
        if tree.child(ROOT, token) is None:
            feature = (int(Scoring.TARGET), rank, 0)
            node = tree.add(ROOT, token, calibration.estimate(feature), feature)
            # As if in the first message, which the target has taken in before any that it answers.
            tree.sent[node] = 1
            tree.num_sent += 1


def learn(
    session: DraftSession, path: Sequence[int], tokens: Sequence[int], calibration: Calibration
) -> None:
    """Tells the calibration which children were drawn.

    Args:
        session: The session, before the tokens are committed.
        path: Nodes that the tokens lead through.
        tokens: The committed tokens.
        calibration: Learns.
    """
    tree = session.tree
    for node, token in zip((ROOT, *path), tokens, strict=False):
        for child in tree.children_of(node):
            calibration.observe(tree.features[child], tree.tokens[child] == token)


def noise_of(expanded: Sequence[tuple[Entry, int]]) -> torch.Tensor | None:
    """The noise at the children's positions, a row for each expanded node; None unless every session has it at hand."""
    wanted: dict[DraftSession, list[int]] = {}
    caches: list[NoiseCache] = []
    for entry, node in expanded:
        session, cache = entry.session, entry.seat.noise
        if cache is None:
            return None
        depths = wanted.get(session)
        if depths is None:
            # The nodes of a session are one after another.
            depths = wanted[session] = []
            caches.append(cache)
        depths.append(0 if node == ROOT else session.tree.depths[node])
    rows = [
        # Counted from the root on, so that the cache keeps what shallower nodes need.
        cache.rows_after(session.length, depths)
        for cache, (session, depths) in zip(caches, wanted.items(), strict=True)
    ]
    return rows[0] if len(rows) == 1 else torch.cat(rows)


def child_position(session: DraftSession, node: int) -> int:
    """Index in the whole text of a child of a node."""
    return session.length if node == ROOT else session.length + session.tree.depths[node]
