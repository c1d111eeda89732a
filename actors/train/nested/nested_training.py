"""The training of a nested draft: on texts and on what the target itself writes, by turns, all exits at once.

Source: S2D, Kavehzadeh et al. 2024, arXiv 2407.01955. docs/sorted.md tells what differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from outrider.actors.train.demo.inherit import inherit_embedding
from outrider.actors.train.features.drafter_card import DrafterCard, command_of
from outrider.actors.train.features.feature_cache import FeatureCache
from outrider.actors.train.features.frozen_target import FrozenTarget
from outrider.actors.train.features.state_training import (
    MEASURING,
    READING,
    WRITING,
    Reports,
    TurnTraining,
)
from outrider.actors.train.features.training_rows import HeldOut
from outrider.actors.train.loop.schedule import schedule_of
from outrider.actors.train.loop.training_checkpoint import save_model
from outrider.actors.train.nested.nested_evaluation import exit_reports, exit_table
from outrider.actors.train.nested.nested_objective import nested_loss
from outrider.actors.train.nested.nested_options import NestedTrainingOptions

EXITS, SEPARATE = "exits", "separate sizes"
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


class NestedTraining(TurnTraining[NestedTrainingOptions]):
    """One call of the trainer."""

    def __init__(self, options: NestedTrainingOptions, target: FrozenTarget) -> None:
        """Takes what was asked for, and what is foreseen."""
        shares = {
            part: share for part, share in SHARES.items() if part != SEPARATE or options.separate
        }
        super().__init__(options, target, folder="sorted", layers=("norm",), shares=shares)

    def learn(self, caches: Sequence[FeatureCache]) -> None:
        """See `TurnTraining`."""
        exits = self.options.exits
        self._nested = self.build(exits[-1])
        self._steps = self._fit(EXITS, self._nested, exits, caches)
        self._separate: dict[int, LlamaForCausalLM] = {}
        if self.options.separate:
            for layers in exits:
                model = self._separate[layers] = self.build(layers)
                self._fit(SEPARATE, model, (layers,), caches, f"separate-{layers}")

    def build(self, layers: int) -> LlamaForCausalLM:
        """A fresh draft of so many layers, whose embedding is the target's, projected, where that is of the same family."""
        options, target = self.options, self.target
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
        model, width = self.target.model, self.target.width
        return isinstance(model, LlamaForCausalLM) and width >= self.options.width

    def _fit(
        self,
        part: str,
        model: LlamaForCausalLM,
        exits: Sequence[int],
        caches: Sequence[FeatureCache],
        file: str = "",
    ) -> int:
        """Trains; how many steps it took."""
        options, target = self.options, self.target
        schedule = schedule_of(options, options.steps)
        shape = f"width={options.width} num_heads={options.num_heads} num_key_heads={options.num_key_heads} inner={options.inner}"
        rows = [cache.num_rows for cache in caches]
        fingerprint = f"{list(exits)} of {shape} for {target.fingerprint} rows_per_step={options.rows_per_step} of {rows}"

        def loss(step: int) -> torch.Tensor:
            _, tokens, features = self.turn(caches, step)
            return nested_loss(model, tokens, features[:, :, -1], target.output, exits)

        return self.fitting.fit(part, model, loss, schedule, caches, fingerprint, file)

    def measure(self, held: Mapping[str, HeldOut]) -> Reports:
        """See `TurnTraining`: by text, and by the way out of the model."""
        exits, output = self.options.exits, self.target.output
        thresholds = THRESHOLDS if len(exits) > 1 else ()
        reports: Reports = {}
        for text, rows in held.items():
            reports[text] = dict(exit_reports(self._nested, rows, output, exits, thresholds))
            for layers, model in self._separate.items():
                (alone,) = exit_reports(model, rows, output, (layers,)).values()
                reports[text][f"{layers} layers, trained alone"] = alone
        return reports

    def table(self, reports: Reports) -> str:
        """See `StateTraining`."""
        return exit_table(reports)

    def write(self, reports: Reports) -> None:
        """See `TurnTraining`."""
        self._nested.config.exits = list(self.options.exits)
        save_model(self.folder, self._nested, self.target.tokenizer)
        card = _card(
            self.options,
            target=self.target.name,
            num_parameters=self._nested.num_parameters(),
            steps=self._steps,
            inherits=self._inherits,
            measured=self.table(reports),
        )
        (self.folder / "README.md").write_text(card, encoding="utf-8")


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
