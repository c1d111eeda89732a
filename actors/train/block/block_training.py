"""The training of a block drafter: on texts and on what the target itself writes, by turns, one stage.

Source: DFlash, arXiv 2602.06036; DSpark, DeepSeek-AI and Peking University 2026. docs/dspark.md tells what differs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial

import numpy as np
import torch
from rich.console import Console

from outrider.actors.draft.block.block_config import BlockConfig
from outrider.actors.draft.block.block_file import save_block_net
from outrider.actors.draft.block.block_net import BlockNet
from outrider.actors.draft.on_states.target_tables import digest_of
from outrider.actors.exchange.feedback_request import Layer
from outrider.actors.train.block.block_card import block_card
from outrider.actors.train.block.block_evaluation import block_acceptance
from outrider.actors.train.block.block_objective import block_loss, random_blocks
from outrider.actors.train.block.block_options import BlockTrainingOptions
from outrider.actors.train.features.feature_cache import FeatureCache, shuffled
from outrider.actors.train.features.frozen_target import FrozenTarget
from outrider.actors.train.features.training_rows import HeldOut, TrainingRows
from outrider.actors.train.heads.head_evaluation import DepthReport, table
from outrider.actors.train.loop.budget import Budget
from outrider.actors.train.loop.pacer import Pacer
from outrider.actors.train.loop.progress_bar import progress_bar
from outrider.actors.train.loop.schedule import Schedule
from outrider.actors.train.loop.training_loop import Saving, StepReport, train
from outrider.actors.train.loop.training_report import expected
from outrider.actors.train.training_errors import TrainError

READING, WRITING, BLOCKS, MEASURING = "target reads", "target writes", "blocks", "measured"
SHARES: Mapping[str, float] = {READING: 1.5, WRITING: 3.5, BLOCKS: 13.0, MEASURING: 2.0}
"""What each part gets of the time."""

NEAR_ZERO = 1e-4
"""Temperature of greedy writing."""

LATE = (0, 1, 2, 4)
"""Tokens whose states are late, in what is measured."""

Reports = dict[str, dict[str, DepthReport]]


def taps_of(count: int, num_blocks: int) -> tuple[Layer, ...]:
    """So many layers, evenly from the output of the second block to that of the last but two."""
    places = np.linspace(min(2, num_blocks - 1), max(num_blocks - 2, 1), count)
    return tuple(dict.fromkeys(int(place) for place in places.round()))


class BlockTraining:
    """One call of the trainer."""

    def __init__(
        self, options: BlockTrainingOptions, target: FrozenTarget, num_blocks: int
    ) -> None:
        """Makes a fresh net.

        Args:
            options: What was asked for.
            target: What is foreseen.
            num_blocks: Blocks of the target.

        Raises:
            TrainError: The shape does not fit the target.
        """
        self._options, self._target = options, target
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
        try:
            self.config = BlockConfig(
                vocab_size=vocab_size,
                width=width,
                taps=taps_of(options.taps, num_blocks),
                num_layers=options.num_layers,
                num_heads=options.num_heads,
                num_key_heads=options.num_heads,
                head_dim=width // options.num_heads,
                inner=options.inner,
                block=options.block,
                window=options.window,
                rank=options.rank,
                has_confidence=options.rank > 0,
                most_revealed=options.most_revealed,
                target_fingerprint=target.fingerprint,
                tables_digest=digest_of(target.embedding_VD, target.head_VD),
                tokenizer_fingerprint=target.tokenizer_fingerprint,
                eos_token_ids=target.eos_token_ids,
                target=options.target,
            )
        except ValueError as error:
            raise TrainError(str(error)) from error
        self.net = BlockNet(
            self.config, embedding_VD=target.embedding_VD, head_VD=target.head_VD
        ).to(target.device)
        self._rows = TrainingRows(
            target=target,
            data=options.data,
            folder=options.out / "progress",
            layers=(*self.config.taps, "norm"),
            row_length=options.row_length,
            prompt_length=options.prompt_length,
            num_text=options.text_rows,
            num_own=options.own_rows,
        )

    def run(self) -> Reports:
        """All of it; the net is written when it was measured."""
        caches = []
        for part, cache in ((READING, self._rows.text()), (WRITING, self._rows.own())):
            self._budget.begin(part)
            self._fill(cache, part, is_own=part == WRITING)
            caches.append(cache)
        self._budget.begin(BLOCKS)
        self._fit(caches)
        self._budget.begin(MEASURING)
        reports = self._measure(self._rows.held_out(NEAR_ZERO))
        self._write(reports)
        self._budget.save()
        return reports

    def _fill(self, cache: FeatureCache, part: str, *, is_own: bool) -> None:
        """As many rows as are wanted, or as the time allows; a chunk at the least."""
        clock = self._budget.clock
        while not cache.is_full:
            began = clock()
            self._rows.add_chunk(cache, is_own=is_own)
            self._budget.save()
            if self._budget.left() < clock() - began:
                break
        self._console.print(f"{part}: {cache.num_rows} of {cache.room} rows")

    def _fit(self, caches: list[FeatureCache]) -> None:
        options, budget = self._options, self._budget
        steps = options.steps
        schedule = Schedule(
            steps=steps,
            tokens_per_step=options.rows_per_step * options.row_length,
            row_length=options.row_length,
            long_row_length=options.row_length,
            warmup=min(30, steps // 10),
            decay_share=0.5,
            matrix_rate=options.matrix_rate,
            other_rate=options.other_rate,
            seed=options.seed,
        )
        rows = [cache.num_rows for cache in caches]
        rates = f"{options.matrix_rate:g} {options.other_rate:g}"
        size = f"{options.rows_per_step}x{options.blocks_per_row} of {rows}"
        shape = json.dumps(self.config.as_json(), sort_keys=True)
        saving = Saving(
            path=options.out / "progress" / "blocks.pt",
            fingerprint=f"{shape} {self._objective} {rates} {size} seed={options.seed}",
            resume=options.resume,
            saved=budget.save,
        )
        pacer = Pacer(
            schedule,
            budget.left,
            budget.minutes,
            lambda decision, seconds: self._console.print(expected(BLOCKS, decision, seconds)),
        )
        with torch.no_grad():
            # The head is used to states of this size.
            _, features = caches[0].rows(np.arange(min(8, rows[0])))
            sizes = features[..., -self.config.width :].square().mean((0, 1)).sqrt()
            self.net.norm.weight.copy_(sizes)
        with progress_bar(self._console) as bar:
            task = bar.add_task(BLOCKS, total=steps, note="")

            def show(report: StepReport) -> None:
                note = f"loss {report.loss:.3f}"
                bar.update(task, completed=report.step, total=report.steps, note=note)

            train(self.net, pacer, partial(self._loss, caches), saving, show, budget.clock)

    @property
    def _objective(self) -> str:
        chosen = self._options.objective
        if chosen != "auto":
            return chosen
        return "overlap" if self.config.rank else "tokens"

    def _loss(self, caches: list[FeatureCache], step: int) -> torch.Tensor:
        """Texts and the target's writing take turns."""
        options, config, device = self._options, self.config, self._target.device
        cache, turn = caches[step % 2], step // 2
        tokens, states = cache.rows(
            shuffled(turn, options.rows_per_step, cache.num_rows, options.seed)
        )
        blocks = random_blocks(
            len(tokens),
            options.blocks_per_row,
            first=cache.key.first,
            length=options.row_length,
            block=config.block,
            most_revealed=config.most_revealed,
            generator=torch.Generator().manual_seed(options.seed * 1_000_003 + step),
            device=device,
        )
        features = states.view(*tokens.shape, -1, config.width).to(device)
        return block_loss(
            self.net,
            tokens.to(device),
            features[:, :, :-1],
            features[:, :, -1],
            blocks,
            "overlap" if self._objective == "overlap" else "tokens",
        )

    def _measure(self, held: Mapping[str, HeldOut]) -> Reports:
        reports: Reports = {}
        for late in LATE:
            for told in (False, True) if late <= self.config.most_revealed else (False,):
                if late >= self.config.block or (told and not late):
                    continue
                how = (
                    "all states" if not late else f"{late} late, {'told' if told else 're-rooted'}"
                )
                reports[how] = {
                    name: block_acceptance(
                        self.net, one, self._target.head_VD, lag=late, reveals=told
                    )
                    for name, one in held.items()
                }
        return reports

    def _write(self, reports: Reports) -> None:
        out = self._options.out
        save_block_net(
            out / "dspark", self.net, block_card(self.config, self._options, table(reports))
        )
        content = {
            how: {name: asdict(one) for name, one in by.items()} for how, by in reports.items()
        }
        (out / "report.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
