"""The training of an EAGLE-3 net: on texts and on what the target itself writes, by turns, one stage; then the map of `hidden_reuse`.

Source: Li et al. 2025, arXiv 2503.01840; Chen et al. 2026, arXiv 2602.21224. docs/eagle3.md tells what differs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import torch
from torch import nn

from outrider.actors.draft.eagle.eagle_config import EagleConfig
from outrider.actors.draft.eagle.eagle_net import EagleNet
from outrider.actors.draft.on_states.net_folder import save_folder
from outrider.actors.train.eagle.eagle_evaluation import eagle_acceptance
from outrider.actors.train.eagle.eagle_objective import eagle_loss, num_places, reuse_loss
from outrider.actors.train.eagle.eagle_options import EagleTrainingOptions
from outrider.actors.train.features.drafter_card import DrafterCard, command_of, fits
from outrider.actors.train.features.feature_cache import FeatureCache
from outrider.actors.train.features.frozen_target import FrozenTarget
from outrider.actors.train.features.state_fitting import settings_of
from outrider.actors.train.features.state_training import (
    MEASURING,
    READING,
    WRITING,
    Reports,
    TurnTraining,
    names_of,
)
from outrider.actors.train.features.target_shape_checks import taps_of
from outrider.actors.train.features.training_rows import HeldOut
from outrider.actors.train.loop.data_parallel import own_part
from outrider.actors.train.loop.schedule import schedule_of
from outrider.actors.train.training_errors import TrainError

DRAFTING, REUSE = "unrolled", "reuse"
SHARES: Mapping[str, float] = {
    READING: 1.5,
    WRITING: 3.5,
    DRAFTING: 12.0,
    REUSE: 1.0,
    MEASURING: 2.0,
}
"""What each part gets of the time."""


class EagleTraining(TurnTraining[EagleTrainingOptions]):
    """One call of the trainer."""

    net: EagleNet

    def __init__(self, options: EagleTrainingOptions, target: FrozenTarget) -> None:
        """Raises TrainError where the shape does not fit the target."""
        self.config = _shape(options, target)
        layers = (*self.config.taps, "norm")
        super().__init__(options, target, folder="eagle3", layers=layers, shares=SHARES)

    def learn(self, caches: Sequence[FeatureCache]) -> None:
        """See `TurnTraining`."""
        options, fitting = self.options, self.fitting
        net = self.net = self._fresh(caches)
        shape = json.dumps(settings_of(net.config), sort_keys=True)
        size = f"rows_per_step={options.rows_per_step} places_per_row={options.places_per_row} of {[one.num_rows for one in caches]}"
        same = f"{shape} {size} decay={options.decay:g}"
        loss = partial(self._loss, caches)
        fitting.fit(DRAFTING, net, loss, schedule_of(options, options.steps), caches, same)
        if options.reuse_rank and options.reuse_steps:
            net.requires_grad_(False)
            for part in (net.reuse_in, net.reuse_out):
                assert part is not None, "the rank is not 0"
                part.requires_grad_(True)
            schedule = schedule_of(options, options.reuse_steps)
            loss = partial(self._reuse_loss, caches)
            # Progress has the whole net: of a longer run it is another.
            fitting.fit(REUSE, net, loss, schedule, caches, same, f"{REUSE} after {options.steps}")
        net.requires_grad_(False).eval()

    def measure(self, held: Mapping[str, HeldOut]) -> Reports:
        """See `TurnTraining`."""
        options = self.options
        depth = min(2 * self.config.num_steps, options.row_length - options.prompt_length - 2)
        return {
            "training": {
                name: eagle_acceptance(self.net, one, self.target.output, depth)
                for name, one in held.items()
            }
        }

    def write(self, reports: Reports) -> None:
        """See `TurnTraining`."""
        card = _card(self.config, self.options, self.table(reports))
        save_folder(self.folder, self.net, self.config.as_json(), card)

    def _fresh(self, caches: Sequence[FeatureCache]) -> EagleNet:
        options, target, config = self.options, self.target, self.config
        torch.manual_seed(options.seed)
        width = config.width
        net = EagleNet(
            config,
            embedding_VD=target.embedding_VD.cpu(),
            head_VD=target.head_VD.cpu(),
            drafted_ids=_frequent(caches, config) if config.num_drafted else None,
        )
        with torch.no_grad():
            # States of layers are of very different sizes, and the head is used to states of the last one's.
            _, features = caches[0].rows(np.arange(min(8, caches[0].num_rows)))
            sizes = features.square().mean((0, 1)).sqrt()
            per_tap = sizes[:-width].view(len(config.taps), width).square().mean(-1).sqrt()
            assert net.fc is not None, "an EAGLE-3 net has it"
            nn.init.normal_(net.fc.weight, std=(len(config.taps) * width) ** -0.5)
            if not options.norm_taps:
                net.fc.weight.div_(per_tap.repeat_interleave(width))
            net.norm.weight.copy_(sizes[-width:])
            if net.lm_head is not None:
                ids = net.drafted_ids
                head = target.head_VD.cpu()
                net.lm_head.weight.copy_(head if ids is None else head[ids])
        return net.to(target.device)

    def _batch(
        self, caches: Sequence[FeatureCache], step: int, num_steps: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Generator]:
        """Tokens, states of the layers, states after the final norm, and places of a step."""
        options = self.options
        cache, tokens, features = self.turn(caches, step)
        generator = torch.Generator().manual_seed(options.seed * 1_000_003 + step)
        first, end = max(cache.key.first - 1, 0), num_places(options.row_length, num_steps)
        shape = (options.rows_per_step, options.places_per_row)
        places = own_part(torch.randint(first, end, shape, generator=generator))
        places = places.to(self.target.device)
        return tokens, features[:, :, :-1], features[:, :, -1], places, generator

    def _loss(self, caches: Sequence[FeatureCache], step: int) -> torch.Tensor:
        options = self.options
        *batch, _ = self._batch(caches, step, options.num_steps)
        return eagle_loss(
            self.net,
            *batch,
            num_steps=options.num_steps,
            decay=options.decay,
            output=self.target.output,
        )

    def _reuse_loss(self, caches: Sequence[FeatureCache], step: int) -> torch.Tensor:
        *batch, generator = self._batch(caches, step, 2)
        return reuse_loss(self.net, *batch, output=self.target.output, generator=generator)


def _shape(options: EagleTrainingOptions, target: FrozenTarget) -> EagleConfig:
    vocab_size, width = target.head_VD.shape
    try:
        return EagleConfig(
            vocab_size=vocab_size,
            width=width,
            taps=taps_of(options.taps, target.num_blocks),
            target_width=width,
            num_heads=options.num_heads,
            num_key_heads=options.num_key_heads,
            head_dim=width // options.num_heads,
            inner=options.inner,
            num_drafted=options.num_drafted,
            num_steps=options.num_steps,
            window=options.window,
            norm_each_tap=options.norm_taps,
            owns_head=options.own_head,
            reuse_rank=options.reuse_rank,
            **names_of(target),
        )
    except ValueError as error:
        raise TrainError(str(error)) from error


def _frequent(caches: Sequence[FeatureCache], config: EagleConfig) -> torch.Tensor:
    """The ids that stand in the rows most often, ascending; of equal ones the lower."""
    counts_V = torch.zeros(config.vocab_size, dtype=torch.int64)
    for cache in caches:
        tokens_BL, _ = cache.rows(np.arange(cache.num_rows))
        written = tokens_BL[:, cache.key.first :].flatten()
        counts_V += torch.bincount(written, minlength=config.vocab_size)
    order_V = torch.argsort(counts_V, descending=True, stable=True)
    return order_V[: config.num_drafted].sort().values


def _card(config: EagleConfig, options: EagleTrainingOptions, measured: str) -> str:
    some = f"{config.num_drafted} tokens" if config.num_drafted else "all tokens"
    head = (
        "a head of its own; the embedding is the target's, which is not stored"
        if config.owns_head
        else "embedding and head are the target's, which are not stored"
    )
    reuse = (
        f" A map of rank {config.reuse_rank} puts another token into a kept state (`hidden_reuse`), trained behind the rest."
        if config.reuse_rank
        else ""
    )
    return DrafterCard(
        title="EAGLE-3 drafter",
        target=config.target,
        what=f"""Drafts for one target: a decoder layer over the target's hidden states that goes on on its own (Li et al. 2025, arXiv 2503.01840).
{fits(config.target_fingerprint)}""",
        shape=f"""One layer of width {config.width} with {config.num_heads} heads ({config.num_key_heads} of keys) and a gated product of {config.inner}, over the states of layers {", ".join(map(str, config.taps))} (embedding 0),
window {config.window}; {some} may be proposed; {head}.""",
        training=f"""`{command_of("eagle3", options)}`: steps of {options.rows_per_step} rows of at most {options.text_rows} + {options.own_rows}, {config.num_steps} tokens ahead each, by turns of text and of
what the target wrote at temperatures 0.3 to 1.{reuse}""",
        read=f""" by token behind the newest one, each given that the tokens before were right; `tokens a pass` counts the
target's own. Tokens beyond the {config.num_steps}th are further than it was trained.""",
        measured=measured,
    ).render()
