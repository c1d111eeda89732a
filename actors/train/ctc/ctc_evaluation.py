"""How well frames foresee a target, token by token of the collapsed string, on texts that they have not seen: chains, and trees.

Slots that hold a token each count as frames too. After k of them the string has k tokens, always.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.actors.draft.block.block_net import BlockNet
from outrider.actors.draft.ctc.ctc_net import CtcNet
from outrider.actors.draft.ctc.prefix_masses import (
    NO_TOKEN,
    appended,
    empty_string,
    next_masses,
)
from outrider.actors.draft.trees.forest import Float64s, Int64s
from outrider.actors.train.block.block_evaluation import held_blocks
from outrider.actors.train.block.block_objective import at_slots, block_states
from outrider.actors.train.features.output_layer import Logits
from outrider.actors.train.features.training_rows import HeldOut
from outrider.actors.train.loop.depth_report import TREE, DepthReport, DepthSums

CHILDREN = 8
"""Children of a node of a tree that is measured."""

LEAST = 1e-37
"""Stands for nothing where a logarithm is taken, and where masses are divided by."""


class Strings:
    """Strings over the frames of N blocks, one of each at a time."""

    def __init__(self, net: BlockNet, states: torch.Tensor) -> None:
        """
        Args:
            net: Of frames, or of slots that hold a token each.
            states: h [N, U, D].
        """
        self.reach = net.config.reach
        self._frames: torch.Tensor
        self._blanks_NU: Float64s | None = None
        if isinstance(net, CtcNet):
            frames = net.frames(states).exp()
            self._frames = frames[..., :-1]
            self._blanks_NU = frames[..., -1].double().cpu().numpy()
        else:
            self._frames = net.unary(states).softmax(-1)

    def empty(self) -> Float64s:
        """m of the empty string of each block."""
        if self._blanks_NU is not None:
            return empty_string(self._blanks_NU)
        num, count, _ = self._frames.shape
        masses = np.zeros((num, 2, count + 1))
        masses[:, 0, 0] = 1.0
        return masses

    def laws(self, masses: Float64s, lasts_N: Int64s) -> torch.Tensor:
        """q of the next token [N, V]."""
        prefixes_NV = next_masses(masses, lasts_N, self._frames)
        return prefixes_NV / prefixes_NV.sum(1, keepdim=True).clamp(min=LEAST)

    def append(self, masses: Float64s, lasts_N: Int64s, tokens_N: Int64s) -> Float64s:
        """m of the strings with a token more each."""
        if self._blanks_NU is None:
            return np.roll(masses, 1, axis=2)
        tokens = torch.from_numpy(tokens_N).to(self._frames.device)
        tokens_NU = self._frames[torch.arange(len(tokens)), :, tokens].double().cpu().numpy()
        return appended(masses, lasts_N == tokens_N, tokens_NU, self._blanks_NU)


@torch.no_grad()
def string_acceptance(net: BlockNet, held: HeldOut, output: Logits) -> DepthReport:
    """Measures the tokens behind the newest one, each given that those before it were right, and trees of the likeliest nodes.

    Args:
        net: The model: of frames, or of slots that hold a token each.
        held: Rows with the states of the net's layers, and behind them those after the final norm.
        output: The target's output layer.
    """
    config = net.config
    reach = config.reach
    sums, in_trees = DepthSums(reach), 0.0
    for tokens, features, blocks in held_blocks(held, config.block, config.width):
        states = block_states(net, tokens, features[:, :, : len(config.taps)], blocks)
        strings = Strings(net, states.flatten(0, 1))
        written = at_slots(tokens, blocks, reach, 1).flatten(0, 1)
        targets = at_slots(features[:, :, -1], blocks, reach).flatten(0, 1)
        written_NL = written.cpu().numpy()
        masses, lasts = strings.empty(), np.full(len(written), NO_TOKEN)
        for depth in range(reach):
            own = strings.laws(masses, lasts)
            sums.add(
                depth,
                scores=own,
                law=own,
                target=output(targets[:, depth]),
                written=written[:, depth],
            )
            masses = strings.append(masses, lasts, written_NL[:, depth])
            lasts = written_NL[:, depth]
        in_trees += float(depths_in_trees(strings, written_NL).sum())
    return sums.report(in_trees=in_trees)


def depths_in_trees(strings: Strings, written_NL: Int64s) -> Int64s:
    """How many of the written tokens are a path of the tree of the `TREE` likeliest nodes, for each block.

    Args:
        strings: Over the blocks' frames.
        written_NL: Tokens behind the newest one.
    """
    num, rows = len(written_NL), np.arange(len(written_NL))
    empty = strings.empty()
    masses = np.zeros((num, TREE + 1, *empty.shape[1:]))
    masses[:, 0] = empty
    lasts = np.full((num, TREE + 1), NO_TOKEN)
    depths = np.zeros((num, TREE + 1), np.int64)
    scores = np.zeros((num, TREE + 1))
    is_written = np.zeros((num, TREE + 1), np.bool_)
    is_written[:, 0] = True
    # Children of every node; those of nodes that are not there, or at the end, are worth nothing.
    child_scores = np.full((num, TREE + 1, CHILDREN), -np.inf)
    child_tokens = np.zeros((num, TREE + 1, CHILDREN), np.int64)
    for node in range(TREE + 1):
        if node:
            flat = child_scores.reshape(num, -1)
            best = flat.argmax(1)
            above, tokens = best // CHILDREN, child_tokens.reshape(num, -1)[rows, best]
            scores[:, node] = flat[rows, best]
            flat[rows, best] = -np.inf
            masses[:, node] = strings.append(masses[rows, above], lasts[rows, above], tokens)
            lasts[:, node], depths[:, node] = tokens, depths[rows, above] + 1
            wanted = written_NL[rows, depths[rows, above]]
            is_written[:, node] = is_written[rows, above] & (tokens == wanted)
        values, found = strings.laws(masses[:, node], lasts[:, node]).topk(CHILDREN, dim=1)
        worth: NDArray[np.float64] = values.clamp(min=LEAST).log().double().cpu().numpy()
        child_tokens[:, node] = found.cpu().numpy()
        open_N = depths[:, node] < strings.reach
        child_scores[:, node] = np.where(open_N[:, None], worth + scores[:, node, None], -np.inf)
    deepest: Int64s = np.where(is_written, depths, 0).max(axis=1)
    return deepest
