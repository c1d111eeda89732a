"""Gumbel noise as a function of (seed, position, token id): the same bits on every device, batch and machine.

The target draws token `argmax_v(score_v + noise_v)`, which is a draw from softmax(score) (the Gumbel-max trick), and
drafters perturb their own scores with the same noise so that their candidates are the likely draws (the Gumbel coupling
of Daliri et al. 2024, arXiv 2408.07978). Both only work if all sides see equal bits, so the noise is *defined* by the
integer arithmetic below and `gumbel_table.py`, not by "a Gumbel variate":

1. key = mix_pair(seed, position), 64 bits; low and high half are injected at different rounds (`seeds.py`).
2. h = 32-bit hash of the token id, keyed by both halves: `_premix` once for each token, then `_keyed_hash_`.
   For a fixed key it is a bijection of the token id.
3. x = float32(h) + 0.5 with h read as a signed integer; both steps round to nearest even, everywhere.
4. noise = value[bin(x)] + slope[bin(x)] * place(x), multiplication and addition rounded separately.

The noise never increases with h read as unsigned; u = 1 - (h + 1/2) / 2^32 is the uniform it stands for. It lies in
[-3.13, 22.88]; a probability below about 2^-32 is not resolved.

Steps 3 and 4 must not be compiled by anything that contracts a multiplication and an addition into one rounding.

Called by the target when it draws and by drafters when they propose. Pure; holds no state but its tables.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outrider.actors.speculation.noise.gumbel_host import HASH_MULTIPLIERS, HASH_SHIFTS, HostNoise
from outrider.actors.speculation.noise.gumbel_table import (
    BIN_MASK,
    BIN_SHIFT,
    PLACE_MASK,
    gumbel_table,
)
from outrider.actors.speculation.noise.seeds import Uint64s, check_seed, mix_pair, mix_pairs

Int32s = NDArray[np.int32]


def _signed(bits: int) -> int:
    """Read 32 bits as a signed integer, which is what torch's int32 arithmetic takes."""
    return (bits ^ 2**31) - 2**31


_HALF = np.uint64(32)
_PREMIX_OFFSET = _signed(0x9E3779B9)
_ROUNDS = tuple(zip(map(_signed, HASH_MULTIPLIERS), HASH_SHIFTS, strict=True))


def _xor_shift_(hash_: Tensor, shift: int) -> None:
    """hash ^= hash >> shift, the shift filling in zeros; in place."""
    shifted = torch.bitwise_right_shift(hash_, shift)
    hash_.bitwise_xor_(shifted.bitwise_and_((1 << (32 - shift)) - 1))


def _premix(token_ids: Tensor) -> Tensor:
    """Scramble token ids into int32, so that neighbours share nothing before the key comes in."""
    hash_ = token_ids.to(torch.int32).add_(_PREMIX_OFFSET)
    _xor_shift_(hash_, 17)
    for multiplier, shift in _ROUNDS:
        hash_.mul_(multiplier)
        _xor_shift_(hash_, shift)
    return hash_


def _keyed_hash(premixed: Tensor, key_low: Tensor, key_high: Tensor) -> Tensor:
    """Hash premixed token ids under a key; int32, of the broadcast shape."""
    hash_ = torch.bitwise_xor(premixed, key_low)
    for number, (multiplier, shift) in enumerate(_ROUNDS):
        hash_.mul_(multiplier)
        _xor_shift_(hash_, shift)
        if number == 0:
            hash_.add_(key_high)
    return hash_


def key_halves(seeds: Sequence[int], positions: Sequence[int]) -> list[int]:
    """The keys of (seed, position) pairs, as signed 32-bit integers: all low halves, then all high halves.

    Raises:
        ValueError: If there is not one position for each seed, a seed is not one, or a position is negative.
    """
    if len(seeds) != len(positions):
        raise ValueError(f"{len(seeds)} seeds for {len(positions)} positions; one each")
    if positions and min(positions) < 0:
        raise ValueError(f"position is {min(positions)}; it must be at least 0")
    for seed in set(seeds):
        check_seed(seed)
    keys = list(map(mix_pair, seeds, positions))
    return [_signed(key & 0xFFFFFFFF) for key in keys] + [_signed(key >> 32) for key in keys]


