"""A speculator behind the engine protocol: rows of a token each, whose state follows from that of the row before.

What a language model keeps of a text as keys and values is here one vector: the newest hidden state that the target has told. With it at
position f, the row at position p is stage p - f - 1 of the net, be its token committed or only drafted: stage 0 reads the hidden state,
a later one the state of its parent. Rows before stage 0 are not computed, nor are those deeper than the net goes or without any hidden state:
their logits are zero, which is to say nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.actors.draft.heads.speculator_net import SpeculatorNet
from outrider.actors.engine.protocol import WANTS, Int64s, Logits, ModelSpec, Rows
from outrider.actors.engine.tables.token_slot_engine import TokenSlotEngine
from outrider.actors.engine.tables.token_slots import packed

NEVER = -(1 << 40)
"""Position of the newest hidden state where there is none: every row is deeper than any net goes."""


NO_TABLE = -1
"""Stands for the head of a row that has none, as nothing is known of it."""

_ALL = WANTS.index("all")


class HeadEngine(TokenSlotEngine):
    """Runs a net for many sessions. Used by one thread."""

    def __init__(
        self, net: SpeculatorNet, spec: ModelSpec, *, num_slots: int, max_scratch: int
    ) -> None:
        """
        Args:
            net: Not trained any more, on the device of `spec`.
            spec: What is known about it; its vocabulary is the net's.
            num_slots: Sessions at a time.
            max_scratch: Rows of one behind the committed ones, at most.

        Raises:
            ValueError: A number is less than one.
        """
        super().__init__(spec, num_slots=num_slots, max_scratch=max_scratch)
        self.net = net
        self.deepest = net.config.deepest
        """Stages that may follow one another."""
        self.num_computed = 0
        """Rows of the last pass that were computed."""
        device, columns = spec.device, 1 + max_scratch
        # Column 0 is the last cached row, so that parent -1 finds it too.
        self._states_SCM = torch.zeros(num_slots, columns, net.config.inner, device=device)
        self._positions_SC = np.full((num_slots, columns), -1, np.int64)
        self._features_SD = torch.zeros(num_slots, net.config.width, device=device)
        self._newest_S = np.full(num_slots, NEVER, np.int64)

    def tell(self, slot: int, position: int, feature_D: NDArray[np.float32]) -> bool:
        """Takes a hidden state of the target, if it is newer than what is there.

        The rows of the slot from `position + 1` on must be run again; the caller truncates.

        Args:
            slot: A taken one.
            position: Of the token that the target had read last.
            feature_D: The state.

        Returns:
            False: it is not newer.
        """
        if position <= self._newest_S[slot]:
            return False
        self._newest_S[slot] = position
        self._features_SD[slot] = torch.from_numpy(feature_D).to(self._spec.device)
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
        slot = self._slots.acquire(slot, keep=keep)
        self._positions_SC[slot, 0] = keep - 1
        self._newest_S[slot] = NEVER
        return slot

    def release(self, slot: int, *, keep: int = 0) -> None:
        """See `Engine`."""
        self._slots.release(slot, keep=keep)
        self._newest_S[slot] = NEVER

    def copy_prefix(self, source: int, destination: int, length: int) -> None:
        """See `Engine`; as `acquire` with kept rows."""
        self._slots.copy_prefix(source, destination, length)
        self._positions_SC[destination, 0] = length - 1

    def truncate(self, slot: int, length: int) -> None:
        """See `Engine`. The state of the last row that stays is lost, so rows go on from a hidden state of `length - 1` or later only."""
        is_cut = length < self._slots.cached(slot)
        self._slots.truncate(slot, length)
        self._positions_SC[slot, 0] = length - 1
        if is_cut and self._newest_S[slot] < length - 1:
            self._newest_S[slot] = NEVER

    def rebase(self, slot: int, path: Sequence[int], keep: Sequence[int] = ()) -> None:
        """See `Engine`."""
        self._slots.rebase(slot, path, keep)
        states_CM, positions_C = self._states_SCM[slot], self._positions_SC[slot]
        if path:
            states_CM[0] = states_CM[path[-1] + 1]
            positions_C[0] += len(path)
        if keep:
            kept = [row + 1 for row in keep]
            states_CM[1 : 1 + len(kept)] = states_CM[kept]
            positions_C[1 : 1 + len(kept)] = positions_C[kept]

    @torch.inference_mode()
    def forward(self, batch: Sequence[Rows]) -> Logits:
        """See `Engine`."""
        arrays = packed(batch)
        firsts_B = np.array([self._slots.scratch(slot) for slot in arrays.slots_E.tolist()])
        slots_R = self._slots.add(arrays)
        counts_B = np.diff(arrays.starts_E)
        firsts_R = np.repeat(firsts_B, counts_B)
        columns_R = np.arange(arrays.num_rows) + np.repeat(
            firsts_B + 1 - arrays.starts_E[:-1], counts_B
        )
        above_R = arrays.parents_R + 1
        positions_R = self._place(slots_R, columns_R, above_R, is_new_R=above_R > firsts_R)
        stages_R = positions_R - self._newest_S[slots_R] - 1
        live_R = (stages_R >= 0) & (stages_R < self.deepest)
        self.num_computed = int(np.count_nonzero(live_R))
        # A row's parent is of the stage before, so it is computed by then.
        for stage in sorted(set(stages_R[live_R].tolist())):
            rows = (stages_R == stage).nonzero()[0]
            slots = torch.from_numpy(slots_R[rows])
            inputs = (
                self._features_SD[slots]
                if stage == 0
                else self._states_SCM[slots, torch.from_numpy(above_R[rows])]
            )
            tokens = torch.from_numpy(arrays.tokens_R[rows]).to(self._spec.device)
            states = self.net.stage(stage, inputs, tokens)
            self._states_SCM[slots, torch.from_numpy(columns_R[rows])] = states
        tables_R = np.where(live_R, np.minimum(stages_R, self.net.config.num_tables - 1), NO_TABLE)
        if arrays.wanted_E.min() < _ALL:
            wanted = _wanted(arrays.wanted_E, counts_B).nonzero()[0]
            slots_R, columns_R, tables_R = slots_R[wanted], columns_R[wanted], tables_R[wanted]
        return Logits(values_RV=self._logits(slots_R, columns_R, tables_R), offsets=arrays.offsets)

    def _logits(self, slots_W: Int64s, columns_W: Int64s, tables_W: Int64s) -> torch.Tensor:
        """Of some rows; zero for those of `NO_TABLE`. Each table of tokens is read once."""
        states_WM = self._states_SCM[torch.from_numpy(slots_W), torch.from_numpy(columns_W)]
        tables = set(tables_W.tolist())
        if len(tables) == 1 and NO_TABLE not in tables:
            return self.net.logits(tables.pop(), states_WM)
        shape = (len(tables_W), self._spec.vocab_size)
        values_WV = torch.zeros(shape, device=self._spec.device)
        for table in tables - {NO_TABLE}:
            rows = torch.from_numpy((tables_W == table).nonzero()[0])
            values_WV[rows] = self.net.logits(table, states_WM[rows])
        return values_WV

    def _place(
        self, slots_R: Int64s, columns_R: Int64s, above_R: Int64s, *, is_new_R: NDArray[np.bool_]
    ) -> Int64s:
        """Notes the positions of new rows, and returns them."""
        positions_SC = self._positions_SC
        positions_R: Int64s = positions_SC[slots_R, above_R] + 1
        positions_SC[slots_R, columns_R] = positions_R
        # Those below other new rows, one after another: rows of texts that are read.
        for row in is_new_R.nonzero()[0].tolist():
            position = positions_SC[slots_R[row], above_R[row]] + 1
            positions_R[row] = positions_SC[slots_R[row], columns_R[row]] = position
        return positions_R


def _wanted(wanted_E: Int64s, counts_E: Int64s) -> NDArray[np.bool_]:
    """Which rows of a batch have logits."""
    wanted_R = np.repeat(wanted_E == _ALL, counts_E)
    lasts_E = np.cumsum(counts_E) - 1
    wanted_R[lasts_E[wanted_E >= 1]] = True
    return wanted_R
