"""The stages of a training run: what each reads, trains and writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from transformers import LlamaForCausalLM

from outrider.actors.train.demo.deepen import deepen
from outrider.actors.train.demo.evaluation import measure
from outrider.actors.train.demo.inherit import inherit_embedding
from outrider.actors.train.demo.materials import Materials
from outrider.actors.train.demo.recipe import STAGES, LayerGrowth, Recipe
from outrider.actors.train.demo.target_cache import Kept
from outrider.actors.train.demo.writing import write_rollouts
from outrider.actors.train.loop.budget import EVALUATION, GROWING, WRITING, Budget
from outrider.actors.train.loop.evaluate import to_device
from outrider.actors.train.loop.output_head import LEAST_REST, listed_rule, mean_loss, text_loss
from outrider.actors.train.loop.pacer import Pacer
from outrider.actors.train.loop.schedule import Schedule
from outrider.actors.train.loop.training_checkpoint import (
    replace_folder,
    save_model,
    save_tokenizer,
    weights_digest,
)
from outrider.actors.train.loop.training_loop import Saving, StepReport, train
from outrider.actors.train.loop.training_report import TrainReport, expected, progress_bar
from outrider.actors.train.text.packing import Tokens, rows_of_step
from outrider.actors.train.text.train_tokenizer import document_text, train_tokenizer

TOKENIZER_BYTES = 12_000_000
TARGET = STAGES[1]


def parts_of(stages: Sequence[str]) -> tuple[str, ...]:
    """What a call with these stages spends time on, in order."""
    parts: list[str] = []
    for stage in stages:
        if stage == TARGET:
            parts += GROWING
        elif stage in STAGES[2:]:
            parts.append(WRITING)
        parts.append(stage)
    return tuple(dict.fromkeys([*parts, EVALUATION]))


class TrainingRun:
    """One call of `train_demo`: the stages share the corpus, which is read once."""

    def __init__(
        self,
        data_dir: Path,
        out_dir: Path,
        device: torch.device,
        resume: bool,
        steps_scale: float,
        recipe: Recipe,
        budget: Budget,
    ) -> None:
        self._out, self._resume = out_dir, resume
        self._scale, self._recipe = steps_scale, recipe
        self._budget = budget
        self._console = Console(stderr=True)
        self._materials = Materials(data_dir, out_dir, device, recipe, self._console)

    def announce(self) -> None:
        """Tell what each part may take."""
        if self._budget.minutes:
            shares = ", ".join(f"{part} {m:.1f}" for part, m in self._budget.shares().items())
            spent = self._budget.spent() / 60
            before = f", {spent:.1f} of them spent before" if spent else ""
            self._console.print(
                f"{self._budget.minutes:g} minutes at most{before}: {shares}", soft_wrap=True
            )

    def do(self, stage: str) -> None:
        """Carry out one stage, or find it done."""
        self._budget.begin(stage)
        if stage == "tokenizer":
            self._train_tokenizer()
        elif stage == "target":
            self._train_target()
        else:
            self._train_draft(stage)

    def report(self) -> TrainReport:
        """Measure what is there and write `report.json`."""
        return measure(self._materials, self._budget)

    def _train_tokenizer(self) -> None:
        folder = self._out / "tokenizer"
        if self._resume and (folder / "tokenizer_config.json").exists():
            return
        texts: list[str] = []
        total = sum(source.weight for source in self._recipe.sources)
        for source in self._recipe.sources:
            allowance = source.weight / total * TOKENIZER_BYTES
            documents = self._materials.documents[source.name][0]
            for index in np.random.default_rng(0).permutation(len(documents)):
                text = document_text(documents[index])
                texts.append(text)
                allowance -= len(text.encode())
                if allowance < 0:
                    break
        with self._console.status("learning the tokenizer"):
            tokenizer = train_tokenizer(texts, self._recipe.shapes["target"].vocabulary)
        partial = folder.with_name(".tokenizer.partial")
        save_tokenizer(partial, tokenizer)
        replace_folder(partial, folder)

    def _train_target(self) -> None:
        whole = LayerGrowth(
            TARGET, self._recipe.shapes[TARGET].layers, self._recipe.schedules[TARGET]
        )
        parts = [
            replace(part, schedule=part.schedule.scaled(self._scale))
            for part in (*self._recipe.growth, whole)
        ]
        lengths = [part.schedule.steps * part.schedule.tokens_per_step for part in parts]
        stream = self._materials.stream(sum(lengths), whole.schedule.seed)
        model = self._materials.build(TARGET, parts[0].layers)
        for index, part in enumerate(parts):
            self._budget.begin(part.part)
            layers = len(model.model.layers)
            grown = deepen(model, part.layers, repeated=layers)
            assert isinstance(grown, LlamaForCausalLM)
            model = grown
            self._fit_text(model, part, stream[sum(lengths[:index]) :])

    def _fit_text(self, model: LlamaForCausalLM, part: LayerGrowth, stream: Tokens) -> None:
        schedule = part.schedule

        def loss_of_step(step: int) -> torch.Tensor:
            length = schedule.length_at(step)
            rows = rows_of_step(stream, step, schedule.tokens_per_step, length)
            return text_loss(model, to_device(rows, model))

        self._fit(part.part, model, schedule, loss_of_step, is_whole=part.part == TARGET)

    def _train_draft(self, stage: str) -> None:
        schedule = self._recipe.schedules[stage].scaled(self._scale)
        target = self._materials.load("target")
        model = self._materials.build(stage)
        inherit_embedding(model, target)
        self._budget.begin(WRITING)
        kept = write_rollouts(
            self._materials, self._budget, target, schedule, resume=self._resume, scale=self._scale
        )
        self._budget.begin(stage)

        def loss_of_step(step: int) -> torch.Tensor:
            return distillation_loss(model, kept[step % len(kept)])

        self._fit(stage, model, schedule, loss_of_step, of=f" of {weights_digest(target)}")

    def _fit(
        self,
        stage: str,
        model: LlamaForCausalLM,
        schedule: Schedule,
        loss_of_step: Callable[[int], torch.Tensor],
        of: str = "",
        is_whole: bool = True,
    ) -> None:
        tokenizer = self._materials.tokenizer()
        shape = asdict(self._recipe.shapes[stage if is_whole else TARGET])
        shape["layers"] = model.config.num_hidden_layers
        saving = Saving(
            path=self._out / "progress" / f"{stage}.pt",
            fingerprint=f"{stage}{of} {shape} seed={schedule.seed} "
            f"tokens={schedule.tokens_per_step} rows={schedule.row_length} texts={self._materials.texts}",
            resume=self._resume,
            snapshot=(lambda _: save_model(self._out / stage, model, tokenizer))
            if is_whole
            else None,
            saved=self._budget.save,
        )
        pacer = Pacer(
            schedule,
            self._budget.left,
            self._budget.minutes,
            lambda decision, seconds: self._console.print(expected(stage, decision, seconds)),
        )
        with progress_bar(self._console) as bar:
            task = bar.add_task(stage, total=schedule.steps, note="")
            smooth = 0.0

            def on_step(report: StepReport) -> None:
                nonlocal smooth
                smooth = report.loss if smooth == 0.0 else 0.98 * smooth + 0.02 * report.loss
                pace = schedule.tokens_per_step / max(report.seconds, 1e-9)
                bar.update(
                    task,
                    completed=report.step,
                    total=report.steps,
                    note=f"loss {smooth:.3f}  {pace:,.0f} tokens/s",
                )
                if not self._console.is_terminal and report.step % 20 == 0:
                    self._console.print(f"{stage} {report.step}/{report.steps} loss {smooth:.3f}")

            train(model, pacer, loss_of_step, saving, on_step, self._budget.clock)
        if decision := pacer.decision():
            self._budget.decide(stage, decision)
        if is_whole:
            save_model(self._out / stage, model, tokenizer)


def distillation_loss(draft: LlamaForCausalLM, kept: Kept) -> torch.Tensor:
    """What drafts are trained on: mean forward divergence KL(target || draft) from the target's own distribution, nats per token, the tokens that are not
    listed taken as one.

    Every position counts, as each is the end of some prefix (Hinton et al. 2015,
    arXiv 1503.02531; for drafts: Zhou et al. 2023, arXiv 2310.08461).
    """
    device = next(draft.parameters()).device
    rows_BL, tokens_NK, target_logprob_NK = (
        torch.from_numpy(array.astype(kind)).to(device)
        for array, kind in (
            (kept.rows_BL, np.int64),
            (kept.tokens_NK, np.int64),
            (kept.logprobs_NK, np.float32),
        )
    )
    return mean_loss(
        draft, rows_BL, listed_rule(tokens_NK, target_logprob_NK, LEAST_REST), last=True
    )
