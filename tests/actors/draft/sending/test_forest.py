"""The trees of all sessions at once, against plain ones of each."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.actors.draft.bench import view
from tests.actors.draft.trees.plain_tree import Node, Path, PlainTree, paths_of

from outrider.actors.draft.sending.unsent import take_unsent
from outrider.actors.draft.state.draft_sessions import DraftSessions
from outrider.actors.draft.trees.forest import NO_TOKEN, ROOT

NUM = 3
ROWS = np.arange(NUM)
TOKENS = st.integers(0, 4)


class Both:
    """A forest, and the plain trees that it should hold."""

    def __init__(self) -> None:
        self.sessions = DraftSessions(NUM, 400)
        self.forest = self.sessions.forest
        self.plain = [PlainTree() for _ in range(NUM)]
        self.number = 0

    def paths(self, row: int) -> list[Path]:
        return view(self.sessions, row).paths

    def column(self, row: int, path: Path) -> int:
        return 1 + self.paths(row).index(path) if path else ROOT

    def add(self, draws: st.DataObject) -> None:
        """Adds some children below one node of each session."""
        rows: list[int] = []
        parents: list[int] = []
        tokens: list[int] = []
        estimates: list[float] = []
        for row in range(NUM):
            parent = draws.draw(st.sampled_from([(), *self.paths(row)]))
            known = {path[-1] for path in self.paths(row) if path[:-1] == parent}
            column = self.column(row, parent)
            for token in sorted(draws.draw(st.sets(TOKENS, max_size=3)) - known):
                # No two nodes of a tree have the same value, so that the order is settled.
                estimate = float(
                    np.float32(
                        0.3
                        + 0.65
                        * np.random.default_rng(
                            len(estimates) + 97 * len(self.paths(row)) + token
                        ).random()
                    )
                )
                rows.append(row)
                parents.append(column)
                tokens.append(token)
                estimates.append(estimate)
                self.plain[row].nodes[*parent, token] = Node(estimate)
        self.forest.add(
            rows_K=np.array(rows, np.int64),
            parents_K=np.array(parents, np.int64),
            tokens_K=np.array(tokens, np.int64),
            estimates_K=np.array(estimates, np.float32),
        )

    def run(self, draws: st.DataObject) -> None:
        """Runs some nodes whose parents are run."""
        rows: list[int] = []
        columns: list[int] = []
        for row in range(NUM):
            nodes = self.plain[row].nodes
            able = [
                path
                for path, node in nodes.items()
                if node.scratch < 0 and (len(path) == 1 or nodes[path[:-1]].scratch >= 0)
            ]
            for path in draws.draw(st.permutations(able))[:3]:
                self.plain[row].run(path)
                rows.append(row)
                columns.append(self.column(row, path))
        self.forest.run(np.array(rows, np.int64), np.array(columns, np.int64))

    def follow(self, draws: st.DataObject) -> None:
        """Commits tokens: the trees that have them go on, the others are dropped."""
        lists = st.lists(TOKENS, min_size=1, max_size=3)
        texts: list[list[int]] = [draws.draw(lists) for _ in range(NUM)]
        for row in range(NUM):
            paths = [list(path) for path in self.paths(row)]
            if bool(paths) and draws.draw(st.booleans()):
                texts[row] = draws.draw(st.sampled_from(paths))
        tokens_ET = np.full((NUM, max(map(len, texts))), NO_TOKEN, np.int64)
        for row, text in enumerate(texts):
            tokens_ET[row, : len(text)] = text
        walk = self.forest.walk(ROWS, tokens_ET)
        assert walk.reached_E.tolist() == [
            tree.walk(text) for tree, text in zip(self.plain, texts, strict=True)
        ]
        self._check_children(texts, walk)
        stays = np.array([walk.reached_E[row] == len(text) for row, text in enumerate(texts)])
        ends = np.array([walk.path_ET[row, len(text) - 1] for row, text in enumerate(texts)])
        kept = self.forest.reroot(ROWS[stays], ends[stays])
        self.forest.clear(ROWS[~stays])
        assert [[row for row in own if row >= 0] for own in kept.tolist()] == [
            tree.reroot(tuple(text))
            for tree, text, stay in zip(self.plain, texts, stays, strict=True)
            if stay
        ]
        for row in ROWS[~stays]:
            self.plain[row] = PlainTree()

    def _check_children(self, texts: list[list[int]], walk: object) -> None:
        """What could have come next was seen, and what came."""
        expected = set()
        for row, text in enumerate(texts):
            for step in range(len(text)):
                if step <= self.plain[row].walk(text):
                    for path in self.plain[row].nodes:
                        if path[:-1] == tuple(text[:step]):
                            expected.add(
                                (row, step, self.column(row, path), path[-1] == text[step])
                            )
        found = zip(walk.entries_K, walk.steps_K, walk.nodes_K, walk.hits_K, strict=True)  # type: ignore[attr-defined]
        assert {tuple(map(int, one)) for one in found} == {tuple(map(int, one)) for one in expected}

    def take(self, draws: st.DataObject) -> None:
        """Sends."""
        self.number += 1
        rooms = draws.draw(st.lists(st.integers(0, 12), min_size=NUM, max_size=NUM))
        floor = draws.draw(st.sampled_from([0.0, 0.2, 0.5]))
        past = draws.draw(st.integers(0, 2))
        unsent = take_unsent(
            self.forest,
            ROWS,
            rooms_E=np.array(rooms),
            floor=floor,
            past=past,
            entry_worth=0.0,
            numbers_E=np.full(NUM, self.number),
        )
        expected = {
            row: paths
            for row, tree in enumerate(self.plain)
            if (paths := tree.take(rooms[row], floor, self.number, past))
        }
        found: dict[int, set[Path]] = {}
        for entry, row in enumerate(unsent.rows_E.tolist()):
            part = slice(int(unsent.starts_E[entry]), int(unsent.starts_E[entry + 1]))
            tokens, parents = unsent.tokens_N[part].tolist(), unsent.parents_N[part].tolist()
            found[row] = set(paths_of(tokens, parents))
        assert found == expected

    def unsend(self, draws: st.DataObject) -> None:
        """Takes messages as lost."""
        seen = draws.draw(st.lists(st.integers(0, self.number), min_size=NUM, max_size=NUM))
        self.forest.unsend(ROWS, np.array(seen))
        for tree, number in zip(self.plain, seen, strict=True):
            tree.unsend(number)

    def check(self) -> None:
        """Both hold the same."""
        for row, tree in enumerate(self.plain):
            found = view(self.sessions, row)
            by_path = dict(enumerate(found.paths))
            assert set(by_path.values()) == set(tree.nodes)
            assert self.forest.num_run_S[row] == found.num_run
            for index, path in by_path.items():
                node = tree.nodes[path]
                assert found.depths[index] == len(path)
                assert (found.scratch[index], found.sent[index]) == (node.scratch, node.sent)
                assert abs(found.values[index] - tree.value(path)) <= 1e-5 * tree.value(path)


@given(st.data())
def test_trees_are_those_of_plain_python(draws: st.DataObject) -> None:
    """Whatever is done in whatever order, all sessions at once, each tree is what one alone would be."""
    both = Both()
    for _ in range(draws.draw(st.integers(3, 14))):
        step = draws.draw(
            st.sampled_from([both.add, both.add, both.run, both.follow, both.take, both.unsend])
        )
        step(draws)
        both.check()


def test_a_freed_row_is_empty() -> None:
    """Nothing of a session is left in its row."""
    forest = DraftSessions(2, 20).forest
    row = np.array([1])
    forest.add(
        rows_K=row,
        parents_K=np.array([ROOT]),
        tokens_K=np.array([5]),
        estimates_K=np.array([0.5], np.float32),
    )
    forest.clear(row)
    walk = forest.walk(row, np.array([[5]]))
    assert (walk.reached_E.tolist(), len(walk.nodes_K)) == ([0], 0)
    assert forest.num_sent(row).tolist() == [0]


def test_a_tree_hung_at_once_is_that_of_its_nodes_one_by_one() -> None:
    """Below the root and below nodes that are there, in one session of several."""
    nodes = [
        (7, ROOT, 0.5, 3),
        (8, 1, 0.25, 4),
        (7, 1, 0.125, 3),
        (5, 2, 0.5, 4),
        (9, ROOT, 0.1, 1),
    ]
    sessions = [DraftSessions(NUM, 8) for _ in range(2)]
    by_one, at_once = (one.forest for one in sessions)
    for forest in (by_one, at_once):
        for token, parent, estimate, feature in nodes[:2] if forest is at_once else nodes:
            forest.add(
                rows_K=np.array([1]),
                parents_K=np.array([parent]),
                tokens_K=np.array([token]),
                estimates_K=np.array([estimate], np.float32),
                features_K=feature,
            )
    tokens, parents, estimates, features = zip(*nodes[2:], strict=True)
    at_once.hang(1, tokens=tokens, parents=parents, estimates=estimates, features=features)
    assert view(sessions[0], 1) == view(sessions[1], 1)
    assert (by_one.features_SM == at_once.features_SM).all()
    assert at_once.num_nodes_S.tolist() == [0, len(nodes), 0]
