"""EAGLE-3 behind the engine protocol: a row of stage 0 (`state_engine`) reads the target's newest state, a later one its parent's.

Keys and values that a row sees, besides its own:

- *context*: those of committed positions whose states the target has told, written when they come, in any order (`context_cache`);
- *tail*: those of committed rows that were read with states of the net, until the target tells its own;
- those of its ancestors among the scratch rows.

With reuse a row behind stage 0 takes a kept state (`kept_states`) where there is one: its keys and values are made as ever, its state is not.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.actors.draft.block.context_cache import NOWHERE, ContextCache
from outrider.actors.draft.eagle.eagle_forward import EagleForward, lines_of
from outrider.actors.draft.eagle.eagle_net import EagleNet
from outrider.actors.draft.eagle.kept_states import Grade
from outrider.actors.draft.eagle.state_reuse import StateReuse
from outrider.actors.draft.on_states.state_engine import NEVER, NewRows, StateEngine
from outrider.actors.draft.trees.forest import Bools
from outrider.actors.engine.protocol import Int64s, ModelSpec, Moves
from outrider.actors.engine.tables.moved_columns import move_columns


class EagleEngine(StateEngine):
    """Runs a net for many sessions. Used by one thread."""

    def __init__(
        self,
        net: EagleNet,
        spec: ModelSpec,
        *,
        num_slots: int,
        max_scratch: int,
        inject_from: int | None = None,
    ) -> None:
        """
        Args:
            net: Not trained any more, on the device of `spec`.
            spec: What is known about it; its vocabulary is the target's.
            num_slots: Sessions at a time.
            max_scratch: Rows of one behind the committed ones, at most.
            inject_from: See `StateReuse`; None: everything is computed again.
        """
        config = net.config
        super().__init__(
            spec,
            num_slots=num_slots,
            max_scratch=max_scratch,
            deepest=config.deepest,
            feature_width=len(config.taps) * config.target_width,
            state_width=config.width,
        )
        self.net = net
        self._forward = EagleForward(net)
        self.context = ContextCache(config, self._told_rows, num_slots, spec.device)
        """Of positions whose states the target has told."""
        self.levels_W: Int64s | None = None
        """`Grade` of each row of logits of the last pass, with reuse."""
        self.num_reused = 0
        """Rows of the last pass that took a kept state."""
        self.origins_S = np.full(num_slots, NEVER, np.int64)
        """Position of the state of the target that the newest rows descend from, of each slot."""
        shape = (2, config.num_key_heads, config.head_dim)
        device = spec.device
        self._rows_SC = torch.zeros(num_slots, 1 + max_scratch, *shape, device=device)
        self._seen_SCC = np.zeros((num_slots, 1 + max_scratch, 1 + max_scratch), np.bool_)
        """Which columns a row sees; itself, unless it is in the context."""
        self._tail_ST = torch.zeros(num_slots, config.deepest, *shape, device=device)
        self._tail_positions_ST = np.full((num_slots, config.deepest), NOWHERE, np.int64)
        self._tokens_SC = np.zeros((num_slots, 1 + max_scratch), np.int64)
        self._grades_SC = np.zeros((num_slots, 1 + max_scratch), np.int64)
        self._reuse = None if inject_from is None else StateReuse(net, 2 * max_scratch, inject_from)

    def tell_all(
        self, slot: int, start: int, features_TLD: NDArray[np.float32], tokens_T: Int64s
    ) -> bool:
        """Takes states of the target at committed positions.

        Args:
            slot: A taken one.
            start: Position of the first.
            features_TLD: The states.
            tokens_T: The token behind each.

        Returns:
            Whether the newest is newer than what was there: then the rows behind it must be run again.
        """
        self.context.write(slot, start + 1, features_TLD, tokens_T)
        newest = start + len(features_TLD) - 1
        if self._reuse is not None:
            self._reuse.forget_before(slot, newest + 2)
        return self.tell(slot, newest, torch.from_numpy(features_TLD[-1]).flatten())

    def _told_rows(
        self, features_TLD: torch.Tensor, tokens_T: torch.Tensor, positions_T: torch.Tensor
    ) -> torch.Tensor:
        """Keys and values of the target's states and the tokens behind them."""
        net = self.net
        return net.keys_values(net.inputs(net.fused(features_TLD), tokens_T), positions_T)

    def forget(self, slot: int, length: int) -> None:
        """See `StateEngine`."""
        super().forget(slot, length)
        self.context.forget(slot, length)
        if self._reuse is not None:
            self._reuse.clear(slot)

    def acquire(self, slot: int | None = None, *, keep: int = 0) -> int:
        """See `Engine`."""
        slot = super().acquire(slot, keep=keep)
        self.forget(slot, 0)
        self.origins_S[slot] = NEVER
        self._tail_positions_ST[slot] = NOWHERE
        return slot

    def truncate(self, slot: int, length: int) -> None:
        """See `Engine`."""
        super().truncate(slot, length)
        tail_T = self._tail_positions_ST[slot]
        tail_T[tail_T >= length] = NOWHERE

    def rebase(self, moves: Moves) -> None:
        """See `Engine`."""
        entries_N, steps_N = (moves.paths_EP >= 0).nonzero()
        slots_N = moves.slots_E[entries_N]
        columns_N = moves.paths_EP[entries_N, steps_N] + 1
        # Rows that see themselves are those that are not in the context; of others there is nothing.
        is_tail_N = self._seen_SCC[slots_N, columns_N, columns_N]
        slots_T, columns_T = slots_N[is_tail_N], columns_N[is_tail_N]
        # The newest ones, if there are more than there is room for.
        positions_T = self._positions_SC[slots_T, columns_T]
        places_T = positions_T % self._tail_positions_ST.shape[1]
        for slot, column, place in zip(
            slots_T.tolist(), columns_T.tolist(), places_T.tolist(), strict=True
        ):
            self._tail_ST[slot, place] = self._rows_SC[slot, column]
        self._tail_positions_ST[slots_T, places_T] = positions_T
        super().rebase(moves)
        for columns in (self._rows_SC, self._tokens_SC, self._grades_SC):
            move_columns(columns, moves)
        for slot, _, keep in moves:
            if keep:
                kept, new = np.array(keep) + 1, slice(1, 1 + len(keep))
                self._seen_SCC[slot, new, new] = self._seen_SCC[slot][kept][:, kept]

    def _compute(self, rows: NewRows, live_R: Bools) -> None:
        slots_R, columns_R = rows.slots_R, rows.columns_R
        self._seen_SCC[slots_R, columns_R] = False
        self._tokens_SC[slots_R, columns_R] = rows.tokens_R
        self._grades_SC[slots_R, columns_R] = Grade.COMPUTED
        self.num_reused = 0
        left_R = live_R.copy()
        while left_R.any():
            # Those whose parents are there.
            waits_R = left_R & rows.is_below_new_R
            if waits_R.any():
                is_left = {*zip(slots_R[left_R].tolist(), columns_R[left_R].tolist(), strict=True)}
                parents = zip(slots_R.tolist(), rows.above_R.tolist(), strict=True)
                waits_R &= np.array([parent in is_left for parent in parents])
            now_R = left_R & ~waits_R
            self._run(rows.at(now_R.nonzero()[0]))
            left_R &= ~now_R

    def _run(self, rows: NewRows) -> None:
        """Rows whose parents are there: their keys and values, then their states."""
        device = self._spec.device
        slots, above = torch.from_numpy(rows.slots_R), torch.from_numpy(rows.above_R)
        states_RD = self.net.fed_back(self._states_SCM[slots, above])
        first = (rows.stages_R == 0).nonzero()[0]
        if len(first):
            config, features = self.net.config, self._features_SD[slots[first]]
            shape = (len(first), len(config.taps), config.target_width)
            states_RD[torch.from_numpy(first)] = self.net.fused(features.view(shape))
            begun = rows.slots_R[first]
            self.origins_S[begun] = self._newest_S[begun]
        around_RD, queries_RHD, keys_values = self._forward.rows(
            states_RD,
            torch.from_numpy(rows.tokens_R).to(device),
            torch.from_numpy(rows.positions_R).to(device),
            int(rows.positions_R.max()) + 1,
        )
        columns = torch.from_numpy(rows.columns_R)
        self._rows_SC[slots, columns] = keys_values
        seen_RC = self._seen_SCC[rows.slots_R, rows.above_R]
        own_R = ~self.context.has(rows.slots_R, rows.positions_R)
        seen_RC[np.arange(len(seen_RC)), rows.columns_R] = own_R
        # What is committed is in the tail, or in the context.
        seen_RC[:, 0] = False
        self._seen_SCC[rows.slots_R, rows.columns_R] = seen_RC
        if self._reuse is None:
            after = self._attended(rows, seen_RC, around_RD, queries_RHD)
            self._states_SCM[slots, columns] = after
            return
        before_R = self._tokens_SC[rows.slots_R, rows.above_R]
        is_left_R = np.ones(len(rows.slots_R), np.bool_)
        for index, kept, grades in self._reuse.take(rows, before_R):
            at = rows.slots_R[index], rows.columns_R[index]
            self._states_SCM[at], self._grades_SC[at] = kept, grades
            is_left_R[index] = False
        left = is_left_R.nonzero()[0]
        self.num_reused += len(is_left_R) - len(left)
        self.num_computed -= len(is_left_R) - len(left)
        if not len(left):
            return
        some = rows.at(left)
        after = self._attended(some, seen_RC[left], around_RD[left], queries_RHD[left])
        self._states_SCM[slots[left], columns[left]] = after
        self._reuse.keep(some, before_R[left], after)

    def _attended(
        self,
        rows: NewRows,
        seen_RC: Bools,
        around_RD: torch.Tensor,
        queries_RHD: torch.Tensor,
    ) -> torch.Tensor:
        """s' of rows whose keys and values are written. Shape (R, D)."""
        slots_E, lines_EN, places_R = lines_of(rows.slots_R)
        used = int(rows.columns_R.max()) + 1
        context, seen_EW = self.context.before(slots_E, self._newest_S[slots_E] + 2)
        tail_ET = self._tail_positions_ST[slots_E]
        has_ET = self.context.has(slots_E[:, None], np.maximum(tail_ET, 0))
        seen_ET = (tail_ET != NOWHERE) & ~has_ET
        slots = torch.from_numpy(slots_E)
        every = torch.cat((context[0], self._tail_ST[slots], self._rows_SC[slots, :used]), dim=1)
        window, committed = seen_EW.shape[1], seen_EW.shape[1] + seen_ET.shape[1]
        seen_ENC = np.empty((*lines_EN.shape, committed + used), np.bool_)
        seen_ENC[:, :, :window] = seen_EW[:, None]
        seen_ENC[:, :, window:committed] = seen_ET[:, None]
        seen_ENC[:, :, committed:] = seen_RC[:, :used][lines_EN]
        device = self._spec.device
        return self._forward.after(
            around_RD,
            queries_RHD,
            every,
            torch.from_numpy(seen_ENC).to(device)[:, None],
            torch.from_numpy(lines_EN).to(device),
            torch.from_numpy(places_R).to(device),
        )

    def _logits(self, rows: NewRows, live_R: Bools) -> torch.Tensor:
        if self._reuse is not None:
            self.levels_W = self._grades_SC[rows.slots_R, rows.columns_R]
        states_RD = self._states_SCM[
            torch.from_numpy(rows.slots_R), torch.from_numpy(rows.columns_R)
        ]
        values_RV = self._forward.logits(states_RD)
        if not live_R.all():
            values_RV[torch.from_numpy(~live_R).to(values_RV.device)] = 0.0
        return values_RV
