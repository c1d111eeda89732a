"""A block drafter behind the engine protocol: a block is a *lattice*, from which the logits after any token at its positions are read.

A pass over a slot's block gives h and U of positions a to a+B-1 (`block_net.BlockNet`). The row of token u at position p, be it committed or a candidate
at any depth, then has the logits U[p - a + first_slot] + W2 W1[u]: a product of rank r, no pass. Trees grow in a lattice, and go on in it after a verdict, since
positions are absolute. When the target has told newer states, the next committed row that logits are wanted of begins a new block, at the first
position without states; tokens behind that one are revealed to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.actors.draft.block.block_net import BlockNet
from outrider.actors.draft.block.context_cache import ContextCache
from outrider.actors.draft.on_states.placed_engine import PlacedEngine, wanted_rows
from outrider.actors.engine.kv.added_rows import packed
from outrider.actors.engine.protocol import Batch, Int64s, Logits, ModelSpec, Rows

CONFIDENCE_EDGES = np.array([0.3, 0.45, 0.6, 0.8])
"""Between the levels of confidence. Of a toy's rows each level has a fair part; what a level is worth is learned while serving."""

NUM_LEVELS = len(CONFIDENCE_EDGES) + 1

NO_BLOCK = -(1 << 40)
"""Position of a slot's block that has none: every row is behind its end."""


