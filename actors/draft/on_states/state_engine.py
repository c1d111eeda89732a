"""Engines whose rows follow from the newest hidden state that the target has told, and then from each other.

With that state at position f, the row at position p is *stage* p - f - 1, be its token committed or only drafted: stage 0 reads the hidden state,
a later one the state of its parent. Rows before stage 0 are not computed, nor are those deeper than the net goes or without any hidden state:
their logits are zero, which is to say nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.actors.draft.on_states.placed_engine import PlacedEngine, wanted_rows
from outrider.actors.engine.kv.added_rows import packed
from outrider.actors.engine.protocol import WANTS, Int64s, Logits, ModelSpec, Moves, Rows
from outrider.actors.engine.tables.moved_columns import move_columns

NEVER = -(1 << 40)
"""Position of the newest hidden state where there is none: every row is deeper than any net goes."""

_ALL = WANTS.index("all")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NewRows:
    """Rows of one pass, those of a slot one after another, parents first."""

    slots_R: Int64s
    columns_R: Int64s
    """Where each one's state goes."""
    above_R: Int64s
    """Column of its parent."""
    is_below_new_R: NDArray[np.bool_]
    """The parent is of this pass, too."""
    positions_R: Int64s
    stages_R: Int64s
    tokens_R: Int64s

    def at(self, rows: Int64s) -> NewRows:
        """Some of them."""
        return NewRows(**{name: getattr(self, name)[rows] for name in NewRows.__slots__})


class StateEngine(PlacedEngine, ABC):
    """States of the rows of many slots. Used by one thread."""

    def __init__(
        self,
        spec: ModelSpec,
        *,
        num_slots: int,
        max_scratch: int,
        deepest: int,
        feature_width: int,
        state_width: int,
    ) -> None:
        """
        Args:
            spec: What is known of the model.
            num_slots: Sessions at a time.
            max_scratch: Rows of one behind the committed ones, at most.
            deepest: Stages that may follow one another.
            feature_width: Numbers of what stage 0 reads.
            state_width: Numbers of a row's state.

        Raises:
            ValueError: A number is less than one.
        """
        super().__init__(spec, num_slots=num_slots, max_scratch=max_scratch)
        self.deepest = deepest
        """Stages that may follow one another."""
        self.num_computed = 0
        """Rows of the last pass that were computed."""
        device = spec.device
        self._states_SCM = torch.zeros(num_slots, 1 + max_scratch, state_width, device=device)
        self._features_SD = torch.zeros(num_slots, feature_width, device=device)
        self._newest_S = np.full(num_slots, NEVER, np.int64)

    def tell(self, slot: int, position: int, feature_D: torch.Tensor) -> bool:
        """Takes a hidden state of the target, if it is newer than what is there.

        The rows of the slot from `position + 1` on must be run again; the caller truncates.

        Args:
            slot: A taken one.
            position: Of the token that the target had read last.
            feature_D: The state, as stage 0 reads it.

        Returns:
            False: it is not newer.
        """
        if position <= self._newest_S[slot]:
            return False
        self._newest_S[slot] = position
        self._features_SD[slot] = feature_D.to(self._spec.device)
        return True

    def newest(self, slots_E: Int64s) -> Int64s:
        """Position of the newest hidden state of each slot, far below zero where there is none."""
        return self._newest_S[slots_E]

    def forget(self, slot: int, length: int) -> None:
        """Forgets a hidden state that saw more than the first `length` tokens, which are other ones now."""
        if self._newest_S[slot] >= length:
            self._newest_S[slot] = NEVER

    def acquire(self, slot: int | None = None, *, keep: int = 0) -> int:
        """See `Engine`; rows that were kept are rows of nothing until the target tells of them again."""
        slot = super().acquire(slot, keep=keep)
        self._newest_S[slot] = NEVER
        return slot

    def release(self, slot: int, *, keep: int = 0) -> None:
        """See `Engine`."""
        super().release(slot, keep=keep)
        self._newest_S[slot] = NEVER

    def truncate(self, slot: int, length: int) -> None:
        """See `Engine`. The state of the last row that stays is lost, so rows go on from a hidden state of `length - 1` or later only."""
        is_cut = length < self._slots.cached(slot)
        super().truncate(slot, length)
        if is_cut and self._newest_S[slot] < length - 1:
            self._newest_S[slot] = NEVER

    def rebase(self, moves: Moves) -> None:
        """See `Engine`."""
        super().rebase(moves)
        move_columns(self._states_SCM, moves)

    @torch.inference_mode()
    def forward(self, batch: Sequence[Rows]) -> Logits:
        """See `Engine`."""
        arrays = packed(batch)
        slots_R, columns_R, is_below_new_R, positions_R = self._place(arrays)
        rows = NewRows(
            slots_R=slots_R,
            columns_R=columns_R,
            above_R=arrays.parents_R + 1,
            is_below_new_R=is_below_new_R,
            positions_R=positions_R,
            stages_R=positions_R - self._newest_S[slots_R] - 1,
            tokens_R=arrays.tokens_R,
        )
        live_R = (rows.stages_R >= 0) & (rows.stages_R < self.deepest)
        self.num_computed = int(np.count_nonzero(live_R))
        self._compute(rows, live_R)
        if arrays.wanted_E.min() < _ALL:
            wanted = wanted_rows(arrays)
            rows, live_R = rows.at(wanted), live_R[wanted]
        return Logits(values_RV=self._logits(rows, live_R), offsets=arrays.offsets)

    @abstractmethod
    def _compute(self, rows: NewRows, live_R: NDArray[np.bool_]) -> None:
        """Writes the states of those rows that are live; of the others nothing is known."""

    @abstractmethod
    def _logits(self, rows: NewRows, live_R: NDArray[np.bool_]) -> torch.Tensor:
        """Of some rows of the last pass, [R, V] float32; zeros where not live."""
