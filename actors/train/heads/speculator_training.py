"""The two stages of an MLP speculator's training: on text, then on what the target itself writes.

Source: Wertheimer et al. 2024, arXiv 2404.19124. docs/training.md tells what differs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from outrider.actors.draft.heads.speculator_config import SpeculatorConfig
from outrider.actors.draft.heads.speculator_net import SpeculatorNet
from outrider.actors.draft.on_states.net_folder import save_folder
from outrider.actors.train.features.drafter_card import DrafterCard, command_of, fits
from outrider.actors.train.features.feature_cache import FeatureCache, shuffled
from outrider.actors.train.features.frozen_target import FrozenTarget
from outrider.actors.train.features.state_fitting import settings_of
from outrider.actors.train.features.state_training import (
    MEASURING,
    READING,
    WRITING,
    Reports,
    StateTraining,
    names_of,
)
from outrider.actors.train.features.training_rows import HeldOut
from outrider.actors.train.heads.head_evaluation import acceptance
from outrider.actors.train.heads.head_objective import speculator_loss
from outrider.actors.train.heads.speculator_options import SpeculatorOptions
from outrider.actors.train.loop.data_parallel import is_first
from outrider.actors.train.loop.schedule import Schedule, schedule_of

TEXT, OWN = "on text", "on its own writing"
SHARES: Mapping[str, float] = {READING: 2.0, TEXT: 8.0, WRITING: 4.0, OWN: 5.0, MEASURING: 1.0}
"""What each part gets of the time."""

LABELS = {"tokens": "the tokens of the texts", "law": "the target's distribution at each position"}
TABLES = {
    "target": "the target's embedding and head, which are not stored",
    "own": "own embedding and head",
}
"""What a card says of them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Stage:
    """What a net is fitted on, and for how long."""

    part: str
    filling: str
    """The part that fills the cache."""

    cache: FeatureCache
    schedule: Schedule


class SpeculatorTraining(StateTraining[SpeculatorOptions]):
    """One call of the trainer."""

    def __init__(self, options: SpeculatorOptions, target: FrozenTarget) -> None:
        """Makes a fresh net.

        Args:
            options: What was asked for.
            target: What is foreseen.
        """
        vocab_size, width = target.head_VD.shape
        self.config = SpeculatorConfig(
            vocab_size=vocab_size,
            width=width,
            inner=options.inner,
            num_stages=options.heads,
            tied=options.tied,
            scaled=options.scaled,
            reads_tokens=options.inputs != "medusa",
            feeds="feature" if options.inputs == "eagle" else "state",
            tables=options.tables,
            **names_of(target, borrows=options.tables == "target"),
        )
        super().__init__(options, target, folder="mlp_speculator", layers=("norm",), shares=SHARES)
        torch.manual_seed(options.seed)
        self.net = SpeculatorNet(
            self.config, embedding_VD=target.embedding_VD, head_VD=target.head_VD
        ).to(target.device)

    def run(self) -> Reports:
        """Those stages that are asked for; each one's net is written and measured as soon as it is there. The first is not gone on with if the second one cannot be."""
        fitting = self.fitting
        reports: Reports = {}
        held: dict[str, HeldOut] = {}
        stages = self._stages()
        for stage in stages.values():
            filled = fitting.budget.decided(stage.filling)
            if filled is not None and filled.count == stage.cache.num_rows:
                fitting.check(stage.part, stage.schedule, [stage.cache], self._fingerprint(stage))
        for part, stage in stages.items():
            self._fit(stage)
            fitting.budget.begin(MEASURING)
            if is_first():
                held = held or self.rows.held_out()
                reports[part] = {
                    name: acceptance(self.net, one, self.target.output)
                    for name, one in held.items()
                }
                self.keep(reports)
        fitting.budget.save()
        return reports

    def _stages(self) -> dict[str, _Stage]:
        """Those that are asked for, by their part."""
        options = self.options
        stages: dict[str, _Stage] = {}
        for part, filling, seed, rate, steps in (
            (TEXT, READING, 1, 1.0, options.text_steps),
            (OWN, WRITING, 2, options.own_rate, options.own_steps),
        ):
            if steps:
                schedule = replace(
                    schedule_of(options, steps, longest_warmup=60),
                    matrix_rate=rate * options.matrix_rate,
                    other_rate=rate * options.other_rate,
                    seed=seed + options.seed,
                )
                cache = self.rows.text() if part == TEXT else self.rows.own()
                stages[part] = _Stage(part=part, filling=filling, cache=cache, schedule=schedule)
        return stages

    def _fit(self, stage: _Stage) -> None:
        options, cache, schedule = self.options, stage.cache, stage.schedule
        self.fitting.fill(stage.filling, self.rows, cache, is_own=stage.part == OWN)
        device = self.target.device

        def loss_of_step(step: int) -> torch.Tensor:
            batch = shuffled(step, options.rows_per_step, cache.num_rows, schedule.seed)
            tokens_BL, features_BLD = cache.rows(batch)
            loss: torch.Tensor = speculator_loss(
                self.net,
                tokens_BL.to(device),
                features_BLD.to(device),
                first=cache.key.first,
                labels=options.labels,
                output=self.target.output,
            )
            return loss

        same = self._fingerprint(stage)
        self.fitting.fit(stage.part, self.net, loss_of_step, schedule, [cache], same)

    def _fingerprint(self, stage: _Stage) -> str:
        """What the progress of a stage must agree with, see `StateFitting.fit`: the second goes on from the net of a whole first one."""
        options = self.options
        shape = json.dumps(settings_of(self.config), sort_keys=True)
        before = f" after text_steps={options.text_steps}" if stage.part == OWN else ""
        return f"{stage.cache.num_rows} rows, {shape} labels={options.labels} tokens_per_step={stage.schedule.tokens_per_step}{before}"

    def write(self, reports: Reports) -> None:
        """See `StateTraining`."""
        card = _card(self.config, self.options, self.table(reports))
        save_folder(self.folder, self.net, self.config.as_json(), card)


def _card(config: SpeculatorConfig, options: SpeculatorOptions, measured: str) -> str:
    return DrafterCard(
        title="Speculator",
        target=config.target,
        what=f"""Drafts for one target: heads that read its final hidden state and the tokens drafted so far (Wertheimer et al. 2024, arXiv 2404.19124).
{fits(config.target_fingerprint)}""",
        shape=f"""{config.num_stages} heads, {"tied" if config.tied else "not tied"}, width {config.inner}; inputs: {options.inputs}; {TABLES[config.tables]}.""",
        training=f"""`{command_of("mlp_speculator", options)}`:
at most {options.text_steps} steps of {options.rows_per_step * options.row_length} tokens on text, then at most {options.own_steps} on what the target wrote at temperatures 0.3 to 1, at {options.own_rate:g} of the learning rate. Learnt: {LABELS[options.labels]}.""",
        read=" by depth, each given that the tokens before were right; `tokens a pass` counts the target's own.",
        measured=measured,
    ).render()
