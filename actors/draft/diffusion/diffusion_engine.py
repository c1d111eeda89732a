"""A diffusion drafter behind the engine protocol: committed tokens are read once, and a block of masks is filled in the same pass.

What a pass gives of an entry follows from the logits that it wants:

- *none*: a part of a text, which is read;
- *last*: the end of a text, which is read, and a first denoising step behind it: L rows, of the tokens behind the text;
- *all*: r tokens that are told of the block behind the text, for another step: L - r rows, of the tokens behind those.

Rows of a text see nothing of a block, so they are kept (`context_cache.ContextRing`); what a block computes is kept by nobody. Told tokens are scratch rows,
and to be truncated; those that were read are to be committed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.actors.draft.block.context_cache import NOWHERE, ContextRing
from outrider.actors.draft.diffusion.diffusion_net import DiffusionNet
from outrider.actors.engine.kv.added_rows import packed
from outrider.actors.engine.protocol import WANTS, Batch, Int64s, Logits, ModelSpec, Moves, Rows
from outrider.actors.engine.tables.token_slot_engine import TokenSlotEngine

NONE, LAST, ALL = range(len(WANTS))


class DiffusionEngine(TokenSlotEngine):
    """Runs a diffusion drafter for many sessions. Used by one thread."""

    def __init__(
        self, net: DiffusionNet, spec: ModelSpec, *, num_slots: int, max_scratch: int
    ) -> None:
        """
        Args:
            net: Not trained any more, on the device of `spec`.
            spec: What is known about it; its vocabulary is the net's.
            num_slots: Sessions at a time.
            max_scratch: Rows of one behind the committed ones, at most.
        """
        super().__init__(spec, num_slots=num_slots, max_scratch=max_scratch)
        self.net = net
        self.context = ContextRing(net.config, num_slots, spec.device)
        """Keys and values of the texts."""

    def acquire(self, slot: int | None = None, *, keep: int = 0) -> int:
        """See `Engine`."""
        slot = self._slots.acquire(slot, keep=keep)
        self.context.forget(slot, keep)
        return slot

    def release(self, slot: int, *, keep: int = 0) -> None:
        """See `Engine`."""
        self._slots.release(slot, keep=keep)

    def copy_prefix(self, source: int, destination: int, length: int) -> None:
        """See `Engine`; of a source that is much longer, the rows that its window has left are not there."""
        self._slots.copy_prefix(source, destination, length)
        self.context.copy(source, destination, length)

    def truncate(self, slot: int, length: int) -> None:
        """See `Engine`; the rows before a window that is cut are not there."""
        self._slots.truncate(slot, length)
        self.context.forget(slot, length)

    def rebase(self, moves: Moves) -> None:
        """See `Engine`."""
        self._slots.rebase(moves)

    @torch.inference_mode()
    def forward(self, batch: Sequence[Rows]) -> Logits:
        """See `Engine`, and the module for the rows of logits."""
        arrays = packed(batch)
        self._slots.add(arrays)
        device, config = self._spec.device, self.net.config
        laid = _Layout(
            arrays, np.array([self.cached(slot) for slot in arrays.slots_E.tolist()]), config.block
        )
        rows, held_EW = self.context.held(arrays.slots_E)
        states, own = self.net.states(
            torch.from_numpy(laid.tokens_ER).to(device),
            torch.from_numpy(laid.is_known_ER).to(device),
            torch.from_numpy(laid.positions_ER).to(device),
            rows,
            torch.from_numpy(laid.seen(held_EW, config.window)[:, None]).to(device),
        )
        for entry, slot in enumerate(arrays.slots_E.tolist()):
            count = int(laid.num_read_E[entry])
            kept = slice(max(count - config.window, 0), count)
            self.context.put(slot, laid.positions_ER[entry, kept], own[:, entry, kept])
        entries, places, offsets = laid.wanted()
        values = self.net.unary(states[torch.from_numpy(entries), torch.from_numpy(places)])
        return Logits(values_RV=values, offsets=offsets)


class _Layout:
    """A pass as a rectangle: of each entry first the tokens that are read, then the block."""

    def __init__(self, arrays: Batch, cached_E: Int64s, block: int) -> None:
        """
        Args:
            arrays: The batch.
            cached_E: Tokens that were read before, of each entry.
            block: L.
        """
        counts_E = np.diff(arrays.starts_E)
        is_told_E = arrays.wanted_E == ALL
        self.num_read_E = np.where(is_told_E, 0, counts_E)
        self._told_E = np.where(is_told_E, counts_E, 0)
        self._wanted_E, self._block, self._cached_E = arrays.wanted_E, block, cached_E
        width = int(self.num_read_E.max())
        masks = block - 1 if (arrays.wanted_E > NONE).any() else 0
        self._width = width
        shape = (len(counts_E), width + masks)
        self.tokens_ER = np.zeros(shape, np.int64)
        self.is_known_ER = np.zeros(shape, np.bool_)
        for entry, (start, count, is_told) in enumerate(
            zip(arrays.starts_E.tolist(), counts_E.tolist(), is_told_E.tolist(), strict=False)
        ):
            first = width if is_told else 0
            cells = slice(first, first + count)
            self.tokens_ER[entry, cells] = arrays.tokens_R[start : start + count]
            self.is_known_ER[entry, cells] = True
        ends_E1 = (cached_E + self.num_read_E)[:, None]
        self.positions_ER = np.concatenate(
            (cached_E[:, None] + np.arange(width), ends_E1 + np.arange(masks)), axis=1
        )

    def seen(self, held_EW: Int64s, window: int) -> NDArray[np.bool_]:
        """Which row sees which of the kept rows at these positions and which of the pass's own, [E, R, W + R]."""
        width, own_ER = self._width, self.positions_ER
        behind_ERW = own_ER[..., None] - held_EW[:, None]
        kept_ERW = (behind_ERW < window) & (
            (held_EW != NOWHERE) & (held_EW < self._cached_E[:, None])
        )[:, None]
        behind_ERR = own_ER[..., None] - own_ER[:, None]
        is_read_ER = np.arange(own_ER.shape[1]) < self.num_read_E[:, None]
        own_ERR = (behind_ERR >= 0) & (behind_ERR < window) & is_read_ER[:, None]
        own_ERR[:, width:, width:] = True
        # A cell that holds nothing sees itself, so that its numbers are some.
        cells = np.arange(own_ER.shape[1])
        own_ERR[:, cells, cells] = True
        return np.concatenate((kept_ERW, own_ERR), axis=2)

    def wanted(self) -> tuple[Int64s, Int64s, tuple[int, ...]]:
        """Entry and place of the rows that logits are wanted of, and `Logits.offsets`."""
        entries, places, offsets = [], [], [0]
        width, block = self._width, self._block
        for entry, (wanted, read, told) in enumerate(
            zip(
                self._wanted_E.tolist(),
                self.num_read_E.tolist(),
                self._told_E.tolist(),
                strict=True,
            )
        ):
            some: list[int] = []
            if wanted == LAST:
                some = [read - 1, *range(width, width + block - 1)]
            elif wanted == ALL:
                some = list(range(width + told - 1, width + block - 1))
            entries += [entry] * len(some)
            places += some
            offsets.append(len(places))
        return np.array(entries, np.int64), np.array(places, np.int64), tuple(offsets)
