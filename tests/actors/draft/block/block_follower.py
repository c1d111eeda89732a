"""A session of a block drafter, followed from outside: what it should propose, by enumeration."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch
from tests.actors.draft.bench import Verdict, frame_of, make_attach
from tests.actors.draft.block.small_block import BlockBench, states_of

from outrider.actors.draft.block.block_net import BlockNet
from outrider.actors.draft.state.draft_events import AttachSession
from outrider.actors.draft.trees.calibration import PRIORS, Scoring
from outrider.actors.speculation.noise.gumbel import GumbelNoise
from outrider.actors.speculation.trees import base_hash
from outrider.actors.train.block.block_objective import Blocks, block_states

VOCAB = 6
PROMPT = (1, 2, 3, 4, 5, 0, 3)
SURE = 1.5 / 64
"""Value from which on a node's place in the tree is certain: those below one in 64 places are not run."""


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

    def slots(self, anchor: int, revealed: int) -> torch.Tensor:
        """h of a block of the text that sees the states before its anchor."""
        tokens = torch.tensor([[*self.text, *[0] * 9]])
        states = torch.from_numpy(self.states[None, : tokens.shape[1]])
        blocks = Blocks(torch.tensor([[anchor]]), torch.tensor([[revealed]]))
        return block_states(self.net, tokens, states, blocks)[0, 0]

    def laws(self, anchor: int, revealed: int) -> Callable[[tuple[int, ...]], torch.Tensor]:
        """Logits of the token behind each string that begins with the newest token that the block was begun with."""
        unary_BV, net = self.net.unary(self.slots(anchor, revealed)), self.net

        def after(string: tuple[int, ...]) -> torch.Tensor:
            row_V = unary_BV[len(string) - 1]
            if net.markov_head is None:
                return row_V
            biased_V: torch.Tensor = row_V + net.markov_head(torch.tensor(string[-1]))
            return biased_V

        return after

    def expected(self, anchor: int, revealed: int = 0) -> dict[tuple[int, ...], float]:
        """Value of every path below the text that a block has logits for."""
        reach, length = self.net.config.reach, len(self.text)
        sampling = self.attach.sampling
        is_warm = sampling.temperature > 0.0
        after = self.laws(anchor, revealed)
        noise_PV = GumbelNoise(VOCAB, torch.device("cpu")).rows(sampling.seed, length, reach)
        kappa = PRIORS[Scoring.COUPLED if is_warm else Scoring.GREEDY]
        values: dict[tuple[int, ...], float] = {(): 1.0}
        for depth in range(1, anchor + reach - length + 2):
            for path in product(range(VOCAB), repeat=depth):
                scores_V = after((*self.text[anchor:], *path[:-1]))
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
