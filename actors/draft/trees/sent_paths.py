"""What the target has had of trees that were dropped for better ones: so nothing is sent twice."""

from __future__ import annotations

from outrider.actors.draft.trees.forest import Forest


class SentPaths:
    """By session, since its last verdict: paths, and the number of the message that each was last part of."""

    def __init__(self, forest: Forest) -> None:
        """Nothing was sent."""
        self._forest = forest
        self._sent: dict[int, dict[tuple[int, ...], int]] = {}

    def __bool__(self) -> bool:
        return bool(self._sent)

    def forget(self, row: int) -> None:
        """Forgets a session, whose text has changed."""
        self._sent.pop(row, None)

    def remember(self, row: int) -> None:
        """Notes what was sent of a tree that is about to be dropped."""
        sent = self._sent.setdefault(row, {})
        for node, path in self._paths(row):
            if number := int(self._forest.sent_SM[row, node]):
                sent[path] = number

    def recall(self, row: int) -> None:
        """Marks candidates of the tree that took its place as sent, as far as they were."""
        sent, forest = self._sent.get(row), self._forest
        if not sent:
            return
        for node, path in self._paths(row):
            if not forest.sent_SM[row, node]:
                forest.sent_SM[row, node] = sent.get(path, 0)

    def _paths(self, row: int) -> list[tuple[int, tuple[int, ...]]]:
        """Nodes of a tree with the tokens on their way, parents before children."""
        nodes = slice(1, 1 + int(self._forest.num_nodes_S[row]))
        parents = self._forest.parents_SM[row, nodes].tolist()
        tokens = self._forest.tokens_SM[row, nodes].tolist()
        paths: list[tuple[int, ...]] = [()]
        for parent, token in zip(parents, tokens, strict=True):
            paths.append((*paths[parent], token))
        return list(enumerate(paths))[1:]
