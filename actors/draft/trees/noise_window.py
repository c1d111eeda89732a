"""The noise of many sessions at the next positions of each, as one array: made once for a position, looked up for all rows of a pass."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.actors.speculation.noise.gumbel import GumbelNoise, default_block

Int64s = NDArray[np.int64]
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
        if offsets_R.max(initial=0) >= self._block:
            # Rows of one session might have the same place.
            return self._noise.of_pairs(seeds_R, positions_R.view(np.uint64))
        places_R = self._places(sessions_R, positions_R)
        missing = (self._positions_P.take(places_R) != positions_R).nonzero()[0]
        if len(missing):
            self._make(sessions_R[missing], seeds_R[missing], positions_R[missing])
        return torch.from_numpy(self._rows_PV.take(places_R, axis=0))

    def _make(self, sessions_M: Int64s, seeds_M: Uint64s, positions_M: Int64s) -> None:
        """Makes a block of noise for each session, from its first of these positions on."""
        firsts: dict[int, int] = {}
        for place, session in enumerate(sessions_M.tolist()):
            known = firsts.setdefault(session, place)
            if positions_M[place] < positions_M[known]:
                firsts[session] = place
        chosen = np.array(list(firsts.values()))
        positions_FB = positions_M[chosen, None] + np.arange(self._block)
        places_FB = self._places(sessions_M[chosen, None], positions_FB)
        seeds_N = seeds_M[chosen].repeat(self._block)
        made_NV = self._noise.of_pairs(seeds_N, positions_FB.reshape(-1).view(np.uint64))
        self._rows_PV[places_FB.reshape(-1)] = made_NV.numpy()
        self._positions_P[places_FB] = positions_FB

    def _places(self, sessions: Int64s, positions: Int64s) -> Int64s:
        places: Int64s = positions % self._span
        places += sessions * self._span
        return places
