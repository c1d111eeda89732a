"""The tokens that every slot holds, in arrays: what an engine needs to keep whose model is a table.

Rows of a batch are checked and added by a fixed number of array operations, whatever the number of sessions. Seldom operations
and refusals go through the books that real engines keep (`slots.SlotTable`), so that both refuse the same in the same words.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from outrider.actors.engine.kv.slot import Slot, check_lengths
from outrider.actors.engine.kv.slots import SlotTable
from outrider.actors.engine.protocol import Batch, Int64s, Rows

START_TOKEN = 0
"""Stands before the first token of a text for whoever looks further back."""


def packed(batch: Sequence[Rows]) -> Batch:
    """A batch as arrays; entries may be wrong still.

    Raises:
        ValueError: The batch is empty, or an entry has other than one parent for each token.
    """
    if not batch:
        raise ValueError("the batch is empty; give at least one entry")
    if isinstance(batch, Batch):
        return batch
    for rows in batch:
        check_lengths(rows)
    return Batch.of(batch)


class TokenSlots:
    """Tokens of all slots."""

    def __init__(self, *, num_slots: int, max_context: int, max_scratch: int, vocab_size: int):
        """Starts with every slot free.

        Raises:
            ValueError: A size is less than one.
        """
        self.books = SlotTable(
            num_slots=num_slots,
            max_context=max_context,
            max_scratch=max_scratch,
            vocab_size=vocab_size,
        )
        self._cached: list[list[int]] = [[] for _ in range(num_slots)]
        self._cached_S = np.zeros(num_slots, dtype=np.int64)
        self._scratch_S = np.zeros(num_slots, dtype=np.int64)
        self._is_taken_S = np.zeros(num_slots, dtype=np.bool_)
        # Column 0 is the last cached token, so that parent -1 finds it too.
        self._tokens_SC = np.full((num_slots, 1 + max_scratch), START_TOKEN, dtype=np.int64)
        self._parents_SC = np.full((num_slots, max_scratch), -1, dtype=np.int64)

    def cached(self, slot: int) -> int:
        """Number of cached tokens."""
        self._require(slot)
        return len(self._cached[slot])

    def cached_tokens(self, slot: int) -> list[int]:
        """The cached tokens."""
        self._require(slot)
        return list(self._cached[slot])

    def scratch(self, slot: int) -> int:
        """Number of scratch tokens."""
        self._require(slot)
        return int(self._scratch_S[slot])

    def context(self, slots_B: Int64s) -> int:
        """Cached tokens of some slots together."""
        return int(self._cached_S[slots_B].sum())

    def acquire(self, slot: int | None, *, keep: int) -> int:
        """See `Engine.acquire`."""
        slot = self.books.acquire(slot, keep=keep)
        self._is_taken_S[slot] = True
        self._cut(slot, keep)
        return slot

    def release(self, slot: int, *, keep: int) -> None:
        """See `Engine.release`."""
        self._told(slot)
        self.books.release(slot, keep=keep)
        self._is_taken_S[slot] = False
        self._cut(slot, keep)

    def copy_prefix(self, source: int, destination: int, length: int) -> None:
        """See `Engine.copy_prefix`."""
        if 0 <= source < len(self._cached) and self._is_taken_S[source]:
            self._told(source)
        self._told(destination)
        self.books.copy_prefix(source, destination, length)
        self._cached[destination] = self._cached[source][:length]
        self._cut(destination, length)

    def truncate(self, slot: int, length: int) -> None:
        """See `Engine.truncate`."""
        self._told(slot)
        self.books.truncate(slot, length)
        self._cut(slot, length)

    def add(self, batch: Batch) -> Int64s:
        """Adds the rows of a batch behind the scratch rows.

        Returns:
            The slot of each row.

        Raises:
            SlotOverflow, ValueError: As `Engine.forward`; nothing was changed.
        """
        slots_B, counts_B = batch.slots_E, np.diff(batch.starts_E)
        if not self._are_taken(slots_B):
            self._refuse(batch)
        firsts_B = self._scratch_S[slots_B]
        ends_B = firsts_B + counts_B
        if (
            counts_B.min() < 1
            or ends_B.max() > self.books.max_scratch
            or len(np.unique(slots_B)) < len(slots_B)
            or batch.tokens_R.min() < 0
            or batch.tokens_R.max() >= self.books.vocab_size
        ):
            self._refuse(batch)
        # Each row's place among its slot's scratch rows.
        shifts_B = firsts_B - batch.starts_E[:-1]
        places_R = np.arange(batch.num_rows) + np.repeat(shifts_B, counts_B)
        if batch.parents_R.min() < -1 or (batch.parents_R >= places_R).any():
            self._refuse(batch)
        if (self._cached_S[slots_B] + ends_B).max() > self.books.max_context:
            self._check_depths(batch)
        slots_R = np.repeat(slots_B, counts_B)
        self._tokens_SC[slots_R, places_R + 1] = batch.tokens_R
        self._parents_SC[slots_R, places_R] = batch.parents_R
        self._scratch_S[slots_B] = ends_B
        return slots_R

    def parent_tokens(self, slots_N: Int64s, parents_N: Int64s) -> Int64s:
        """The tokens of scratch rows, the last cached one for -1."""
        tokens_N: Int64s = self._tokens_SC[slots_N, parents_N + 1]
        return tokens_N

    def rebase(self, slot: int, path: Sequence[int], keep: Sequence[int] = ()) -> None:
        """See `Engine.rebase`."""
        self._require(slot)
        scratch = int(self._scratch_S[slot])
        parents = self._parents_SC[slot, :scratch].tolist()
        kept = _kept_parents(parents, path, keep)
        if kept is None:
            self._told(slot).rebase(path, keep)
            raise AssertionError("the books refuse what is refused here")
        row_C = self._tokens_SC[slot]
        tokens = row_C[1 : scratch + 1].tolist()
        if path:
            cached = self._cached[slot]
            cached += [tokens[node] for node in path]
            self._cached_S[slot] = len(cached)
            row_C[0] = cached[-1]
        if kept:
            row_C[1 : len(kept) + 1] = [tokens[node] for node in keep]
            self._parents_SC[slot, : len(kept)] = kept
        self._scratch_S[slot] = len(kept)

    def _cut(self, slot: int, length: int) -> None:
        cached = self._cached[slot]
        del cached[length:]
        self._cached_S[slot] = length
        self._scratch_S[slot] = 0
        self._tokens_SC[slot, 0] = cached[-1] if cached else START_TOKEN

    def _are_taken(self, slots_B: Int64s) -> bool:
        in_range = slots_B.min() >= 0 and slots_B.max() < len(self._cached)
        return bool(in_range and self._is_taken_S[slots_B].all())

    def _require(self, slot: int) -> None:
        if not (0 <= slot < len(self._cached) and self._is_taken_S[slot]):
            self.books.taken(slot)

    def _told(self, slot: int) -> Slot:
        """The books' slot, told what it holds by now."""
        held = self.books.taken(slot)
        held.cached = len(self._cached[slot])
        held.parents = self._parents_SC[slot, : int(self._scratch_S[slot])].tolist()
        held.depths, held.lineages = [], []
        for row, parent in enumerate(held.parents):
            held.depths.append(held.depths[parent] + 1 if parent >= 0 else 0)
            held.lineages.append((held.lineages[parent] if parent >= 0 else 0) | 1 << row)
        return held

    def _check_depths(self, batch: Sequence[Rows]) -> None:
        """Refuses rows that are too deep; called near the end of a context only."""
        for rows in batch:
            if self._is_known(rows.slot):
                self._told(rows.slot)
        self.books.check(batch)

    def _refuse(self, batch: Sequence[Rows]) -> None:
        self._check_depths(batch)
        raise AssertionError("the books refuse what is refused here")

    def _is_known(self, slot: int) -> bool:
        return 0 <= slot < len(self._cached) and bool(self._is_taken_S[slot])


def _kept_parents(parents: list[int], path: Sequence[int], keep: Sequence[int]) -> list[int] | None:
    """The new parents of the kept rows; None if `path` or `keep` is none of such rows. See `Slot.rebase`."""
    scratch, end = len(parents), -1
    for node in path:
        if not 0 <= node < scratch or parents[node] != end:
            return None
        end = node
    if not keep:
        return []
    renumbered, kept, last = {end: -1}, [], -1
    for new, node in enumerate(keep):
        if not last < node < scratch or parents[node] not in renumbered:
            return None
        kept.append(renumbered[parents[node]])
        renumbered[node] = new
        last = node
    return kept
