"""Trees from a block: what is proposed, before and after verdicts, with states and without."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.actors.draft.bench import Verdict, frame_of, make_attach
from tests.actors.draft.small_block import (
    BlockBench,
    block_drafter,
    small_config,
    small_net,
    states_of,
)
from tests.actors.pair import Pair, blurred
from tests.actors.test_feedback import Abuse

from outrider.actors.draft.block.block_net import BlockNet
from outrider.actors.draft.state.draft_events import AttachSession
from outrider.actors.draft.state.draft_sessions import DraftSession
from outrider.actors.draft.trees.calibration import PRIORS, Scoring
from outrider.actors.engine.tables.tabular_engine import random_table
from outrider.actors.speculation.noise.gumbel import GumbelNoise
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.speculation.trees import base_hash
from outrider.actors.train.block.block_objective import Blocks, block_states

VOCAB = 6
PROMPT = (1, 2, 3, 4, 5, 0, 3)
SURE = 1.5 / 64
"""Value from which on a node's place in the tree is certain: those below one in 64 places are not run."""

Floats = NDArray[np.float64]


class Follower:
    """A session of a small drafter, and what the target says of it."""

    def __init__(self, net: BlockNet, *, temperature: float = 0.8) -> None:
        self.net = net
        self.bench = BlockBench(net, width=VOCAB)
        # What is learned from verdicts would change the numbers that are compared.
        self.bench.blocks.sharpness.learn = lambda **_: None  # type: ignore[method-assign]
        self.attach: AttachSession = make_attach(tokens=PROMPT, temperature=temperature)
        self.text = list(PROMPT)
        self.states = states_of(net.config, 60)
        self.told = 0
        self.epoch = 0
        self.bench.worker.post(self.attach)
        self.bench.settle()

    def tell(self, until: int) -> None:
        """States of the positions below `until` that were not told."""
        session = self.bench.sessions.find(self.attach.key)
        assert session is not None
        self.bench.blocks.take_features(session, self.told, self.states[self.told : until])
        self.told = until
        self.bench.settle()

    def commit(self, *tokens: int) -> None:
        """A verdict."""
        self.text += tokens
        self.epoch += 1
        verdict = Verdict(
            handle=self.attach.key.handle,
            epoch=self.epoch,
            length=len(self.text),
            hash=base_hash.extend_all(base_hash.EMPTY, self.text),
            tokens=tokens,
            credits=64,
        )
        self.bench.worker.post(frame_of([verdict]))
        self.bench.settle()

    def unary(self, anchor: int, revealed: int) -> torch.Tensor:
        """U of a block of the text that sees the states before its anchor."""
        tokens = torch.tensor([[*self.text, *[0] * 9]])
        states = torch.from_numpy(self.states[None, : tokens.shape[1]])
        blocks = Blocks(torch.tensor([[anchor]]), torch.tensor([[revealed]]))
        return self.net.unary(block_states(self.net, tokens, states, blocks)[0, 0])

    def expected(self, anchor: int, revealed: int = 0) -> dict[tuple[int, ...], float]:
        """Value of every path below the text that a block has logits for."""
        block, length = self.net.config.block, len(self.text)
        sampling = self.attach.sampling
        is_warm = sampling.temperature > 0.0
        unary_BV = self.unary(anchor, revealed)
        noise_PV = GumbelNoise(VOCAB, torch.device("cpu")).rows(sampling.seed, length, block)
        kappa = PRIORS[Scoring.COUPLED if is_warm else Scoring.GREEDY]
        values: dict[tuple[int, ...], float] = {(): 1.0}
        for depth in range(1, anchor + block - length + 2):
            for path in product(range(VOCAB), repeat=depth):
                parent = path[-2] if depth > 1 else self.text[-1]
                scores_V = unary_BV[length + depth - 2 - anchor]
                if self.net.markov_head is not None:
                    scores_V = scores_V + self.net.markov_head(torch.tensor(parent))
                if is_warm:
                    scores_V = scores_V / sampling.temperature + noise_PV[depth - 1]
                share = float((kappa * scores_V).softmax(-1)[path[-1]])
                values[path] = values[path[:-1]] * min(max(share, 0.002), 0.995)
        del values[()]
        return values

    def check(self, anchor: int, revealed: int = 0) -> None:
        """The tree has the best paths of all, with their values."""
        tree = self.bench.tree(self.attach.key)
        found = dict(zip(tree.paths, tree.values, strict=True))
        expected = self.expected(anchor, revealed)
        sure = {path for path, value in expected.items() if value >= SURE}
        assert len(sure) > 3
        assert sure <= found.keys() <= expected.keys()
        for path, value in found.items():
            assert value == pytest.approx(expected[path], rel=2e-3, abs=1e-5)


