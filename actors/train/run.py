"""The stages of a training run: what each reads, trains and writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median_low

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import nn
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from outrider.actors.train.budget import EVALUATION, SHARES, WRITING, Budget, Decision
from outrider.actors.train.checkpoint import (
    replace_folder,
    save_model,
    save_tokenizer,
    weights_digest,
)
from outrider.actors.train.corpus import Document, Source, load
from outrider.actors.train.errors import TrainError
from outrider.actors.train.evaluate import (
    agreement,
    held_out_loss,
    rows_within,
    seconds_per_row,
    to_device,
)
from outrider.actors.train.inherit import inherit_embedding
from outrider.actors.train.loop import Saving, StepReport, train
from outrider.actors.train.objective import distillation_loss, text_loss
from outrider.actors.train.pacer import Pacer
from outrider.actors.train.packing import Tokens, mix_stream, pack_rows, rows_of_step
from outrider.actors.train.recipe import SCHEDULES, SHAPES, Schedule, Shape, build
from outrider.actors.train.report import (
    TrainReport,
    as_table,
    cut_sentences,
    expected,
    write_report,
)
from outrider.actors.train.rollout import continue_rows, rollout_chunks
from outrider.actors.train.sources import SOURCES
from outrider.actors.train.tokenizer import (
    BEGIN,
    document_text,
    encode_documents,
    load_tokenizer,
    train_tokenizer,
)

STAGES = ("tokenizer", "target", "draft", "draft-small")
TOKENIZER_BYTES = 12_000_000
HELD_OUT_ROWS = 24
HELD_OUT_LENGTH = 256
LONG_LENGTH = 1024
OWN_ROWS = 4
STREAM_SEED = 20
ROLLOUT_SEED = 7


@dataclass(frozen=True)
class Rollouts:
    """How much of its own writing the target adds to the drafts' text (rows of tokens)."""

    chunks: int = 16
    rows: int = 128
    length: int = 256
    prompt_length: int = 48


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the weights besides the data."""

    sources: tuple[Source, ...] = SOURCES
    shapes: Mapping[str, Shape] = field(default_factory=lambda: SHAPES)
    schedules: Mapping[str, Schedule] = field(default_factory=lambda: SCHEDULES)
    rollouts: Rollouts = Rollouts()


def parts_of(stages: Sequence[str]) -> tuple[str, ...]:
    """What a call with these stages spends time on, in order."""
    parts: list[str] = []
    for stage in stages:
        if stage in STAGES[2:]:
            parts.append(WRITING)
        parts.append(stage)
    return tuple(dict.fromkeys([*parts, EVALUATION]))


def rollouts_name(target: LlamaForCausalLM) -> str:
    """Folder of what a target with these weights has written."""
    return f"rollouts-{weights_digest(target)}"


class Run:
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
        self._data_dir, self._out, self._device = data_dir, out_dir, device
        self._resume, self._scale, self._recipe = resume, steps_scale, recipe
        self._budget = budget
        self._console = Console(stderr=True)
        self._text: dict[str, tuple[list[Document], list[Document]]] | None = None
        self._tokens: dict[str, list[Tokens]] | None = None

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
        self._budget.begin(EVALUATION)
        folders = {name: self._out / name for name in STAGES[1:] if (self._out / name).is_dir()}
        if "target" not in folders:
            return TrainReport({}, {}, {})
        tokenizer = self._tokenizer()
        held = {
            name: pack_rows(encode_documents(tokenizer, held), HELD_OUT_LENGTH, HELD_OUT_ROWS)
            for name, (_, held) in self._documents().items()
            if held
        }
        models = {name: self._load(name) for name in folders}
        target = models.pop("target")
        own = {"own writing": self._own_writing(target, held)} if held else {}
        limit = self._evaluated_rows(target, held, len(models))
        held = {name: rows[:limit] for name, rows in held.items()}
        losses = held_out_loss(target, held)
        if held:
            everything = [
                piece
                for _, documents in self._documents().values()
                for piece in encode_documents(tokenizer, documents)
            ]
            order = np.random.default_rng(0).permutation(len(everything))
            long = pack_rows([everything[i] for i in order], LONG_LENGTH, limit)
            losses |= held_out_loss(target, {"long": long})
        parts = self._parts(target)
        report = TrainReport(
            {"target": target.num_parameters()}
            | {name: model.num_parameters() for name, model in models.items()},
            losses,
            {name: agreement(model, target, held | own) for name, model in models.items()},
            parts,
            cut_sentences(parts),
        )
        write_report(self._out / "report.json", report)
        self._console.print(as_table(report))
        for sentence in report.cut:
            self._console.print(sentence, soft_wrap=True)
        return report

    def _parts(self, target: LlamaForCausalLM) -> dict[str, Decision]:
        """What was decided on for what is there."""
        names = {part: part for part in SHARES} | {WRITING: rollouts_name(target)}
        found = {part: self._budget.decided(name) for part, name in names.items()}
        return {part: decision for part, decision in found.items() if decision is not None}

    def _evaluated_rows(
        self, target: LlamaForCausalLM, held: Mapping[str, Tokens], num_drafts: int
    ) -> int:
        """How many held-out rows of each source the time allows, at least those of one pass."""
        minutes = self._budget.minutes
        saved = self._budget.decided(EVALUATION)
        if saved is not None and saved.holds(HELD_OUT_ROWS, minutes, 0):
            return saved.count
        rows = HELD_OUT_ROWS
        if held and minutes:
            seconds = seconds_per_row(target, next(iter(held.values())), self._budget.clock)
            passes = len(held) * (1 + 2 * num_drafts) + LONG_LENGTH // HELD_OUT_LENGTH
            rows = rows_within(self._budget.left(), seconds * passes, HELD_OUT_ROWS)
        self._budget.decide(EVALUATION, Decision(count=rows, of=HELD_OUT_ROWS, minutes=minutes))
        return rows

    def _own_writing(self, target: LlamaForCausalLM, held: Mapping[str, Tokens]) -> Tokens:
        """What drafts really face: the target's continuations of held-out text, rows of tokens."""
        prompt_length = self._recipe.rollouts.prompt_length
        prompts = np.concatenate([rows[:OWN_ROWS, :prompt_length] for rows in held.values()])
        generator = torch.Generator(self._device).manual_seed(0)
        rows_BL = continue_rows(target, to_device(prompts, target), HELD_OUT_LENGTH, generator)
        return rows_BL.cpu().numpy().astype(np.uint16)

    def _documents(self) -> dict[str, tuple[list[Document], list[Document]]]:
        if self._text is None:
            self._text = {s.name: load(self._data_dir, s) for s in self._recipe.sources}
        return self._text

    def _train_tokenizer(self) -> None:
        folder = self._out / "tokenizer"
        if self._resume and (folder / "tokenizer_config.json").exists():
            return
        texts: list[str] = []
        total = sum(source.weight for source in self._recipe.sources)
        for source in self._recipe.sources:
            allowance = source.weight / total * TOKENIZER_BYTES
            documents = self._documents()[source.name][0]
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

    def _tokenizer(self) -> PreTrainedTokenizerFast:
        folder = self._out / "tokenizer"
        if not (folder / "tokenizer_config.json").exists():
            raise TrainError(f"{folder}: no tokenizer yet; run the tokenizer stage first")
        return load_tokenizer(folder)

    def _stream(self, num_tokens: int, seed: int) -> Tokens:
        if self._tokens is None:
            tokenizer = self._tokenizer()
            with self._console.status("encoding the corpus"):
                self._tokens = {
                    name: encode_documents(tokenizer, documents)
                    for name, (documents, _) in self._documents().items()
                }
            sizes = ", ".join(f"{k} {sum(map(len, v)):,}" for k, v in self._tokens.items())
            self._console.print(f"tokens: {sizes}")
        weights = {source.name: source.weight for source in self._recipe.sources}
        return mix_stream(self._tokens, weights, num_tokens, STREAM_SEED + seed)

    def _build(self, stage: str) -> LlamaForCausalLM:
        vocabulary = self._tokenizer()
        torch.manual_seed(self._recipe.schedules[stage].seed)
        special = {
            "bos": vocabulary.bos_token_id,
            "eos": vocabulary.eos_token_id,
            "pad": vocabulary.pad_token_id,
        }
        return nn.Module.to(build(self._recipe.shapes[stage], special), self._device)

    def _load(self, name: str) -> LlamaForCausalLM:
        folder = self._out / name
        if not folder.is_dir():
            raise TrainError(f"{folder}: no such model yet; run the {name} stage first")
        model: LlamaForCausalLM = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
        model.train(False)
        model.requires_grad_(False)
        return nn.Module.to(model, self._device)

    def _train_target(self) -> None:
        schedule = self._recipe.schedules["target"].scaled(self._scale)
        stream = self._stream(schedule.steps * schedule.tokens_per_step, schedule.seed)
        model = self._build("target")

        def loss_of_step(step: int) -> torch.Tensor:
            length = schedule.length_at(step)
            rows = rows_of_step(stream, step, schedule.tokens_per_step, length)
            return text_loss(model, to_device(rows, model))

        self._fit("target", model, schedule, loss_of_step)

    def _train_draft(self, stage: str) -> None:
        schedule = self._recipe.schedules[stage].scaled(self._scale)
        target = self._load("target")
        model = self._build(stage)
        inherit_embedding(model, target)
        stream = self._stream(schedule.steps * schedule.tokens_per_step, schedule.seed)
        self._budget.begin(WRITING)
        written = self._rollouts(target)
        self._budget.begin(stage)

        def loss_of_step(step: int) -> torch.Tensor:
            length = schedule.length_at(step)
            rows = rows_of_step(stream, step, schedule.tokens_per_step, length)
            if length == written.shape[1]:
                half = len(rows) // 2
                chosen = np.random.default_rng([schedule.seed, step]).integers(
                    0, len(written), half
                )
                rows = np.concatenate([rows[half:], written[chosen]])
            return distillation_loss(model, target, to_device(rows, model))

        self._fit(stage, model, schedule, loss_of_step, of=f" of {weights_digest(target)}")

    def _rollouts(self, target: LlamaForCausalLM) -> Tokens:
        plan = self._recipe.rollouts
        stream = self._stream(plan.chunks * plan.rows * plan.length, ROLLOUT_SEED)
        chunks = max(1, round(plan.chunks * min(1.0, self._scale)))
        name = rollouts_name(target)
        wanted, minutes = chunks * plan.rows, self._budget.minutes
        saved = self._budget.decided(name) if self._resume else None
        is_decided = saved is not None and saved.of == wanted
        if saved is not None and is_decided:
            chunks = saved.count // plan.rows
        made: list[Tokens] = []
        times = [self._budget.clock()]

        def made_one() -> None:
            times.append(self._budget.clock())
            self._budget.save()

        with self._bar() as bar:
            task = bar.add_task("target writes", total=chunks, note="")
            for chunk in rollout_chunks(
                target,
                stream,
                self._out / "progress" / name,
                begin=self._tokenizer().get_vocab()[BEGIN],
                chunks=chunks,
                rows=plan.rows,
                length=plan.length,
                prompt_length=plan.prompt_length,
                seed=ROLLOUT_SEED,
                made_one=made_one,
            ):
                made.append(chunk)
                bar.advance(task)
                pace = median_low(b - a for a, b in pairwise(times)) if len(times) > 1 else 0.0
                left = self._budget.left()
                if minutes and not is_decided and len(times) == 2:
                    count = min(chunks, len(made) + int(max(0.0, left) / max(pace, 1e-9)))
                    now = Decision(count=count * plan.rows, of=wanted, minutes=minutes)
                    self._console.print(expected(WRITING, now, (count - len(made)) * pace))
                if not is_decided and left < pace:
                    break
        if not is_decided:
            count = len(made) * plan.rows
            self._budget.decide(name, Decision(count=count, of=wanted, minutes=minutes))
        return np.concatenate(made)

    def _fit(
        self,
        stage: str,
        model: LlamaForCausalLM,
        schedule: Schedule,
        loss_of_step: Callable[[int], torch.Tensor],
        of: str = "",
    ) -> None:
        tokenizer = self._tokenizer()
        shape = self._recipe.shapes[stage]
        saving = Saving(
            path=self._out / "progress" / f"{stage}.pt",
            fingerprint=f"{stage}{of} {asdict(shape)} seed={schedule.seed} "
            f"tokens={schedule.tokens_per_step} rows={schedule.row_length}",
            resume=self._resume,
            snapshot=lambda current: save_model(self._out / stage, current, tokenizer),
            saved=self._budget.save,
        )
        pacer = Pacer(
            schedule,
            self._budget.left,
            self._budget.minutes,
            lambda decision, seconds: self._console.print(expected(stage, decision, seconds)),
        )
        with self._bar() as bar:
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
        save_model(self._out / stage, model, tokenizer)

    def _bar(self) -> Progress:
        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=self._console,
            disable=not self._console.is_terminal,
        )
