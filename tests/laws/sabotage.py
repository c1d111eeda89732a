"""Mistakes made on purpose inside a running server, each of which must show in the texts.

They reach into the code that serves, because that is where a mistake would be; nothing else in the repository may.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from outrider.actors.draft.frozen import frozen_drafter
from outrider.actors.draft.frozen.frozen_levels import grow_level
from outrider.actors.draft.trees.frozen_rounds import FrozenRounds
from outrider.actors.frozen.frozen_candidates import FrozenCandidates
from outrider.actors.frozen.sparse_rows import SparseRow, freeze
from outrider.actors.speculation.noise.uniforms import uniforms
from outrider.actors.speculation.options import Sampling
from outrider.actors.speculation.sampling.random_acts import Float64s
from outrider.actors.speculation.sampling.transforms import SamplingTransform
from outrider.actors.speculation.verifiers import mcsd


def apply(name: str) -> None:
    """Breaks this process; an empty name leaves it whole."""
    if name:
        SABOTAGES[name]()


def rows_of_another_temperature() -> None:
    """The drafter sends rows at temperature 0.8 with tokens that it drew at 1: seen in some ten thousand rounds."""
    _send_rows_at(0.8)


def rows_of_half_the_temperature() -> None:
    """The same at 0.5: seen in a thousand or two."""
    _send_rows_at(0.5)


def _send_rows_at(temperature: float) -> None:
    take_unsent = FrozenRounds.take_unsent

    def cooled(row: SparseRow) -> SparseRow:
        probs_V = row.dense(row.vocab_size)
        return freeze(probs_V ** (1 / temperature))

    def send(self: FrozenRounds, handle: int) -> list[FrozenCandidates]:
        return [
            replace(one, frozen=replace(one.frozen, rows=tuple(map(cooled, one.frozen.rows))))
            for one in take_unsent(self, handle)
        ]

    FrozenRounds.take_unsent = send  # type: ignore[method-assign]


def target_for_residual() -> None:
    """After a rejection the target draws from its whole row, not from what is left of it."""

    def whole(target_V: Float64s, draft_V: Float64s) -> Float64s:
        return target_V

    mcsd.residual = whole  # type: ignore[attr-defined]


def shared_uniforms() -> None:
    """The drafter draws with the very uniforms by which the target will test the tree."""
    seeds: dict[SamplingTransform, int] = {}

    class Known(SamplingTransform):
        """Knows the session's seed."""

        def __init__(self, sampling: Sampling, **others: Any) -> None:
            super().__init__(sampling, **others)
            seeds[self] = sampling.seed

    class Shared:
        """Gives out the target's uniforms of one base in order."""

        def __init__(self, seed: int, length: int) -> None:
            self.base = (seed, length)
            self.used = 0

        def random(self, count: int) -> Float64s:
            self.used += count
            return uniforms(*self.base, self.used)[self.used - count :]

    def leak(state: Any, *args: Any, **others: Any) -> bool:
        base = (seeds[state.transform], state.rounds.rounds[-1].length)
        if getattr(state.generator, "base", None) != base:
            state.generator = Shared(*base)
        return grow_level(state, *args, **others)

    frozen_drafter.SamplingTransform = Known  # type: ignore[attr-defined]
    frozen_drafter.grow_level = leak  # type: ignore[attr-defined]


SABOTAGES: dict[str, Callable[[], None]] = {
    sabotage.__name__: sabotage
    for sabotage in (
        rows_of_another_temperature,
        rows_of_half_the_temperature,
        target_for_residual,
        shared_uniforms,
    )
}