def net_of(**changes: object) -> BlockNet:
    """A net of six tokens."""
    return small_net(small_config(**{"vocab_size": VOCAB, "width": 8, **changes}))


@pytest.mark.parametrize("rank", [0, 5])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_tree_is_the_best_part_of_all_paths(temperature: float, rank: int) -> None:
    """Best-first growth finds what enumerating every path finds; estimates are those of perturbed scores."""
    follower = Follower(net_of(rank=rank), temperature=temperature)
    assert not follower.bench.tree(follower.attach.key).tokens
    follower.tell(len(PROMPT) - 1)
    follower.check(len(PROMPT) - 1)


def test_a_verdict_goes_on_in_the_block_that_there_is() -> None:
    """Without states: positions are absolute, and the token that was written is the Markov head's. With them: a block of its own."""
    follower = Follower(net_of())
    anchor = len(PROMPT) - 1
    follower.tell(anchor)
    tree = follower.bench.tree(follower.attach.key)
    best = tree.tokens[tree.children(-1)[0]]
    follower.commit(best)
    follower.check(anchor)
    tree = follower.bench.tree(follower.attach.key)
    worst = tree.tokens[tree.children(-1)[-1]]
    assert tree.scratch[tree.children(-1)[-1]] < 0
    follower.commit(worst)
    follower.check(anchor)
    follower.tell(len(follower.text) - 1)
    follower.check(len(follower.text) - 1)


def test_nothing_is_proposed_behind_the_block() -> None:
    """Until the next states; then again."""
    follower = Follower(net_of())
    follower.tell(len(PROMPT) - 1)
    follower.commit(1, 2, 3, 4)
    assert not follower.bench.tree(follower.attach.key).tokens
    follower.tell(len(follower.text) - 2)
    assert not follower.bench.tree(follower.attach.key).tokens
    follower.tell(len(follower.text) - 1)
    follower.check(len(follower.text) - 1)


def test_revealed_tokens_make_a_new_block_of_old_states() -> None:
    """A drafter that was trained for it drafts anew after each verdict, as far as it was trained."""
    follower = Follower(net_of(most_revealed=2))
    anchor = len(PROMPT) - 1
    follower.tell(anchor - 1)
    follower.check(anchor - 1, revealed=1)
    follower.commit(4)
    follower.check(anchor - 1, revealed=2)
    follower.commit(1)
    follower.check(anchor - 1, revealed=2)
    follower.tell(anchor + 1)
    follower.check(anchor + 1, revealed=1)


def test_candidates_are_not_sent_twice_for_a_better_block() -> None:
    """What the target has had from the tree before is not said again until it asks."""
    follower = Follower(net_of())
    follower.tell(len(PROMPT) - 1)
    follower.commit(2)
    before = follower.bench.tree(follower.attach.key)
    sent = {path for path, number in zip(before.paths, before.sent, strict=True) if number}
    follower.bench.take()
    follower.tell(len(PROMPT))
    tree = follower.bench.tree(follower.attach.key)
    kept = sent & set(tree.paths)
    assert kept
    said = {path for news in follower.bench.take_news() for path in news.paths}
    for path in said & kept:
        # Only as an ancestor of something new.
        assert any(other[: len(path)] == path and other != path for other in said)


def test_a_replaced_text_takes_its_states_along() -> None:
    """What was told of tokens that are gone is forgotten, and comes anew."""
    follower = Follower(net_of())
    follower.tell(len(PROMPT) - 1)
    session = follower.bench.sessions.find(follower.attach.key)
    assert session is not None
    follower.bench.sessions.replace(session.row, 5, [4, 4])
    follower.bench.blocks.rewrite(session, 5)
    follower.bench.settle()
    follower.text[5:] = [4, 4]
    assert not follower.bench.tree(follower.attach.key).tokens
    follower.states = states_of(follower.net.config, 60, seed=1)
    follower.states[:5] = states_of(follower.net.config, 60)[:5]
    follower.told = 5
    follower.tell(6)
    follower.check(6)


TABLE = random_table(24, 2, seed=9, concentration=0.3)
DRAFT = blurred(TABLE, random_table(24, 2, seed=109, concentration=0.3), 0.2)


def run(
    net: BlockNet | None, sampling: Sampling, meddle: object = None, prompt: Sequence[int] = PROMPT
) -> tuple[Pair, list[int]]:
    """A text by a real target worker, with a block drafter or with none."""
    given = {} if meddle is None else {"meddle_features": meddle}
    pair = Pair(
        TABLE,
        DRAFT,
        prefill_chunk=4,
        feedback=None if net is None else net.config.request,
        method=None if net is None else block_drafter(net),
        **given,  # type: ignore[arg-type]
    )
    pair.open(0, sampling, Speculation(), prompt, is_attached=net is not None)
    pair.run()
    return pair, pair.texts[0]


