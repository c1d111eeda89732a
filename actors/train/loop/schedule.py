"""How long and how hard a model is trained."""

from __future__ import annotations

from dataclasses import dataclass, replace

from outrider.actors.train.trainer_options import TargetRowsOptions


@dataclass(frozen=True)
class Schedule:
    """How long and how hard to train.

    `row_length` tokens a row; every `long_every`-th step uses rows of `long_row_length` instead.
    The rate rises over `warmup` steps, stays, and falls to zero over the last `decay_share`
    (warmup-stable-decay: Hu et al. 2024, arXiv 2404.06395), so that a run may be lengthened or cut
    short before the decay without having wasted anything.
    """

    steps: int
    tokens_per_step: int = 4096
    row_length: int = 256
    long_row_length: int = 1024
    long_every: int = 8
    warmup: int = 60
    decay_share: float = 0.35
    matrix_rate: float = 0.02
    other_rate: float = 3e-3
    seed: int = 0

    def scaled(self, factor: float) -> Schedule:
        """The same schedule with `factor` times the steps, at least one."""
        return self.lasting(max(1, round(self.steps * factor)))

    def lasting(self, steps: int) -> Schedule:
        """The same schedule over another number of steps."""
        return replace(self, steps=steps, warmup=min(self.warmup, steps // 4))

    def rate(self, step: int) -> float:
        """Multiplier of the learning rates at a step, in (0, 1]."""
        if step < self.warmup:
            return (step + 1) / (self.warmup + 1)
        return min(1.0, (self.steps - step) / max(1.0, self.decay_share * self.steps))

    def length_at(self, step: int) -> int:
        """Row length of a step."""
        return self.long_row_length if step % self.long_every == 1 else self.row_length


def schedule_of(options: TargetRowsOptions, steps: int, *, longest_warmup: int = 30) -> Schedule:
    """The schedule of a trainer of draft nets: rows of one length, and rates that fall over the second half."""
    return Schedule(
        steps=steps,
        tokens_per_step=options.rows_per_step * options.row_length,
        row_length=options.row_length,
        long_row_length=options.row_length,
        warmup=min(longest_warmup, steps // 10),
        decay_share=0.5,
        matrix_rate=options.matrix_rate,
        other_rate=options.other_rate,
        seed=options.seed,
    )
