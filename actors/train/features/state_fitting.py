"""What trainers on a target's states do alike: caches are filled and nets fitted, within a bound on the time, and go on where they were.

Of several workers the first one fills caches, which the others then read, and all fit; the first one speaks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from rich.console import Console
from torch import nn

from outrider.actors.draft.on_states.net_shape import NetShape
from outrider.actors.train.features.feature_cache import FeatureCache
from outrider.actors.train.features.training_rows import TrainingRows
from outrider.actors.train.loop.budget import Budget, StepDecision
from outrider.actors.train.loop.data_parallel import from_first, is_first
from outrider.actors.train.loop.pacer import Pacer
from outrider.actors.train.loop.result_folder import forget_progress, hold_progress
from outrider.actors.train.loop.schedule import Schedule
from outrider.actors.train.loop.training_loop import Saving, StepReport, found_progress, train
from outrider.actors.train.loop.training_report import expected, progress_bar
from outrider.actors.train.trainer_options import TargetTrainerOptions


def settings_of(shape: NetShape) -> dict[str, Any]:
    """What the progress of a net must agree with, of its shape: not where the target lies, which may be moved."""
    return {name: value for name, value in shape.as_json().items() if name != "target"}


class StateFitting:
    """Of one call of a trainer."""

    def __init__(self, options: TargetTrainerOptions, shares: Mapping[str, float]) -> None:
        """
        Args:
            options: Of the trainer.
            shares: What each part gets of the time.

        Raises:
            ResumeError: Another process is at work in the same folder.
        """
        self._options = options
        if is_first():
            hold_progress(options.out)
            if not options.resume:
                forget_progress(options.out, [f"{_file(part)}*" for part in shares])
        self.console = Console(stderr=True, quiet=not is_first())
        self.budget = Budget(
            options.out / "progress" / "budget.json",
            tuple(shares),
            options.minutes,
            resume=options.resume,
            shares=shares,
        )

    def fill(self, part: str, rows: TrainingRows, cache: FeatureCache, *, is_own: bool) -> None:
        """As many rows as are wanted, or as the time allows; a chunk at the least. How many is decided once: what is learnt depends on it."""
        budget = self.budget
        budget.begin(part)
        clock, minutes = budget.clock, budget.minutes
        decided = budget.decided(part)
        is_decided = decided is not None and decided.holds(cache.room, minutes, cache.num_rows)
        enough = decided.count if decided is not None and is_decided else cache.room
        with progress_bar(self.console) as bar:
            task = bar.add_task(part, total=cache.room, completed=cache.num_rows, note="rows")
            is_done = cache.num_rows >= enough
            while not from_first(is_done):
                if is_first():
                    began = clock()
                    rows.add_chunk(cache, is_own=is_own)
                    budget.save()
                    bar.update(task, completed=cache.num_rows)
                    is_done = cache.num_rows >= enough or (
                        not is_decided and budget.left() < clock() - began
                    )
        if is_first():
            budget.decide(part, StepDecision(count=cache.num_rows, of=cache.room, minutes=minutes))
        if not is_first():
            cache.reopen()
        self.console.print(f"{part}: {cache.num_rows} of {cache.room} rows")

    def fit(
        self,
        part: str,
        net: nn.Module,
        loss: Callable[[int], torch.Tensor],
        schedule: Schedule,
        caches: Sequence[FeatureCache],
        fingerprint: str,
        file: str = "",
    ) -> int:
        """Trains a net in place.

        Args:
            part: Of the time.
            net: What is trained.
            loss: Of a step.
            schedule: How long and how hard.
            caches: What the loss reads: other rows are another run.
            fingerprint: What else must be the same for a run to be gone on with; not the number of steps, as a run may be lengthened.
            file: Name of the file of its progress; empty: the part's.

        Returns:
            The steps that it has had.
        """
        self.budget.begin(part)
        budget = self.budget
        saving = self._saving(file or part, schedule, caches, fingerprint)
        pacer = Pacer(
            schedule,
            budget.left,
            budget.minutes if is_first() else 0.0,
            lambda decision, seconds: self.console.print(expected(part, decision, seconds)),
        )
        with progress_bar(self.console) as bar:
            task = bar.add_task(part, total=schedule.steps, note="")

            def show(report: StepReport) -> None:
                note = f"loss {report.loss:.3f}"
                bar.update(task, completed=report.step, total=report.steps, note=note)
                if not self.console.is_terminal and report.step % 50 == 0:
                    self.console.print(f"{part} {report.step}/{report.steps} {note}")

            train(net, pacer, loss, saving, show, budget.clock)
        return pacer.schedule.steps

    def check(
        self, part: str, schedule: Schedule, caches: Sequence[FeatureCache], fingerprint: str
    ) -> None:
        """Refuses what `fit` would refuse, for a part that comes later: before the earlier ones are gone on with. Arguments as of `fit`.

        Raises:
            ResumeError: There is progress of another run, or of a longer one.
        """
        found_progress(self._saving(part, schedule, caches, fingerprint), schedule.steps)

    def _saving(
        self, file: str, schedule: Schedule, caches: Sequence[FeatureCache], fingerprint: str
    ) -> Saving:
        rates = f"matrix_rate={schedule.matrix_rate:g} other_rate={schedule.other_rate:g} seed={schedule.seed}"
        keys = [cache.key for cache in caches]
        rows = "; ".join(f"{key.text}, tokens {key.first} to {key.row_length}" for key in keys)
        return Saving(
            path=self._options.out / "progress" / f"{_file(file)}.pt",
            fingerprint=f"{fingerprint} {rates} on {rows}",
            resume=self._options.resume,
            saved=self.budget.save,
        )


def _file(part: str) -> str:
    """Name of its progress, without the ending."""
    return part.replace(" ", "-")