def _nothing(frames: list[bytes]) -> list[bytes]:
    return []


class Missing:
    """Loses every other frame and doubles and delays the rest."""

    def __init__(self, seed: int) -> None:
        self._rng, self._late = random.Random(seed), list[bytes]()

    def __call__(self, frames: list[bytes]) -> list[bytes]:
        self._late += [frame for frame in frames if self._rng.random() < 0.6]
        self._rng.shuffle(self._late)
        count = self._rng.randrange(len(self._late) + 1)
        now, self._late = self._late[:count], self._late[count:]
        return now + now


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("most_revealed", [0, 2])
def test_text_is_plain_decodings_whatever_happens_to_states(
    temperature: float, most_revealed: int
) -> None:
    """In order, late, missing, doubled, false or not at all: the drafter proposes, and the text is that of the target alone."""
    net = small_net(small_config(most_revealed=most_revealed))
    networks = ((None, Missing(0)), (Abuse(1), _nothing))
    for seed, of_seed in enumerate(networks):
        sampling = Sampling(seed=seed, max_tokens=50, temperature=temperature)
        _, plain = run(None, sampling)
        for network in of_seed:
            pair, text = run(net, sampling, network)
            assert text == plain
            assert not pair.ended
            assert (pair.draft.stats.passes > 5) == (network is not _nothing)


def test_states_are_those_of_the_layers_that_were_asked_for() -> None:
    """The target is b everywhere after b blocks, and its law after the norm: what the drafter is told says which layer it is."""
    net = small_net()
    sessions, drafter = block_drafter(net)
    told: list[tuple[int, Floats]] = []
    take = drafter.take_features

    def noted(session: DraftSession, start: int, features_TLD: NDArray[np.float32]) -> None:
        told.append((start, features_TLD.astype(np.float64)))
        take(session, start, features_TLD)

    drafter.take_features = noted  # type: ignore[method-assign]
    pair = Pair(TABLE, DRAFT, feedback=net.config.request, method=(sessions, drafter))
    pair.open(0, Sampling(seed=1, max_tokens=20), Speculation(), PROMPT)
    pair.run()
    text = [*PROMPT, *pair.texts[0]]
    assert len(told) > 3
    for start, states_TLD in told:
        assert (states_TLD[:, net.config.taps.index(1)] == 1.0).all()
        for row, law_V in enumerate(states_TLD[:, net.config.taps.index("norm")]):
            expected = TABLE.log_probs_after(text[: start + row + 1])
            np.testing.assert_allclose(law_V, expected, rtol=1e-2, atol=1e-2)


def calibration(*, learns: bool, rounds: int = 120) -> float:
    """How far the values of paths are from how often they are drawn, where the target's law is the net's with an error."""
    follower = Follower(net_of(block=3, window=8))
    if learns:
        del follower.bench.blocks.sharpness.learn
    noise = GumbelNoise(VOCAB, torch.device("cpu"))
    sampling, net = follower.attach.sampling, follower.net
    follower.states = states_of(net.config, len(PROMPT) + 4 * rounds)
    errors = torch.from_numpy(states_of(net.config, len(follower.states), seed=5)[:, 0, :VOCAB])
    seen: list[tuple[float, bool]] = []
    assert net.markov_head is not None
    for number in range(rounds):
        length = len(follower.text)
        follower.tell(length - 1)
        tree = follower.bench.tree(follower.attach.key)
        unary_BV = follower.unary(length - 1, 0)
        drawn: list[int] = []
        for step in range(net.config.block):
            before = drawn[-1] if drawn else follower.text[-1]
            law_V = (
                unary_BV[step] + net.markov_head(torch.tensor(before)) + 0.4 * errors[length + step]
            )
            noise_V = noise.rows(sampling.seed, length + step, 1)[0]
            drawn.append(int((law_V / sampling.temperature + noise_V).argmax()))
        if number >= rounds // 3:
            seen += [
                (value, tuple(drawn[: len(path)]) == path)
                for path, value in zip(tree.paths, tree.values, strict=True)
            ]
        right = next(
            (
                k
                for k, path in enumerate([tuple(drawn[:1]), tuple(drawn[:2])])
                if path not in tree.paths
            ),
            2,
        )
        follower.commit(*drawn[: right + 1])
    values, hits = np.array([v for v, _ in seen]), np.array([h for _, h in seen])
    bins = np.minimum((values * 10).astype(int), 9)
    gaps = [abs(values[bins == b].sum() - hits[bins == b].sum()) for b in range(10)]
    return float(sum(gaps) / hits.sum())


def test_values_of_paths_become_true() -> None:
    """Learned from verdicts, a path's value is how often it is drawn; as first believed it is further off."""
    learned = calibration(learns=True)
    assert learned < 0.25
    assert learned < calibration(learns=False)
