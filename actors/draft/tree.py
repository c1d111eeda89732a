"""The candidate tree of one session at the drafter: parallel lists below the last committed token, the *root*.

Pure. Nodes are in topological order (`parents[i] < i`, -1 = child of the root). A node is *run* when its row is in the
engine's scratch space; its logits gave its children at that moment, so run and expanded are one thing. Invariants: the
parent of a run node is run; the parent of a sent node is sent; a node's value is the product of the estimates on its path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.actors.draft.calibration import Feature

ROOT = -1
"""Stands for the root where a node is asked for."""

NOT_RUN = -1
"""Scratch index of a node that the engine has not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeNews:
    """Nodes to send, with their ancestors, in the form of `outrider.v1.CandidateTree`."""

    tokens: list[int]
    """Token id of each node."""

    parents: list[int]
    """Index of the parent in these lists plus one; 0 for a child of the base."""

    estimates: bytes
    """One byte a node: probability times 255, given its parent is reached."""


class DraftTree:
    """Candidates below the root."""

    __slots__ = (
        "children",
        "depths",
        "estimates",
        "features",
        "is_expanded",
        "num_sent",
        "parents",
        "scratch",
        "sent",
        "tokens",
        "top",
        "values",
    )

    def __init__(self) -> None:
        self.clear()

    def __len__(self) -> int:
        return len(self.tokens)

    def clear(self) -> None:
        """Forgets everything: the root is not expanded."""
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.depths: list[int] = []
        self.estimates: list[float] = []
        self.values: list[float] = []
        self.features: list[Feature] = []
        self.scratch: list[int] = []
        self.sent: list[int] = []
        """Number of the last message that each node was part of; 0: none."""
        self.children: list[list[int]] = []
        self.top: list[int] = []
        self.num_sent = 0
        self.is_expanded = False

    def add(self, parent: int, token: int, estimate: float, feature: Feature) -> int:
        """Adds a child of a node or of `ROOT`. Returns its index."""
        node = len(self.tokens)
        if parent < 0:
            self.depths.append(1)
            self.values.append(estimate)
            self.top.append(node)
        else:
            self.depths.append(self.depths[parent] + 1)
            self.values.append(self.values[parent] * estimate)
            self.children[parent].append(node)
        self.tokens.append(token)
        self.parents.append(parent)
        self.estimates.append(estimate)
        self.features.append(feature)
        self.scratch.append(NOT_RUN)
        self.sent.append(0)
        self.children.append([])
        return node

    def children_of(self, node: int) -> list[int]:
        """Children of a node or of `ROOT`."""
        return self.top if node < 0 else self.children[node]

    def child(self, node: int, token: int) -> int | None:
        """The child with this token, if there is one."""
        for child in self.children_of(node):
            if self.tokens[child] == token:
                return child
        return None

    def walk(self, tokens: Sequence[int]) -> list[int]:
        """Nodes that the tokens lead through, from the root, as far as the tree goes."""
        path: list[int] = []
        node = ROOT
        for token in tokens:
            child = self.child(node, token)
            if child is None:
                break
            path.append(child)
            node = child
        return path

    def reroot(self, node: int) -> list[int]:
        """Makes a node the root and drops everything that is not below it.

        Returns:
            The scratch indices of the run nodes that stay, ascending; they are renumbered 0, 1, ... in this order here.
        """
        tokens, parents, estimates = self.tokens, self.parents, self.estimates
        features, scratch, sent = self.features, self.scratch, self.sent
        was_run = scratch[node] != NOT_RUN
        self.clear()
        self.is_expanded = was_run
        renamed = {node: ROOT}
        rows: list[tuple[int, int]] = []
        for old in range(node + 1, len(tokens)):
            parent = renamed.get(parents[old])
            if parent is None:
                continue
            new = self.add(parent, tokens[old], estimates[old], features[old])
            renamed[old] = new
            if sent[old]:
                self.sent[new] = sent[old]
                self.num_sent += 1
            if scratch[old] != NOT_RUN:
                rows.append((scratch[old], new))
        rows.sort()
        for row, (_, new) in enumerate(rows):
            self.scratch[new] = row
        return [old_row for old_row, _ in rows]

    def unsend(self, seen: int | None = None) -> None:
        """Takes nodes as not sent.

        Args:
            seen: Those whose last message is this one or an earlier one; None: all.
        """
        self.sent = [0 if seen is None or number <= seen else number for number in self.sent]
        self.num_sent = len(self.sent) - self.sent.count(0)

    def take_news(
        self, limit: int, least_value: float = 0.0, *, number: int = 1
    ) -> TreeNews | None:
        """The most valuable nodes that were not sent, and marks them sent, with their ancestors.

        Args:
            limit: Greatest number of nodes of this tree that may have been sent afterwards.
            least_value: Nodes that are worth less are kept back.
            number: Of the message, at least 1.

        Returns:
            None if there is nothing to send.
        """
        room = limit - self.num_sent
        if room <= 0 or self.num_sent == len(self.tokens):
            return None
        sent, parents, values = self.sent, self.parents, self.values
        fresh = [
            node for node in range(len(sent)) if not sent[node] and values[node] >= least_value
        ]
        if not fresh:
            return None
        if len(fresh) > room:
            # Stable: among equal values the ancestor, which comes first, is taken first.
            fresh = sorted(fresh, key=lambda node: -values[node])[:room]
        wanted: set[int] = set()
        for node in fresh:
            while node >= 0 and node not in wanted:
                sent[node] = number
                wanted.add(node)
                node = parents[node]
        self.num_sent += len(fresh)
        order = sorted(wanted)
        place = {ROOT: 0}
        for index, node in enumerate(order, start=1):
            place[node] = index
        return TreeNews(
            tokens=[self.tokens[node] for node in order],
            parents=[place[parents[node]] for node in order],
            estimates=bytes([int(self.estimates[node] * 255.0 + 0.5) for node in order]),
        )
