"""The frozen trees of one session, without a model."""

from __future__ import annotations

import numpy as np

from outrider.actors.draft.service.draft_messages import message_of
from outrider.actors.draft.state.draft_events import CandidatesSent
from outrider.actors.draft.trees.frozen_rounds import (
    NOT_RUN,
    FrozenRound,
    FrozenRounds,
    most_probable,
)
from outrider.actors.frozen.law_frame import decode, encode
from outrider.actors.frozen.sparse_rows import freeze
from outrider.actors.speculation.trees import base_hash
from outrider.actors.speculation.trees.draft_tree import Replacement
from outrider.actors.speculation.trees.level_shapes import LevelShape

LAW = freeze(np.array([0.1, 0.2, 0.3, 0.4]))
HASH = base_hash.extend_all(base_hash.EMPTY, (1, 2, 3))


def grown(branching: tuple[int, ...] = (2, 2)) -> tuple[FrozenRounds, FrozenRound]:
    """A session with a frozen tree: at each level the tokens 3, 2, ... below every node."""
    rounds = FrozenRounds(Replacement.WITHOUT)
    first = rounds.begin(length=3, hash_=HASH, shape=LevelShape(branching))
    grow(rounds, first)
    return rounds, first


def grow(rounds: FrozenRounds, one: FrozenRound) -> None:
    """Runs and draws level after level."""
    while not one.is_frozen:
        run(rounds, one.frontier)
        children = tuple(range(3, 3 - one.shape.branching[one.num_levels], -1))
        count = len(one.frontier)
        rounds.grow(one, [LAW] * count, [children] * count)


def run(rounds: FrozenRounds, nodes: list[int]) -> None:
    """Gives nodes the next scratch rows."""
    for node in nodes:
        if node >= 0:
            rounds.scratch[node] = rounds.num_run


def test_a_tree_is_sent_once_it_is_frozen_and_once() -> None:
    """Not before its last level, and again only if the target has lost it, the same then."""
    rounds = FrozenRounds(Replacement.WITHOUT)
    one = rounds.begin(length=3, hash_=HASH, shape=LevelShape((2, 1)))
    rounds.grow(one, [LAW], [(3, 2)])
    assert rounds.take_unsent(7) == []
    rounds.grow(one, [LAW] * 2, [(3,), (1,)])
    (news,) = rounds.take_unsent(7)
    assert rounds.take_unsent(7) == []
    assert (news.round, news.base_length, news.base_hash) == (1, 3, HASH)
    assert news.frozen.tree.tokens_N == (3, 2, 3, 1)
    assert news.frozen.tree.parents_N == (-1, -1, 0, 1)
    decode(encode([news.frozen]), [(news.frozen.tree.tokens_N, news.frozen.tree.parents_N)], 4)
    rounds.unsend()
    (again,) = rounds.take_unsent(7)
    assert (again.round, again.frozen.tree) == (news.round, news.frozen.tree)


def test_the_prediction_is_the_best_leaf_and_a_token() -> None:
    """Its base is the text with them, by length and hash."""
    rounds, _ = grown()
    leaf = rounds.best_leaf()
    assert rounds.path(leaf) == [3, 3]
    run(rounds, [leaf])
    ahead = rounds.predict(leaf, 1, LevelShape((1,)))
    assert ahead.length == 6
    assert ahead.hash == base_hash.extend_all(HASH, (3, 3, 1))


def test_a_foreseen_verdict_makes_the_next_tree_the_first() -> None:
    """It keeps its number, its rows and its place on the wire, and is not sent again."""
    rounds, _ = grown()
    leaf = rounds.best_leaf()
    run(rounds, [leaf])
    ahead = rounds.predict(leaf, 1, LevelShape((2, 1)))
    grow(rounds, ahead)
    before = rounds.take_unsent(7)[1]
    assert rounds.num_foreseen((3, 3, 1)) == 3
    followed = rounds.follow((3, 3, 1))
    assert len(followed.path) == 3
    assert followed.keep == sorted(followed.keep)
    assert rounds.rounds == [ahead]
    assert rounds.num_run == len(followed.keep) == 2
    assert sorted(row for row in rounds.scratch if row != NOT_RUN) == [0, 1]
    assert rounds.take_unsent(7) == []
    rounds.unsend()
    (after,) = rounds.take_unsent(7)
    assert (after.round, after.base_hash, after.frozen.tree) == (
        before.round,
        before.base_hash,
        before.frozen.tree,
    )


def test_another_verdict_keeps_rows_and_drops_trees() -> None:
    """The rows of accepted tokens are reused, all but the last, whose logits are needed."""
    rounds, _ = grown((2, 2, 1))
    followed = rounds.follow((2, 3, 0))
    assert len(followed.path) == 2
    assert followed.keep == []
    assert rounds.rounds == []
    rounds, _ = grown()
    assert rounds.follow((3,)).path == []


def test_greedy_children_are_the_most_probable() -> None:
    """Most probable first, of equal ones the lowest id."""
    probs = np.array([0.1, 0.3, 0.3, 0.2])
    assert most_probable(probs, 1) == (1,)
    assert most_probable(probs, 3) == (1, 2, 3)
    assert most_probable(probs, 9) == (1, 2, 3, 0)


def test_a_message_is_little_more_than_its_rows() -> None:
    """A tree of the shape 4,2,2 with rows of 64 tokens takes less than half of 13 rows of 384 bytes."""
    law = freeze(np.random.default_rng(1).dirichlet(np.full(32_000, 0.01)), 0.0, 64)
    assert len(law.ids_K) == 64
    rounds = FrozenRounds(Replacement.WITHOUT)
    one = rounds.begin(length=3000, hash_=HASH, shape=LevelShape((4, 2, 2)))
    while not one.is_frozen:
        children = law.ids_K[: one.shape.branching[one.num_levels]].tolist()
        count = len(one.frontier)
        rounds.grow(one, [law] * count, [children] * count)
    [news] = rounds.take_unsent(7)
    report = CandidatesSent(link=1, own_trees=(news,))
    assert (report.num_nodes, report.num_entries) == (28, 1)
    assert message_of(report).ByteSize() < 0.5 * 13 * 384
