"""Trees of a diffusion drafter: what is proposed, before and after verdicts, in one step and in some."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
import torch
from tests.actors.draft.bench import CHEAP, Bench, Verdict, frame_of, make_attach
from tests.actors.draft.diffusion.small_diffusion import diffusion_drafter, small_config, small_net
from tests.actors.draft.diffusion.test_diffusion_net import trained
from tests.actors.pair.pair import Pair

from outrider.actors.draft.diffusion.diffusion_net import DiffusionNet
from outrider.actors.draft.diffusion.learned_rates import LearnedRates
from outrider.actors.draft.trees.calibration import PRIORS, Scoring
from outrider.actors.engine.tables.tabular_engine import random_table
from outrider.actors.exchange.verdicts import TargetActivity
from outrider.actors.speculation.noise.gumbel import GumbelNoise
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.speculation.trees import base_hash

VOCAB = 6
PROMPT = (1, 2, 3, 4, 5, 0, 3, 2, 2, 1)
SURE = 1.5 / 64
"""Value from which on a node's place in the tree is certain: those below one in 64 places get no children."""


class Follower:
    """A session of a small drafter, and what the target says of it."""

    def __init__(self, net: DiffusionNet, *, temperature: float = 0.8, width: int = VOCAB) -> None:
        self.net = net
        sessions, self.drafter = diffusion_drafter(net, width=width)
        # What is learned from verdicts would change the numbers that are compared.
        self.drafter.sharpness.learn = lambda **_: None  # type: ignore[method-assign]
        self.bench = Bench(sessions, self.drafter, max_ahead=64, bytes_per_token=CHEAP)
        self.attach = make_attach(tokens=PROMPT, temperature=temperature)
        self.text = list(PROMPT)
        self.epoch = 0
        self.bench.worker.post(self.attach)
        self.bench.settle()

    def commit(self, *tokens: int, pass_s: float = 0.0) -> None:
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
        self.bench.worker.post(frame_of([verdict], target=TargetActivity(pass_s=pass_s)))
        self.bench.settle()

    def scores(self, told: list[int]) -> torch.Tensor:
        """What candidates of a block are ranked by, of the tokens behind those that are told."""
        sampling = self.attach.sampling
        logits = trained(self.net, self.text, told)
        if sampling.temperature <= 0.0:
            return logits
        noise = GumbelNoise(VOCAB, torch.device("cpu"))
        first = len(self.text) + len(told)
        return logits / sampling.temperature + noise.rows(sampling.seed, first, len(logits))

    def expected(self, steps: int = 1) -> dict[tuple[int, ...], float]:
        """Value of every path of a block."""
        block = self.net.config.block
        assert steps in (1, block)
        is_warm = self.attach.sampling.temperature > 0.0
        kappa = PRIORS[Scoring.COUPLED if is_warm else Scoring.GREEDY]
        told: list[int] = []
        shares: dict[tuple[int, ...], torch.Tensor] = {}
        for _ in range(steps):
            scores = self.scores(told)
            shares[tuple(told)] = (kappa * scores).softmax(-1).clamp(0.002, 0.995)
            told.append(int(scores[0].argmax()))
        values: dict[tuple[int, ...], float] = {(): 1.0}
        for depth in range(1, block + 1):
            for path in product(range(VOCAB), repeat=depth):
                # The last step that was told no more than the path's own tokens.
                known = max(
                    (one for one in shares if path[: len(one)] == one and len(one) < depth), key=len
                )
                share = shares[known][depth - 1 - len(known), path[-1]]
                values[path] = values[path[:-1]] * float(share)
        del values[()]
        return values

    def check(self, steps: int = 1) -> None:
        """The tree has the best paths of all, with their values."""
        tree = self.bench.tree(self.attach.key)
        found = dict(zip(tree.paths, tree.values, strict=True))
        expected = self.expected(steps)
        sure = {path for path, value in expected.items() if value >= SURE}
        assert len(sure) > 3
        assert sure <= found.keys() <= expected.keys()
        for path, value in found.items():
            assert value == pytest.approx(expected[path], rel=2e-3, abs=1e-5)


STEEP = {"first": (0.9, 0.01, 0.01, 0.01), "among": (0.9, 0.01, 0.01, 0.01)}
"""Measured rates that make steps worth while."""


def net_of(**changes: object) -> DiffusionNet:
    """A net of six tokens."""
    return small_net(small_config(**{"vocab_size": VOCAB, **changes}))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_tree_is_the_best_part_of_all_paths(temperature: float) -> None:
    """After the prompt and after every verdict, whether it was foreseen or not; estimates are those of perturbed scores."""
    follower = Follower(net_of(), temperature=temperature)
    follower.check()
    tree = follower.bench.tree(follower.attach.key)
    foreseen = max(tree.paths, key=lambda path: tree.values[tree.paths.index(path)])
    follower.commit(*foreseen)
    follower.check()
    for tokens in ((5,), (0, 0, 0, 0, 0, 0)):
        follower.commit(*tokens)
        follower.check()


