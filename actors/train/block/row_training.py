"""Training on rows of text and of what the target itself writes, by turns, one stage: what trainers of blocks share."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import nn

from outrider.actors.exchange.feedback_request import Layer
from outrider.actors.train.block.block_objective import Blocks, random_blocks
from outrider.actors.train.block.row_options import RowTrainingOptions
from outrider.actors.train.features.feature_cache import FeatureCache, shuffled
from outrider.actors.train.features.frozen_target import FrozenTarget
from outrider.actors.train.features.state_fitting import NEAR_ZERO, StateFitting
from outrider.actors.train.features.training_rows import HeldOut, TrainingRows
from outrider.actors.train.loop.data_parallel import is_first
from outrider.actors.train.loop.depth_report import DepthReport
from outrider.actors.train.loop.schedule import schedule_of

READING, WRITING, BLOCKS, MEASURING = "target reads", "target writes", "blocks", "measured"
SHARES: Mapping[str, float] = {READING: 1.5, WRITING: 3.5, BLOCKS: 13.0, MEASURING: 2.0}
"""What each part gets of the time."""

Reports = dict[str, dict[str, DepthReport]]
Options = TypeVar("Options", bound=RowTrainingOptions)


class RowTraining(ABC, Generic[Options]):
    """One call of a trainer. Subclasses say what is trained, on which loss, and what is measured and written."""

    def __init__(
        self,
        options: Options,
        target: FrozenTarget,
        net: nn.Module,
        *,
        folder: str,
        layers: tuple[Layer, ...],
        most_revealed: int,
    ) -> None:
        """
        Args:
            options: What was asked for.
            target: What is foreseen.
            net: What is trained.
            folder: Name of the folder that gets it.
            layers: Of the target, whose states are kept; the last is `norm`.
            most_revealed: Tokens that a block is told, at most.
        """
        self.options, self.target = options, target
        self.net = net.to(target.device)
        self._most_revealed = most_revealed
        self.folder: Path = options.out / folder
        """Gets the net."""
        self._rows = TrainingRows(
            target=target,
            data=options.data,
            folder=options.out / "progress",
            layers=layers,
            row_length=options.row_length,
            prompt_length=options.prompt_length,
            num_text=options.text_rows,
            num_own=options.own_rows,
            resume=options.resume,
        )
        self._fitting = StateFitting(options, SHARES)

    @abstractmethod
    def loss(
        self, tokens_RL: torch.Tensor, features_RLKD: torch.Tensor, blocks: Blocks, first: int
    ) -> torch.Tensor:
        """What a step descends.

        Args:
            tokens_RL: Rows of token ids.
            features_RLKD: The target's states at them, by layer.
            blocks: Blocks in them.
            first: Position of the first token that counts.
        """

    @abstractmethod
    def measure(self, held: Mapping[str, HeldOut]) -> Reports:
        """How well the net foresees texts that it has not seen."""

    @abstractmethod
    def write(self, reports: Reports) -> None:
        """Writes the drafter's folder."""

    @property
    @abstractmethod
    def shape(self) -> dict[str, Any]:
        """What progress on disk must agree with: the net's shape and its loss."""

    def prepare(self, states_BLD: torch.Tensor) -> None:
        """Takes some of the target's last states in, before the first step."""

    def run(self) -> Reports:
        """All of it; the net is written when it was measured."""
        fitting = self._fitting
        caches = [self._rows.text(), self._rows.own()]
        fitting.fill(READING, self._rows, caches[0], is_own=False)
        fitting.fill(WRITING, self._rows, caches[1], is_own=True)
        self._fit(caches)
        fitting.budget.begin(MEASURING)
        if not is_first():
            return {}
        reports = self.measure(self._rows.held_out(NEAR_ZERO))
        self.write(reports)
        content = json.dumps(plain(reports), indent=2)
        (self.options.out / "report.json").write_text(content + "\n", encoding="utf-8")
        fitting.budget.save()
        return reports

    def _fit(self, caches: list[FeatureCache]) -> None:
        options, steps = self.options, self.options.steps
        schedule = schedule_of(options, steps)
        rows = [cache.num_rows for cache in caches]
        size = f"{options.rows_per_step}x{options.blocks_per_row} of {rows}"
        with torch.no_grad():
            _, features = caches[0].rows(np.arange(min(8, rows[0])))
            self.prepare(features[..., -self.target.width :])
        fingerprint = f"{json.dumps(self.shape, sort_keys=True)} {size}"
        loss = partial(self._step, caches)
        self._fitting.fit(BLOCKS, self.net, loss, schedule, caches, fingerprint)

    def _step(self, caches: list[FeatureCache], step: int) -> torch.Tensor:
        """Texts and the target's writing take turns."""
        options, device = self.options, self.target.device
        cache, turn = caches[step % 2], step // 2
        tokens, states = cache.rows(
            shuffled(turn, options.rows_per_step, cache.num_rows, options.seed)
        )
        blocks = random_blocks(
            len(tokens),
            options.blocks_per_row,
            first=cache.key.first,
            length=options.row_length,
            block=options.block,
            most_revealed=self._most_revealed,
            generator=torch.Generator().manual_seed(options.seed * 1_000_003 + step),
            device=device,
        )
        features = states.view(*tokens.shape, -1, self.target.width).to(device)
        return self.loss(tokens.to(device), features, blocks, cache.key.first)


def plain(reports: Reports) -> dict[str, dict[str, Any]]:
    """Reports for JSON."""
    return {how: {name: asdict(one) for name, one in by.items()} for how, by in reports.items()}