def pair_halves(seeds_M: Uint64s, positions_M: Uint64s) -> Int32s:
    """The keys of (seed, position) pairs, given as arrays: int32 (2, M), low halves, then high ones."""
    keys_M = mix_pairs(seeds_M, positions_M)
    halves_2M = np.empty((2, len(keys_M)), np.uint32)
    halves_2M[0] = keys_M
    halves_2M[1] = keys_M >> _HALF
    return halves_2M.view(np.int32)


class GumbelNoise:
    """The noise of one vocabulary on one device. Cheap to share: make one for each model."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        """Build the tables on `device`.

        Raises:
            ValueError: If `vocab_size` is less than 1.
        """
        if vocab_size < 1:
            raise ValueError(f"vocab_size is {vocab_size}; it must be at least 1")
        self.vocab_size = vocab_size
        self.device = device
        values, slopes = gumbel_table()
        self._values = torch.tensor(values, device=device)
        self._slopes = torch.tensor(slopes, device=device)
        self._premixed_V = _premix(torch.arange(vocab_size, device=device))
        self._host = (
            HostNoise(self._premixed_V.numpy().view(np.uint32)) if device.type == "cpu" else None
        )

    def rows(self, seed: int, start: int, count: int) -> Tensor:
        """Return the noise at positions start..start+count-1: float32 (count, V).

        A position is the index of the token in the whole sequence: prompt length + index in the output.
        """
        return self.rows_many([seed] * count, range(start, start + count))

    def rows_many(self, seeds: Sequence[int], positions: Sequence[int]) -> Tensor:
        """Return the noise of each (seed, position): float32 (M, V)."""
        halves = np.array(key_halves(seeds, positions), np.int32)
        return self.of_halves(halves.reshape(2, len(seeds)))

    def of_pairs(self, seeds_M: Uint64s, positions_M: Uint64s) -> Tensor:
        """Return the noise of each (seed, position), given as arrays, bit-equal to `rows_many`: float32 (M, V)."""
        return self.of_halves(pair_halves(seeds_M, positions_M))

    def of_halves(self, halves_2M: Int32s) -> Tensor:
        """Return the noise of keys that are on the host, bit-equal to `rows_many`: float32 (M, V).

        Shapes:
            halves_2M: int32; low and high half of each key.
        """
        if self._host is None:
            return self.of_keys(torch.from_numpy(halves_2M).to(self.device, non_blocking=True))
        filled_MV = np.empty((halves_2M.shape[1], self.vocab_size), np.float32)
        low_M1, high_M1 = halves_2M.view(np.uint32)[:, :, None]
        self._host.fill(filled_MV, low_M1, high_M1)
        return torch.from_numpy(filled_MV)

    def at(self, seed: int, positions_M: Tensor, ids_MK: Tensor) -> Tensor:
        """Return the noise of chosen token ids, bit-equal to `rows`: float32 (M, K).

        Shapes:
            positions_M: int64, the position of each row.
            ids_MK: int64, token ids in [0, V).
        """
        return self.at_many([seed] * len(positions_M), positions_M, ids_MK)

    def at_many(
        self, seeds: Sequence[int], positions_M: Tensor | Sequence[int], ids_MK: Tensor
    ) -> Tensor:
        """Return the noise of chosen token ids, each row with its own seed: float32 (M, K)."""
        positions = positions_M.tolist() if isinstance(positions_M, Tensor) else positions_M
        key_low_M1, key_high_M1 = self._keys(seeds, positions)
        if ids_MK.dim() != 2 or len(ids_MK) != len(seeds):
            raise ValueError(
                f"ids_MK has shape {tuple(ids_MK.shape)} for {len(seeds)} rows; expected (M, K)"
            )
        premixed_MK = self._premixed_V.index_select(0, ids_MK.reshape(-1)).view(ids_MK.shape)
        return self.of_hashes(_keyed_hash(premixed_MK, key_low_M1, key_high_M1))

    def of_keys(self, halves_2M: Tensor) -> Tensor:
        """Return the noise of keys that are on the device, bit-equal to `rows_many`: float32 (M, V).

        Shapes:
            halves_2M: int32; `key_halves` of each (seed, position).
        """
        return self.of_hashes(self.hashes(halves_2M))

    def hashes(self, halves_2M: Tensor) -> Tensor:
        """Return the 32 bits behind each value that `of_keys` gives: int32 (M, V)."""
        low_M1, high_M1 = halves_2M.unsqueeze(2)
        return _keyed_hash(self._premixed_V, low_M1, high_M1)

    def of_hashes(self, hash_: Tensor) -> Tensor:
        """Return the noise that hashes on the device stand for: float32, of their shape. It never increases with the hash, taken as unsigned."""
        signed_magnitude = hash_.to(torch.float32).add_(0.5)
        bits = signed_magnitude.view(torch.int32)
        bins = torch.bitwise_right_shift(bits, BIN_SHIFT).bitwise_and_(BIN_MASK).view(-1)
        place = bits.bitwise_and_(PLACE_MASK)
        noise = self._slopes.index_select(0, bins).view(hash_.shape).mul_(place)
        return noise.add_(self._values.index_select(0, bins).view(hash_.shape))

    def _keys(self, seeds: Sequence[int], positions: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return low and high halves of the key of each (seed, position): int32 (M, 1) each."""
        halves = key_halves(seeds, positions)
        low_M1, high_M1 = (
            torch.tensor(halves, dtype=torch.int32).to(self.device).view(2, len(seeds), 1)
        )
        return low_M1, high_M1


