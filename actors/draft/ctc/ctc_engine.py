"""A CTC drafter behind the engine protocol: a block engine whose lattice remembers the string since the block began.

The row of a token at place k of a block is the collapsed string y of the k tokens behind the one that the block began with, be they committed or
candidates; its logits are log Pref(y c) (`prefix_masses`), the exact causal law but for a factor. So a tree of candidates has one level for each token of
the collapsed string, and its growth, best first, is the prefix search of Graves et al. 2006 with exact masses. A verdict only makes candidates certain:
their rows stay what they are, and drafting goes on below them without new states.
"""

from __future__ import annotations

import numpy as np
import torch

from outrider.actors.draft.block.block_engine import BlockEngine
from outrider.actors.draft.ctc.ctc_net import CtcNet
from outrider.actors.draft.ctc.prefix_masses import NO_TOKEN, appended, empty_string, next_masses
from outrider.actors.engine.protocol import Int64s, ModelSpec, Moves
from outrider.actors.engine.tables.moved_columns import move_columns

LEAST_MASS = 1e-37
"""Stands for nothing where a logarithm is taken."""


class CtcEngine(BlockEngine):
    """Runs a CTC drafter for many sessions. Used by one thread."""

    def __init__(self, net: CtcNet, spec: ModelSpec, *, num_slots: int, max_scratch: int) -> None:
        """As `BlockEngine`."""
        super().__init__(net, spec, num_slots=num_slots, max_scratch=max_scratch)
        self._framer = net
        block = net.config.block
        self._blanks_SU = np.zeros((num_slots, block))
        # Columns as those of positions: 0 is the last cached row.
        self._lasts_SC = np.full((num_slots, 1 + max_scratch), NO_TOKEN, np.int64)
        self._masses = np.zeros((num_slots, 1 + max_scratch, 2, block + 1))

    def truncate(self, slot: int, length: int) -> None:
        """See `Engine`; the string of the last row that stays is read again."""
        super().truncate(slot, length)
        anchor = int(self._anchors_S[slot])
        string = self._slots.cached_tokens(slot)[anchor + 1 :] if anchor >= 0 else []
        if length <= anchor or len(string) > self.net.config.reach:
            return
        row, column = np.array([slot]), np.zeros(1, np.int64)
        self._begin(row, column)
        for token in string:
            self._append(row, column, column, np.array([token]))

    def rebase(self, moves: Moves) -> None:
        """See `Engine`."""
        super().rebase(moves)
        for columns in (self._lasts_SC, self._masses):
            move_columns(columns, moves)

    def _lay(self, slots_N: torch.Tensor, states: torch.Tensor) -> None:
        """See `BlockEngine`: keeps probabilities."""
        frames = self._framer.frames(states).exp()
        self._unary_SBV[slots_N] = frames[..., :-1]
        self._blanks_SU[slots_N.cpu().numpy()] = frames[..., -1].cpu().numpy()

    def _follow(
        self, slots_R: Int64s, columns_R: Int64s, above_R: Int64s, tokens_R: Int64s
    ) -> None:
        """See `BlockEngine`."""
        places_R = self._places(slots_R, columns_R)
        # The row above is one place before, so it is there by then.
        for place in range(self.net.config.reach):
            rows = (places_R == place).nonzero()[0]
            if not len(rows):
                continue
            slots, columns = slots_R[rows], columns_R[rows]
            if place:
                self._append(slots, columns, above_R[rows], tokens_R[rows])
            else:
                self._begin(slots, columns)

    def _begin(self, slots_N: Int64s, columns_N: Int64s) -> None:
        """Rows of the empty string."""
        self._lasts_SC[slots_N, columns_N] = NO_TOKEN
        self._masses[slots_N, columns_N] = empty_string(self._blanks_SU[slots_N])

    def _append(
        self, slots_N: Int64s, columns_N: Int64s, above_N: Int64s, tokens_N: Int64s
    ) -> None:
        """Rows of the strings above with a token more."""
        device = self._spec.device
        slots, tokens = torch.from_numpy(slots_N).to(device), torch.from_numpy(tokens_N).to(device)
        tokens_NU = self._unary_SBV[slots, :, tokens].cpu().numpy().astype(np.float64)
        repeats_N = self._lasts_SC[slots_N, above_N] == tokens_N
        above = self._masses[slots_N, above_N]
        self._lasts_SC[slots_N, columns_N] = tokens_N
        self._masses[slots_N, columns_N] = appended(
            above, repeats_N, tokens_NU, self._blanks_SU[slots_N]
        )

    def _logits(self, slots_W: Int64s, columns_W: Int64s, tokens_W: Int64s) -> torch.Tensor:
        """See `BlockEngine`."""
        shape = (len(slots_W), self._spec.vocab_size)
        prefixes_WV = torch.empty(shape, device=self._spec.device)
        for slot in np.unique(slots_W).tolist():
            rows = (slots_W == slot).nonzero()[0]
            columns = columns_W[rows]
            prefixes_WV[torch.from_numpy(rows)] = next_masses(
                self._masses[slot, columns], self._lasts_SC[slot, columns], self._unary_SBV[slot]
            )
        return prefixes_WV.clamp_(min=LEAST_MASS).log_()
