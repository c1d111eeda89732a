"""The noise of many sessions at the next positions of each, as one array: made once for a position, looked up for all rows of a pass."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.actors.draft.trees.forest import Int64s
from outrider.actors.speculation.noise.gumbel import GumbelNoise, default_block
from outrider.actors.speculation.trees.ragged import ranges

Uint64s = NDArray[np.uint64]


class NoiseWindow:
    """Noise that was made, by session and position, on a CPU. A session's place is reused every `2 x block` positions."""

    def __init__(self, noise: GumbelNoise, num_sessions: int) -> None:
        """
        Args:
            noise: Makes it.
            num_sessions: Sessions are 0 to this, excluded.
        """
        self._noise = noise
        self._block = default_block(noise.vocab_size)
        self._span = 2 * self._block
        # A page of memory is taken when it is written to first.
        self._rows_PV = np.empty((num_sessions * self._span, noise.vocab_size), np.float32)
        self._positions_P = np.full(num_sessions * self._span, -1, np.int64)

    def forget(self, session: int) -> None:
        """Drops the noise of a session, whose seed may change."""
        self._positions_P[session * self._span : (session + 1) * self._span] = -1

    def rows(
        self, sessions_R: Int64s, seeds_R: Uint64s, firsts_R: Int64s, offsets_R: Int64s
    ) -> torch.Tensor:
        """The noise of each row. Shape (R, V).

        Args:
            sessions_R: Sessions.
            seeds_R: Their seeds, the same until `forget`.
            firsts_R: Positions that the rows of each session begin at.
            offsets_R: How far behind those they are.
        """
        positions_R = firsts_R + offsets_R
        far = (offsets_R >= self._span).nonzero()[0]
        if len(far):
            # They would lie where nearer rows of their session do.
            near = (offsets_R < self._span).nonzero()[0]
            noise_RV = torch.empty((len(positions_R), self._noise.vocab_size))
            if len(near):
                noise_RV[near] = self.rows(
                    sessions_R[near], seeds_R[near], firsts_R[near], offsets_R[near]
                )
            noise_RV[far] = self._noise.of_pairs(seeds_R[far], positions_R[far].view(np.uint64))
            return noise_RV
        places_R = self._places(sessions_R, positions_R)
        missing = (self._positions_P.take(places_R) != positions_R).nonzero()[0]
        if len(missing):
            self._make(
                sessions_R[missing], seeds_R[missing], positions_R[missing], firsts_R[missing]
            )
        return torch.from_numpy(self._rows_PV.take(places_R, axis=0))

    def _make(
        self, sessions_M: Int64s, seeds_M: Uint64s, positions_M: Int64s, firsts_M: Int64s
    ) -> None:
        """Makes the noise of each session from its first of these positions on: a block, or to the last of them.

        What lies a span behind the session's first position would take the place of what it may need now, so it is not made.
        """
        order = np.lexsort((positions_M, sessions_M))
        begins = np.ones(len(order), np.bool_)
        begins[1:] = sessions_M[order[1:]] != sessions_M[order[:-1]]
        at = begins.nonzero()[0]
        nearest_F = order[at]
        furthest_F = order[np.append(at[1:], len(order)) - 1]
        starts_F = positions_M[nearest_F]
        ends_F = np.maximum(starts_F + self._block, positions_M[furthest_F] + 1)
        ends_F = np.minimum(ends_F, firsts_M[nearest_F] + self._span)
        counts_F = ends_F - starts_F
        positions_N = ranges(starts_F, counts_F)
        places_N = self._places(sessions_M[nearest_F].repeat(counts_F), positions_N)
        seeds_N = seeds_M[nearest_F].repeat(counts_F)
        made_NV = self._noise.of_pairs(seeds_N, positions_N.view(np.uint64))
        self._rows_PV[places_N] = made_NV.numpy()
        self._positions_P[places_N] = positions_N

    def _places(self, sessions: Int64s, positions: Int64s) -> Int64s:
        places: Int64s = positions % self._span
        places += sessions * self._span
        return places
