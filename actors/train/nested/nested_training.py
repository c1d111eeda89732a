"""The training of a nested draft: on texts and on what the target itself writes, by turns, all exits at once.

Source: S2D, Kavehzadeh et al. 2024, arXiv 2407.01955. docs/sorted.md tells what differs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from outrider.actors.train.demo.inherit import inherit_embedding
from outrider.actors.train.features.drafter_card import DrafterCard, command_of
from outrider.actors.train.features.feature_cache import FeatureCache, shuffled
from outrider.actors.train.features.frozen_target import FrozenTarget
from outrider.actors.train.features.state_fitting import NEAR_ZERO, StateFitting
from outrider.actors.train.features.training_rows import HeldOut, TrainingRows
from outrider.actors.train.loop.data_parallel import is_first
from outrider.actors.train.loop.schedule import schedule_of
from outrider.actors.train.loop.training_checkpoint import save_model
from outrider.actors.train.nested.nested_evaluation import ExitReport, exit_reports, exit_table
from outrider.actors.train.nested.nested_objective import nested_loss
from outrider.actors.train.nested.nested_options import NestedTrainingOptions

READING, WRITING, EXITS, SEPARATE, MEASURING = (
    "target reads",
    "target writes",
    "exits",
    "separate sizes",
    "measured",
)
SHARES: Mapping[str, float] = {
    READING: 2.0,
    WRITING: 3.5,
    EXITS: 12.5,
    SEPARATE: 20.0,
    MEASURING: 2.0,
}
"""What each part gets of the time."""

THRESHOLDS = (0.3, 0.5, 0.7, 0.9)
"""Confidences that are measured."""

CONTEXT = 2048
"""Tokens that a draft reads at most, where the target does not say how many it reads."""

FOLDER = "sorted"
"""Of the result."""

Reports = dict[str, dict[str, ExitReport]]


class NestedTraining:
    """One call of the trainer."""

    def __init__(self, options: NestedTrainingOptions, target: FrozenTarget) -> None:
        """Takes what was asked for, and what is foreseen."""
        self._options, self._target = options, target
        self._rows = TrainingRows(
            target=target,
            data=options.data,
            folder=options.out / "progress",
            layers=("norm",),
            row_length=options.row_length,
            prompt_length=options.prompt_length,
            num_text=options.text_rows,
            num_own=options.own_rows,
            resume=options.resume,
        )
        shares = {
            part: share for part, share in SHARES.items() if part != SEPARATE or options.separate
        }
        self._fitting = StateFitting(options, shares)

    def run(self) -> Reports:
        """All of it; the model is written when it was measured."""
        fitting, exits = self._fitting, self._options.exits
        caches = [self._rows.text(), self._rows.own()]
        fitting.fill(READING, self._rows, caches[0], is_own=False)
        fitting.fill(WRITING, self._rows, caches[1], is_own=True)
        nested = self.build(exits[-1])
        steps = self._fit(EXITS, nested, exits, caches)
        separate: dict[int, LlamaForCausalLM] = {}
        if self._options.separate:
            for layers in exits:
                separate[layers] = self.build(layers)
                self._fit(SEPARATE, separate[layers], (layers,), caches, f"separate-{layers}")
        fitting.budget.begin(MEASURING)
        if not is_first():
            return {}
        reports = self._measure(nested, separate, self._rows.held_out(NEAR_ZERO))
        self._write(nested, reports, steps)
        fitting.budget.save()
        return reports

    def build(self, layers: int) -> LlamaForCausalLM:
        """A fresh draft of so many layers, whose embedding is the target's, projected, where that is of the same family."""
        options, target = self._options, self._target
        torch.manual_seed(options.seed)
        of_target: Any = target.model.config.get_text_config()
        config = LlamaConfig(
            vocab_size=target.head_VD.shape[0],
            hidden_size=options.width,
            num_hidden_layers=layers,
            num_attention_heads=options.num_heads,
            num_key_value_heads=options.num_key_heads,
            intermediate_size=options.inner,
            max_position_embeddings=target.max_context or CONTEXT,
            tie_word_embeddings=True,
            bos_token_id=of_target.bos_token_id,
            eos_token_id=of_target.eos_token_id,
            pad_token_id=of_target.pad_token_id,
        )
        model = LlamaForCausalLM(config)
        if self._inherits:
            assert isinstance(target.model, LlamaForCausalLM), "asked there"
            inherit_embedding(model, target.model)
        return nn.Module.to(model, target.device)

    @property
    def _inherits(self) -> bool:
        """Whether the target's embedding, projected, is what a draft begins with."""
        target = self._target
        return isinstance(target.model, LlamaForCausalLM) and target.width >= self._options.width

    def _fit(
        self,
        part: str,
        model: LlamaForCausalLM,
        exits: Sequence[int],
        caches: list[FeatureCache],
        file: str = "",
    ) -> int:
        """Trains; how many steps it took."""
        options = self._options
        schedule = schedule_of(options, options.steps)
        shape = f"{options.width} {options.num_heads}/{options.num_key_heads} {options.inner}"
        rows = [cache.num_rows for cache in caches]
        fingerprint = (
            f"{list(exits)} of {shape} for {self._target.fingerprint} "
            f"{options.rows_per_step} of {rows}"
        )

        def loss(step: int) -> torch.Tensor:
            """Texts and the target's writing take turns."""
            cache, turn = caches[step % 2], step // 2
            tokens, states = cache.rows(
                shuffled(turn, options.rows_per_step, cache.num_rows, options.seed)
            )
            device, output = self._target.device, self._target.output
            return nested_loss(model, tokens.to(device), states.to(device), output, exits)

        return self._fitting.fit(part, model, loss, schedule, caches, fingerprint, file)

    def _measure(
        self,
        nested: LlamaForCausalLM,
        separate: Mapping[int, LlamaForCausalLM],
        held: Mapping[str, HeldOut],
    ) -> Reports:
        exits, output = self._options.exits, self._target.output
        thresholds = THRESHOLDS if len(exits) > 1 else ()
        reports: Reports = {}
        for text, rows in held.items():
            reports[text] = exit_reports(nested, rows, output, exits, thresholds)
            for layers, model in separate.items():
                (alone,) = exit_reports(model, rows, output, (layers,)).values()
                reports[text][f"{layers} layers, trained alone"] = alone
        return reports

    def _write(self, nested: LlamaForCausalLM, reports: Reports, steps: int) -> None:
        options = self._options
        nested.config.exits = list(options.exits)
        save_model(options.out / FOLDER, nested, self._target.tokenizer)
        card = _card(
            options,
            target=self._target.name,
            num_parameters=nested.num_parameters(),
            steps=steps,
            inherits=self._inherits,
            measured=exit_table(reports),
        )
        (options.out / FOLDER / "README.md").write_text(card, encoding="utf-8")
        content = {
            text: {way: asdict(one) for way, one in by.items()} for text, by in reports.items()
        }
        (options.out / "report.json").write_text(
            json.dumps(content, indent=2) + "\n", encoding="utf-8"
        )