class BlockEngine(PlacedEngine):
    """Runs a block drafter for many sessions. Used by one thread."""

    def __init__(self, net: BlockNet, spec: ModelSpec, *, num_slots: int, max_scratch: int) -> None:
        """
        Args:
            net: Not trained any more, on the device of `spec`.
            spec: What is known about it; its vocabulary is the net's.
            num_slots: Sessions at a time.
            max_scratch: Rows of one behind the committed ones, at most.
        """
        super().__init__(spec, num_slots=num_slots, max_scratch=max_scratch)
        self.net, config = net, net.config
        self.num_blocks = 0
        """Blocks of the last pass."""
        self.levels_W: Int64s | None = None
        """Level of confidence of each row of logits of the last pass; None: there is no such head."""
        device = spec.device
        self.context = ContextCache(config, net.keys_values, num_slots, device)
        """What the target has told."""
        shape = (num_slots, config.block, net.num_logits)
        self._unary_SBV = torch.zeros(*shape, device=device)
        self._states_SBD = torch.zeros(num_slots, config.block, config.width, device=device)
        self._anchors_S = np.full(num_slots, NO_BLOCK, np.int64)
        self._told_S = np.full(num_slots, NO_BLOCK, np.int64)
        """Position of the last token that the block was told."""
        self._is_stale_S = np.zeros(num_slots, np.bool_)
        """The target has told states that the block has not seen."""

    def tell(self, slot: int, start: int, features_TLD: NDArray[np.float32]) -> bool:
        """Takes states of the target at committed positions.

        Returns:
            Whether a new block would see more than the one that there is.
        """
        if not self.context.write(slot, start, features_TLD):
            return False
        self._is_stale_S[slot] = True
        return True

    def can_begin(self, slots_E: Int64s, lengths_E: Int64s) -> NDArray[np.bool_]:
        """Whether a new block would see more, states or tokens, and may be told all tokens that came behind the newest states.

        Args:
            slots_E: Slots.
            lengths_E: Tokens of each one's text.
        """
        revealed_E = lengths_E - 2 - self.context.newest(slots_E)
        fits_E = (revealed_E >= 0) & (revealed_E <= self.net.config.most_revealed)
        sees_more_E = self._is_stale_S[slots_E] | (lengths_E - 1 > self._told_S[slots_E])
        able_E: NDArray[np.bool_] = sees_more_E & fits_E
        return able_E

    def ends(self, slots_E: Int64s, lengths_E: Int64s) -> Int64s:
        """Position behind the last one that has logits, or would have once the text is read. Arguments as `can_begin`."""
        able_E = self.can_begin(slots_E, lengths_E)
        anchors_E = np.where(able_E, self.context.newest(slots_E) + 1, self._anchors_S[slots_E])
        ends_E: Int64s = anchors_E + self.net.config.reach
        return ends_E

    def read_from(self, first_slot: int) -> None:
        """Reads the slots of all blocks otherwise, those of the past included; see `BlockConfig.first_slot`. Trees of before are to be dropped."""
        config = self.net.config
        revealed = min(config.most_revealed, config.block - 1 - first_slot)
        self.net.config = replace(config, first_slot=first_slot, most_revealed=revealed)

    def forget(self, slot: int, length: int) -> None:
        """Forgets what rests on more than the first `length` tokens, which are other ones now."""
        self.context.forget(slot, length)
        self._anchors_S[slot] = self._told_S[slot] = NO_BLOCK
        self._is_stale_S[slot] = True

    def acquire(self, slot: int | None = None, *, keep: int = 0) -> int:
        """See `Engine`."""
        slot = super().acquire(slot, keep=keep)
        self.forget(slot, 0)
        return slot

    @torch.inference_mode()
    def forward(self, batch: Sequence[Rows]) -> Logits:
        """See `Engine`. Rows at positions without a lattice have zeros for logits."""
        arrays = packed(batch)
        slots_R, columns_R, _, positions_R = self._place(arrays)
        self._begin_blocks(arrays, positions_R)
        self._follow(slots_R, columns_R, arrays.parents_R + 1, arrays.tokens_R)
        wanted = wanted_rows(arrays)
        slots_W, columns_W = slots_R[wanted], columns_R[wanted]
        values_WV = self._logits(slots_W, columns_W, arrays.tokens_R[wanted])
        places_W = self._places(slots_W, columns_W)
        inside_W = (places_W >= 0) & (places_W < self.net.config.reach)
        if not inside_W.all():
            values_WV[torch.from_numpy(~inside_W).to(self._spec.device)] = 0.0
        return Logits(values_RV=values_WV, offsets=arrays.offsets)

    def _places(self, slots_R: Int64s, columns_R: Int64s) -> Int64s:
        """Where rows stand in their slots' blocks; 0 is the newest token that the block was begun with."""
        places_R: Int64s = self._positions_SC[slots_R, columns_R] - self._anchors_S[slots_R]
        return places_R

    def _lay(self, slots_N: torch.Tensor, states: torch.Tensor) -> None:
        """Takes in what a pass over new blocks gave: h [N, B, D]."""
        self._states_SBD[slots_N], self._unary_SBV[slots_N] = states, self.net.unary(states)

    def _follow(
        self, slots_R: Int64s, columns_R: Int64s, above_R: Int64s, tokens_R: Int64s
    ) -> None:
        """Takes in new rows, parents before children: for lattices that remember more of a path than its last token."""

    def _logits(self, slots_W: Int64s, columns_W: Int64s, tokens_W: Int64s) -> torch.Tensor:
        """Of some rows [W, V]. What stands where a row is not within its block's reach does not matter."""
        config, device = self.net.config, self._spec.device
        places_W = np.clip(self._places(slots_W, columns_W), 0, config.reach - 1)
        flat_W = slots_W * config.block + places_W + config.first_slot
        flat, tokens = torch.from_numpy(flat_W).to(device), torch.from_numpy(tokens_W).to(device)
        states_WD = self._states_SBD.flatten(0, 1)[flat]
        values_WV = self.net.logits(self._unary_SBV.flatten(0, 1)[flat], states_WD, tokens)
        confidence = self.net.confidence(states_WD, tokens)
        self.levels_W = None
        if confidence is not None:
            self.levels_W = np.digitize(confidence.sigmoid().cpu().numpy(), CONFIDENCE_EDGES)
        return values_WV

    def _begin_blocks(self, arrays: Batch, positions_R: Int64s) -> None:
        """New blocks for entries whose last row is the end of a text, where there is something newer to see."""
        self.num_blocks = 0
        reading = (arrays.wanted_E == 1).nonzero()[0]
        if not len(reading):
            return
        ends_N = positions_R[arrays.starts_E[1:][reading] - 1]
        able_N = self.can_begin(arrays.slots_E[reading], ends_N + 1)
        slots_N, ends_N = arrays.slots_E[reading][able_N], ends_N[able_N]
        if not len(slots_N):
            return
        config, device = self.net.config, self._spec.device
        anchors_N = self.context.newest(slots_N) + 1
        tokens_NB = np.zeros((len(slots_N), config.block), np.int64)
        told_NB = np.arange(config.block) <= (ends_N - anchors_N)[:, None]
        entries = reading[able_N].tolist()
        for block, (entry, anchor) in enumerate(zip(entries, anchors_N.tolist(), strict=True)):
            rows = slice(int(arrays.starts_E[entry]), int(arrays.starts_E[entry + 1]))
            known = self._slots.cached_tokens(int(arrays.slots_E[entry]))
            known = [*known[anchor:], *arrays.tokens_R[rows].tolist()]
            told = known[len(known) - int(told_NB[block].sum()) :]
            tokens_NB[block, : len(told)] = told
        context, seen_NW = self.context.before(slots_N, anchors_N)
        states = self.net.states(
            torch.from_numpy(tokens_NB).to(device),
            torch.from_numpy(told_NB).to(device),
            torch.from_numpy(anchors_N).to(device),
            context,
            torch.from_numpy(seen_NW).to(device),
        )
        self._anchors_S[slots_N], self._told_S[slots_N] = anchors_N, ends_N
        self._lay(torch.from_numpy(slots_N).to(device), states)
        self._is_stale_S[slots_N] = False
        self.num_blocks = len(slots_N)