class NoiseCache:
    """The noise of one session, computed a block of positions at a time so that a token's share is small.

    Holds one window of consecutive positions: at most one block beyond the range last asked for. Tensors handed out
    stay valid and unchanged; the cache never writes into a window that it has handed out.
    """

    def __init__(self, noise: GumbelNoise, seed: int, *, block: int | None = None) -> None:
        """Cache the noise of `seed`, computed `block` positions at a time (default: by vocabulary size)."""
        self._noise = noise
        self.seed = check_seed(seed)
        self._block = block or default_block(noise.vocab_size)
        self._start = 0
        self._rows = noise.rows_many((), ())

    @property
    def num_rows(self) -> int:
        """Positions whose noise is held."""
        return len(self._rows)

    def row_range(self, start: int, stop: int) -> Tensor:
        """Return the noise at positions start..stop-1: float32 (stop - start, V). Do not write into it."""
        end = self._start + len(self._rows)
        if start < self._start or start > end:
            self._start, end = start, start
            self._rows = self._rows[:0]
        if stop > end:
            fresh = self._noise.rows(self.seed, end, max(stop - end, self._block))
            kept = self._rows[start - self._start :]
            self._rows = torch.cat((kept, fresh)) if len(kept) else fresh
            self._start = start
        return self._rows[start - self._start : stop - self._start]

    def rows_after(self, start: int, offsets: Sequence[int]) -> Tensor:
        """Return the noise at positions start + offset, keeping all from `start` on: float32 (len(offsets), V)."""
        rows = self.row_range(start, start + max(offsets) + 1)
        if len(offsets) == 1:
            return rows[offsets[0] :]
        return rows.index_select(0, torch.tensor(offsets).to(rows.device))


_BLOCK_ELEMENTS = 2**18
"""Noise values computed at once, unless that is less than 4 positions: 1 MiB, well under a millisecond."""


def default_block(vocab_size: int) -> int:
    """Return how many positions a `NoiseCache` computes at once: 16, fewer for vocabularies above 16k."""
    return max(4, min(16, _BLOCK_ELEMENTS // vocab_size))
