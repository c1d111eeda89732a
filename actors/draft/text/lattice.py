"""Continuations laid side by side as a weighted graph: equal tokens at the same offset are one node. Pure.

Source: Li et al. 2025, arXiv 2503.05330: a directed graph by layers, in which an edge weighs as much as continuations have both its tokens. Other than
in a tree of suffixes, continuations that differed in between count together again from the layer on at which they agree.
"""

from __future__ import annotations

from collections.abc import Sequence

from outrider.actors.draft.text.occurrences import Texts, followers


class Lattice:
    """The graph of what stands behind some places."""

    def __init__(self, texts: Texts, places: Sequence[int]) -> None:
        """
        Args:
            texts: What the places are in.
            places: Where the continuations begin.
        """
        self._texts = texts
        self._layers = [followers(texts, places)]

    def children(self, depth: int, places: Sequence[int]) -> dict[int, tuple[int, list[int]]]:
        """For each token that follows: its edge's weight, and the places behind all continuations that have it in this layer.

        Args:
            depth: The layer.
            places: In it, those behind a node of the layer before.
        """
        while len(self._layers) <= depth:
            before = self._layers[-1]
            behind = [place for places in before.values() for place in places]
            self._layers.append(followers(self._texts, behind))
        layer = self._layers[depth]
        return {
            token: (len(behind), layer[token])
            for token, behind in followers(self._texts, places).items()
        }
