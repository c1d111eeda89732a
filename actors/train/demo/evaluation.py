"""The evaluation that ends a training run: as much of the held-out text as the time allows, and the report."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from transformers import LlamaForCausalLM

from outrider.actors.train.demo.materials import Materials
from outrider.actors.train.demo.recipe import STAGES
from outrider.actors.train.demo.rollout import continue_rows
from outrider.actors.train.demo.writing import rollouts_name
from outrider.actors.train.loop.budget import EVALUATION, SHARES, WRITING, Budget, StepDecision
from outrider.actors.train.loop.evaluate import (
    agreement,
    held_out_loss,
    rows_within,
    seconds_per_row,
    to_device,
)
from outrider.actors.train.loop.training_report import (
    TrainReport,
    as_table,
    cut_sentences,
    write_report,
)
from outrider.actors.train.text.packing import Tokens, pack_rows
from outrider.actors.train.text.train_tokenizer import encode_documents

HELD_OUT_ROWS = 24
HELD_OUT_LENGTH = 256
LONG_LENGTH = 1024
OWN_ROWS = 4


def measure(materials: Materials, budget: Budget) -> TrainReport:
    """Measure what is there and write `report.json`."""
    budget.begin(EVALUATION)
    folders = {name: materials.out / name for name in STAGES[1:] if (materials.out / name).is_dir()}
    if "target" not in folders:
        return TrainReport({}, {}, {})
    tokenizer = materials.tokenizer()
    held = {
        name: pack_rows(encode_documents(tokenizer, held), HELD_OUT_LENGTH, HELD_OUT_ROWS)
        for name, (_, held) in materials.documents.items()
        if held
    }
    models = {name: materials.load(name) for name in folders}
    target = models.pop("target")
    own = {"own writing": _own_writing(materials, target, held)} if held else {}
    limit = _evaluated_rows(budget, target, held, len(models))
    held = {name: rows[:limit] for name, rows in held.items()}
    losses = held_out_loss(target, held)
    if held:
        everything = [
            piece
            for _, documents in materials.documents.values()
            for piece in encode_documents(tokenizer, documents)
        ]
        order = np.random.default_rng(0).permutation(len(everything))
        long = pack_rows([everything[i] for i in order], LONG_LENGTH, limit)
        losses |= held_out_loss(target, {"long": long})
    parts = _parts(materials, budget, target)
    report = TrainReport(
        {"target": target.num_parameters()}
        | {name: model.num_parameters() for name, model in models.items()},
        losses,
        {name: agreement(model, target, held | own) for name, model in models.items()},
        parts,
        cut_sentences(parts),
    )
    write_report(materials.out / "report.json", report)
    materials.console.print(as_table(report))
    for sentence in report.cut:
        materials.console.print(sentence, soft_wrap=True)
    return report


def _parts(
    materials: Materials, budget: Budget, target: LlamaForCausalLM
) -> dict[str, StepDecision]:
    """What was decided on for what is there."""
    names = {part: part for part in SHARES} | {WRITING: rollouts_name(materials, target)}
    found = {part: budget.decided(name) for part, name in names.items()}
    return {part: decision for part, decision in found.items() if decision is not None}


def _evaluated_rows(
    budget: Budget, target: LlamaForCausalLM, held: Mapping[str, Tokens], num_drafts: int
) -> int:
    """How many held-out rows of each source the time allows, at least those of one pass."""
    minutes = budget.minutes
    saved = budget.decided(EVALUATION)
    if saved is not None and saved.holds(HELD_OUT_ROWS, minutes, 0):
        return saved.count
    rows = HELD_OUT_ROWS
    if held and minutes:
        seconds = seconds_per_row(target, next(iter(held.values())), budget.clock)
        passes = len(held) * (1 + 2 * num_drafts) + LONG_LENGTH // HELD_OUT_LENGTH
        rows = rows_within(budget.left(), seconds * passes, HELD_OUT_ROWS)
    budget.decide(EVALUATION, StepDecision(count=rows, of=HELD_OUT_ROWS, minutes=minutes))
    return rows


def _own_writing(
    materials: Materials, target: LlamaForCausalLM, held: Mapping[str, Tokens]
) -> Tokens:
    """What drafts really face: the target's continuations of held-out text, rows of tokens."""
    prompt_length = materials.recipe.rollouts.prompt_length
    prompts = np.concatenate([rows[:OWN_ROWS, :prompt_length] for rows in held.values()])
    generator = torch.Generator(materials.device).manual_seed(0)
    rows_BL = continue_rows(target, to_device(prompts, target), HELD_OUT_LENGTH, generator)
    return rows_BL.cpu().numpy().astype(np.uint16)
