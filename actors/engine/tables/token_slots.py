"""The tokens that every slot holds, in arrays: what an engine needs to keep whose model is a table."""

from __future__ import annotations

import numpy as np

from outrider.actors.engine.kv.slots import SlotTable
from outrider.actors.engine.protocol import Batch, Int64s, Moves

START_TOKEN = 0
"""Stands before the first token of a text for whoever looks further back."""


class TokenSlots:
    """Tokens of all slots."""

    def __init__(self, *, num_slots: int, max_context: int, max_scratch: int, vocab_size: int):
        """Starts with every slot free.

        Raises:
            ValueError: A number is less than one.
        """
        self.books = SlotTable(
            num_slots=num_slots,
            max_context=max_context,
            max_scratch=max_scratch,
            vocab_size=vocab_size,
            has_ancestry=False,
        )
        self.cached = self.books.cached
        self.scratch = self.books.scratch
        # A page of memory is taken when it is written to first.
        self._texts_ST = np.zeros((num_slots, max_context), np.int64)
        # Column 0 is the last cached token, so that parent -1 finds it too.
        self._tokens_SC = np.full((num_slots, 1 + max_scratch), START_TOKEN, dtype=np.int64)

    def cached_tokens(self, slot: int) -> list[int]:
        """The cached tokens."""
        tokens: list[int] = self._texts_ST[slot, : self.cached(slot)].tolist()
        return tokens

    def context(self, slots_B: Int64s) -> int:
        """Cached tokens of some slots together."""
        return int(self.books.cached_S[slots_B].sum())

    def acquire(self, slot: int | None, *, keep: int) -> int:
        """See `Engine.acquire`."""
        slot = self.books.acquire(slot, keep=keep)
        self._end(slot)
        return slot

    def release(self, slot: int, *, keep: int) -> None:
        """See `Engine.release`."""
        self.books.release(slot, keep=keep)

    def copy_prefix(self, source: int, destination: int, length: int) -> None:
        """See `Engine.copy_prefix`."""
        self.books.copy_prefix(source, destination, length)
        self._texts_ST[destination, :length] = self._texts_ST[source, :length]
        self._end(destination)

    def truncate(self, slot: int, length: int) -> None:
        """See `Engine.truncate`."""
        self.books.truncate(slot, length)
        self._end(slot)

    def add(self, batch: Batch) -> Int64s:
        """Adds the rows of a batch behind the scratch rows.

        Returns:
            The slot of each row.

        Raises:
            SlotOverflow, ValueError: As `Engine.forward`; nothing was changed.
        """
        added = self.books.check(batch)
        self._tokens_SC[added.slots_R, added.columns_R + 1] = added.tokens_R
        self.books.grow(added)
        return added.slots_R

    def parent_tokens(self, slots_N: Int64s, parents_N: Int64s) -> Int64s:
        """The tokens of scratch rows, the last cached one for -1."""
        tokens_N: Int64s = self._tokens_SC[slots_N, parents_N + 1]
        return tokens_N

    def rebase(self, moves: Moves) -> None:
        """See `Engine.rebase`."""
        lengths_E = self.books.cached_S[moves.slots_E]
        self.books.rebase(moves)
        slots_E, tokens_SC = moves.slots_E, self._tokens_SC
        entries_N, steps_N = (moves.paths_EP >= 0).nonzero()
        slots_N = slots_E[entries_N]
        path_N = tokens_SC[slots_N, moves.paths_EP[entries_N, steps_N] + 1]
        self._texts_ST[slots_N, lengths_E[entries_N] + steps_N] = path_N
        # Ascending steps: the last one of each slot stays.
        tokens_SC[slots_N, 0] = path_N
        if not moves.keeps_EK.shape[1]:
            return
        entries_K, new_K = (moves.keeps_EK >= 0).nonzero()
        slots_K = slots_E[entries_K]
        tokens_SC[slots_K, new_K + 1] = tokens_SC[slots_K, moves.keeps_EK[entries_K, new_K] + 1]

    def _end(self, slot: int) -> None:
        """Notes the last cached token."""
        length = self.books.cached_S[slot]
        self._tokens_SC[slot, 0] = self._texts_ST[slot, length - 1] if length else START_TOKEN
