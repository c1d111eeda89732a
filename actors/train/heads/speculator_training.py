"""The two stages of an MLP speculator's training: on text, then on what the target itself writes.

Source: Wertheimer et al. 2024, arXiv 2404.19124. docs/training.md tells what differs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial

import torch
from rich.console import Console

from outrider.actors.draft.heads.speculator_config import SpeculatorConfig
from outrider.actors.draft.heads.speculator_file import save_speculator
from outrider.actors.draft.heads.speculator_net import SpeculatorNet
from outrider.actors.draft.on_states.target_tables import digest_of
from outrider.actors.train.features.feature_cache import FeatureCache, shuffled
from outrider.actors.train.features.frozen_target import FrozenTarget
from outrider.actors.train.features.training_rows import HeldOut, TrainingRows
from outrider.actors.train.heads.head_evaluation import DepthReport, acceptance, table
from outrider.actors.train.heads.head_objective import speculator_loss
from outrider.actors.train.heads.speculator_card import card
from outrider.actors.train.heads.speculator_options import SpeculatorOptions
from outrider.actors.train.loop.budget import Budget
from outrider.actors.train.loop.pacer import Pacer
from outrider.actors.train.loop.progress_bar import progress_bar
from outrider.actors.train.loop.schedule import Schedule
from outrider.actors.train.loop.training_loop import Saving, StepReport, train
from outrider.actors.train.loop.training_report import expected

READING, TEXT, WRITING, OWN, MEASURING = (
    "target reads",
    "on text",
    "target writes",
    "on its own writing",
    "measured",
)
SHARES: Mapping[str, float] = {READING: 2.0, TEXT: 8.0, WRITING: 4.0, OWN: 5.0, MEASURING: 1.0}
"""What each part gets of the time."""

NEAR_ZERO = 1e-4
"""Temperature of greedy writing."""

Reports = dict[str, dict[str, DepthReport]]


class SpeculatorTraining:
    """One call of the trainer."""

    def __init__(
        self, options: SpeculatorOptions, target: FrozenTarget, rows: TrainingRows
    ) -> None:
        """Makes a fresh net.

        Args:
            options: What was asked for.
            target: What is foreseen.
            rows: Its states on texts.
        """
        self._options, self._target, self._rows = options, target, rows
        self._console = Console(stderr=True)
        self._budget = Budget(
            options.out / "progress" / "budget.json",
            tuple(SHARES),
            options.minutes,
            resume=options.resume,
            shares=SHARES,
        )
        torch.manual_seed(options.seed)
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
            target_fingerprint=target.fingerprint,
            tables_digest=digest_of(target.embedding_VD, target.head_VD)
            if options.tables == "target"
            else "",
            tokenizer_fingerprint=target.tokenizer_fingerprint,
            eos_token_ids=target.eos_token_ids,
            target=options.target,
        )
        self.net = SpeculatorNet(
            self.config, embedding_VD=target.embedding_VD, head_VD=target.head_VD
        ).to(target.device)

    def run(self) -> Reports:
        """Both stages; each one's net is written and measured as soon as it is there."""
        options = self._options
        reports: Reports = {}
        held: dict[str, HeldOut] = {}
        for part, filling, seed, rate, scale in (
            (TEXT, READING, 1, 1.0, options.text_steps),
            (OWN, WRITING, 2, options.own_rate, options.own_steps),
        ):
            if scale:
                self._budget.begin(filling)
                cache = self._rows.text() if part == TEXT else self._rows.own()
                self._fill(cache, filling, is_own=part == OWN)
                self._budget.begin(part)
                self._fit(
                    part,
                    cache,
                    Schedule(
                        steps=scale,
                        tokens_per_step=options.tokens_per_step,
                        row_length=options.row_length,
                        long_row_length=options.row_length,
                        warmup=min(60, scale // 10),
                        decay_share=0.5,
                        matrix_rate=rate * options.matrix_rate,
                        other_rate=rate * options.other_rate,
                        seed=seed + options.seed,
                    ),
                )
            self._budget.begin(MEASURING)
            held = held or self._rows.held_out(NEAR_ZERO)
            reports[part] = {
                name: acceptance(self.net, one, self._target.head_VD) for name, one in held.items()
            }
            self._write(reports)
        self._budget.save()
        return reports

    def _fill(self, cache: FeatureCache, part: str, *, is_own: bool) -> None:
        """As many rows as are wanted, or as the time allows; a chunk at the least."""
        with progress_bar(self._console) as bar:
            task = bar.add_task(part, total=cache.room, completed=cache.num_rows, note="rows")
            clock = self._budget.clock
            while not cache.is_full:
                began = clock()
                self._rows.add_chunk(cache, is_own=is_own)
                self._budget.save()
                bar.update(task, completed=cache.num_rows)
                if self._budget.left() < clock() - began:
                    break
        self._console.print(
            f"{part}: {cache.num_rows} of {cache.room} rows, {cache.num_tokens:,} positions"
        )

    def _fit(self, part: str, cache: FeatureCache, schedule: Schedule) -> None:
        options, budget = self._options, self._budget
        batch = max(1, schedule.tokens_per_step // schedule.row_length)
        rows = cache.num_rows
        device = self._target.device

        def loss_of_step(step: int) -> torch.Tensor:
            tokens_BL, features_BLD = cache.rows(shuffled(step, batch, rows, schedule.seed))
            loss: torch.Tensor = speculator_loss(
                self.net,
                tokens_BL.to(device),
                features_BLD.to(device),
                first=cache.key.first,
                labels=options.labels,
                head_VD=self._target.head_VD,
            )
            return loss

        shape = json.dumps(self.config.as_json(), sort_keys=True)
        # Not the number of steps: a run may be lengthened.
        rates = f"{schedule.matrix_rate:g} {schedule.other_rate:g} {schedule.tokens_per_step}"
        before = f" after {options.text_steps} steps" if part == OWN else ""
        saving = Saving(
            path=options.out / "progress" / f"{part.replace(' ', '-')}.pt",
            fingerprint=f"{part} of {rows} rows, {shape} {options.labels} {rates} seed={schedule.seed}{before}",
            resume=options.resume,
            saved=budget.save,
        )
        pacer = Pacer(
            schedule,
            budget.left,
            budget.minutes,
            lambda decision, seconds: self._console.print(expected(part, decision, seconds)),
        )
        with progress_bar(self._console) as bar:
            task = bar.add_task(part, total=schedule.steps, note="")
            train(
                self.net,
                pacer,
                loss_of_step,
                saving,
                partial(self._show, bar.update, task, part),
                budget.clock,
            )

    def _show(self, update: object, task: object, part: str, report: StepReport) -> None:
        loss = report.loss / self.config.num_stages
        assert callable(update), "it is the bar's"
        update(
            task, completed=report.step, total=report.steps, note=f"loss {loss:.3f} nats a token"
        )
        if not self._console.is_terminal and report.step % 50 == 0:
            self._console.print(f"{part} {report.step}/{report.steps} loss {loss:.3f}")

    def _write(self, reports: Reports) -> None:
        out = self._options.out
        text = card(self.config, self._options, table(reports))
        save_speculator(out / "mlp_speculator", self.net, text)
        content = {
            after: {name: asdict(one) for name, one in by.items()} for after, by in reports.items()
        }
        (out / "report.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
