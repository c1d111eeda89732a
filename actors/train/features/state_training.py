"""A training on a target's states, from its options to its result: what trainers of draft nets share.

All of them keep states of rows of text and of what the target itself writes, fit a net to them, measure it on rows that are held out, and write it.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from outrider.actors.exchange.feedback_request import Layer
from outrider.actors.train.features.feature_cache import FeatureCache, shuffled
from outrider.actors.train.features.frozen_target import FrozenTarget, target_of
from outrider.actors.train.features.state_fitting import StateFitting
from outrider.actors.train.features.training_rows import HeldOut, TrainingRows
from outrider.actors.train.loop.data_parallel import is_first
from outrider.actors.train.loop.depth_report import table as depth_table
from outrider.actors.train.trainer_options import TargetRowsOptions
from outrider.actors.train.trainer_spec import TrainResult

READING, WRITING, MEASURING = "target reads", "target writes", "measured"
"""Parts of the time that every training has; the others are its own."""

Reports = dict[str, dict[str, Any]]
"""What was measured: dataclasses, by two names."""

Options = TypeVar("Options", bound=TargetRowsOptions)


class StateTraining(ABC, Generic[Options]):
    """One call of a trainer."""

    def __init__(
        self,
        options: Options,
        target: FrozenTarget,
        *,
        folder: str,
        layers: tuple[Layer, ...],
        shares: Mapping[str, float],
    ) -> None:
        """Makes the folder of the result, so after everything that may be refused.

        Args:
            options: What was asked for.
            target: What is foreseen.
            folder: Name of the folder that gets the net.
            layers: Of the target, whose states are kept; the last is `norm`.
            shares: What each part gets of the time.

        Raises:
            TrainError: Rows are longer than the target reads.
            ResumeError: Another process is at work in the same folder.
        """
        self.options, self.target = options, target
        self.folder: Path = options.out / folder
        """Gets the net."""
        self.rows = TrainingRows(options, target, layers)
        self.fitting = StateFitting(options, shares)

    @abstractmethod
    def run(self) -> Reports:
        """All of it, the writing included. Empty in workers that are not the first."""

    @abstractmethod
    def write(self, reports: Reports) -> None:
        """Writes the folder of the net."""

    def table(self, reports: Reports) -> str:
        """Reports as a table in Markdown."""
        return depth_table(reports)

    def keep(self, reports: Reports) -> None:
        """Writes the net and what was measured of it."""
        self.write(reports)
        content = json.dumps(plain(reports), indent=2)
        (self.options.out / "report.json").write_text(content + "\n", encoding="utf-8")


class TurnTraining(StateTraining[Options]):
    """A training of one stage: texts and the target's writing take turns."""

    @abstractmethod
    def learn(self, caches: Sequence[FeatureCache]) -> None:
        """Fits the net to the rows of text, and to those that the target wrote."""

    @abstractmethod
    def measure(self, held: Mapping[str, HeldOut]) -> Reports:
        """How well the net foresees texts that it has not seen."""

    def run(self) -> Reports:
        """See `StateTraining`; the net is written when it was measured."""
        caches = self.rows.text(), self.rows.own()
        self.fitting.fill(READING, self.rows, caches[0], is_own=False)
        self.fitting.fill(WRITING, self.rows, caches[1], is_own=True)
        self.learn(caches)
        self.fitting.budget.begin(MEASURING)
        if not is_first():
            return {}
        reports = self.measure(self.rows.held_out())
        self.keep(reports)
        self.fitting.budget.save()
        return reports

    def turn(
        self, caches: Sequence[FeatureCache], step: int
    ) -> tuple[FeatureCache, torch.Tensor, torch.Tensor]:
        """The rows of a step: whose they are, tokens [R, L], and states [R, L, K, D] by layer."""
        options, target = self.options, self.target
        cache = caches[step % 2]
        tokens, states = cache.rows(
            shuffled(step // 2, options.rows_per_step, cache.num_rows, options.seed)
        )
        features = states.view(*tokens.shape, -1, target.width).to(target.device)
        return cache, tokens.to(target.device), features


def trained(
    options: Options, training_of: Callable[[Options, FrozenTarget], StateTraining[Options]]
) -> TrainResult:
    """Runs a trainer and tells what came of it.

    Args:
        options: Of the trainer.
        training_of: Makes the training of options and target.
    """
    if options.threads:
        torch.set_num_threads(options.threads)
    training = training_of(options, target_of(options))
    reports = training.run()
    return TrainResult(
        report={"folder": str(training.folder), "acceptance": plain(reports)},
        lines=(*training.table(reports).splitlines(), f"written to {training.folder}"),
    )


def plain(reports: Reports) -> dict[str, dict[str, Any]]:
    """Reports for JSON."""
    return {how: {name: asdict(one) for name, one in by.items()} for how, by in reports.items()}


def names_of(target: FrozenTarget, *, borrows: bool = True) -> dict[str, Any]:
    """Fields of a `NetShape` that say which target a net is for.

    Args:
        target: Which.
        borrows: Whether the net uses its tables of tokens.

    Raises:
        TrainError: Drafters could not borrow them.
    """
    return {
        "target_fingerprint": target.fingerprint,
        "tables_digest": target.tables_digest if borrows else "",
        "tokenizer_fingerprint": target.tokenizer_fingerprint,
        "eos_token_ids": target.eos_token_ids,
        "target": target.name,
    }