def test_more_steps_where_they_pay() -> None:
    """Tokens behind the first are hopeless unless it is known, and the target is slow: as many steps as tokens, each told the likeliest path."""
    follower = Follower(net_of(**STEEP))
    follower.check()
    follower.commit(4, pass_s=1e-6)
    follower.check()
    follower.commit(4, pass_s=1e6)
    follower.check(steps=4)
    follower.commit(1, pass_s=1e6)
    follower.check(steps=4)


def test_a_verdict_ends_the_steps_of_the_block_before() -> None:
    """It comes between two of them: the next pass begins behind what was written."""
    follower = Follower(net_of(**STEEP))
    follower.commit(4, pass_s=1e6)
    settle = follower.bench.settle
    follower.bench.settle = lambda steps=500: follower.bench.step(2)  # type: ignore[method-assign]
    follower.commit(2, pass_s=1e6)
    follower.bench.settle = settle  # type: ignore[method-assign]
    follower.commit(3, pass_s=1e6)
    follower.check(steps=4)


def test_candidates_are_not_sent_twice_for_a_better_step() -> None:
    """What the target has had of the step before is not said again."""
    follower = Follower(net_of(**STEEP))
    follower.bench.take()
    follower.commit(4, pass_s=1e6)
    said = [path for news in follower.bench.take_news() for path in news.paths]
    # Again only as ancestors of something new.
    for number, path in enumerate(said):
        if path in said[:number]:
            assert any(other[: len(path)] == path and other != path for other in said[number:])


def test_a_replaced_text_is_read_anew() -> None:
    """After a resync that takes tokens back, blocks are those of the text that there is."""
    follower = Follower(net_of())
    follower.commit(4, 4, 4)
    session = follower.bench.sessions.find(follower.attach.key)
    assert session is not None
    follower.bench.sessions.replace(session.row, 6, [1, 0, 5])
    follower.drafter.rewrite(session, 6)
    follower.text[6:] = [1, 0, 5]
    follower.bench.settle()
    follower.check()
    follower.commit(2)
    follower.check()


def test_what_a_step_brings_is_learned() -> None:
    """Candidates that are always right are worth the same, whichever of two it is; a step that is told the likeliest is not."""
    config = small_config(first=(0.5,) * 4, among=(0.5,) * 4)
    sessions, _ = diffusion_drafter(small_net(config))
    sessions.forest.hang(
        0, tokens=[5, 7, 8], parents=[0, 0, 1], estimates=[0.5] * 3, features=[0, 0, -1]
    )

    def after(tokens: Sequence[int]) -> tuple[float, float]:
        """What one step brings, and what another behind its first token adds."""
        rates, greedy = LearnedRates(config), int(Scoring.GREEDY)
        others = rates.of(int(Scoring.COUPLED)).expected_tokens((0,))
        for _ in range(50):
            walk = sessions.forest.walk(np.array([0]), np.array([tokens]))
            rates.learn(sessions.forest, np.array([0]), walk, np.array([greedy]))
        assert rates.of(int(Scoring.COUPLED)).expected_tokens((0,)) == others
        of = rates.of(greedy)
        return of.expected_tokens((0,)), of.expected_tokens((0, 1)) - of.expected_tokens((0,))

    likeliest, other, wrong = after([5]), after([7]), after([6])
    assert likeliest[0] == pytest.approx(other[0])
    assert likeliest[0] > 1.5 > wrong[0]
    assert likeliest[1] > 2.0 * other[1]
    # Of the second token, too: then another step says more than the first.
    assert after([5, 6])[0] < likeliest[0]
    assert after([5, 6])[1] > likeliest[1]


TABLE = random_table(24, 2, seed=9, concentration=0.3)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_text_is_plain_decodings(temperature: float) -> None:
    """The drafter proposes, in as many steps as it likes, and the text is that of the target alone."""
    for seed, rates in enumerate(({}, STEEP)):
        sampling = Sampling(seed=seed, max_tokens=50, temperature=temperature)
        texts = []
        for is_attached in (False, True):
            method = diffusion_drafter(small_net(small_config(**rates)))
            pair = Pair(TABLE, TABLE, prefill_chunk=4, method=method if is_attached else None)
            pair.open(0, sampling, Speculation(), PROMPT, is_attached=is_attached)
            pair.run()
            texts.append(pair.texts[0])
            assert not pair.ended
        assert texts[0] == texts[1]
        assert pair.draft.stats.passes > 5
        assert pair.draft.stats.foreseen > 0