def _card(
    options: NestedTrainingOptions,
    *,
    target: str,
    num_parameters: int,
    steps: int,
    inherits: bool,
    measured: str,
) -> str:
    began = " The embedding began as the target's, projected." if inherits else ""
    return DrafterCard(
        title="Nested draft",
        target=target,
        what=f"""One draft model of several sizes: after {", ".join(map(str, options.exits))} layers the same norm and head give the law of the next token. Method: S2D,
Kavehzadeh et al. 2024, arXiv 2407.01955. An ordinary `transformers` checkpoint (`LlamaForCausalLM`, tied embeddings, bfloat16); `exits` in `config.json`
is read by `method: sorted` and by nobody else.""",
        shape=f"""{num_parameters / 1e6:.2f} M parameters: width {options.width}, {options.exits[-1]} layers, {options.num_heads} heads ({options.num_key_heads} of keys
and values), intermediate {options.inner}. Tokenizer: the target's.""",
        training=f"""`{command_of("sorted", options)}`: {steps} steps of {options.rows_per_step} rows of {options.row_length} tokens,
by turns of text and of what the target wrote at temperatures 0.3 to 1. Loss: the sum over exits of the divergence
from the target's law.{began}""",
        read=", teacher forced. `confidence c`: a position leaves at the first exit whose likeliest token has more than `c`.",
        measured=measured,
    ).render()
