"""The tokens that every slot holds, in arrays: what an engine needs to keep whose model is a table.

Rows of a batch are checked and added by a fixed number of array operations, whatever the number of sessions. Seldom operations
and refusals go through the books that real engines keep (`slots.SlotTable`), so that both refuse the same in the same words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from outrider.actors.engine.protocol import Rows
from outrider.actors.engine.slot import Slot
from outrider.actors.engine.slots import SlotTable

START_TOKEN = 0
"""Stands before the first token of a text for whoever looks further back."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Packed:
    """A batch as arrays: B entries, R rows in all."""

    slots_B: Ints
    counts_B: Ints
    """Rows of each entry."""

    tokens_R: Ints
    parents_R: Ints
    first_wanted_B: Ints
    """Rows of each entry before the first that logits are wanted for; all that follow it are wanted."""


def packed(batch: Sequence[Rows]) -> Packed:
    """Packs a batch; entries may be wrong still.

    Raises:
        ValueError: The batch is empty.
    """
    if not batch:
        raise ValueError("the batch is empty; give at least one entry")
    slots: list[int] = []
    counts: list[int] = []
    wanted: list[int] = []
    tokens: list[int] = []
    parents: list[int] = []
    for rows in batch:
        count = len(rows.tokens)
        slots.append(rows.slot)
        # An entry with other than one parent a token is found by the books.
        counts.append(count if count == len(rows.parents) else 0)
        wanted.append(0 if rows.logits == "all" else count - (rows.logits == "last"))
        tokens += rows.tokens
        parents += rows.parents
    return Packed(
        slots_B=np.array(slots, dtype=np.int64),
        counts_B=np.array(counts, dtype=np.int64),
        tokens_R=np.array(tokens, dtype=np.int64),
        parents_R=np.array(parents, dtype=np.int64),
        first_wanted_B=np.array(wanted, dtype=np.int64),
    )


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
            keeps_masks=False,
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

    def scratch(self, slot: int) -> int:
        """Number of scratch tokens."""
        self._require(slot)
        return int(self._scratch_S[slot])

    def context(self, slots_B: Ints) -> int:
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

    def add(self, batch: Sequence[Rows], rows: Packed) -> tuple[Ints, Ints]:
        """Adds the rows of a batch behind the scratch rows.

        Args:
            batch: The batch as it came, for what a refusal says.
            rows: The same, packed.

        Returns:
            For each row its slot, and its column in `parent_tokens`.

        Raises:
            SlotOverflow, ValueError: As `Engine.forward`; nothing was changed.
        """
        slots_B, counts_B = rows.slots_B, rows.counts_B
        if not self._are_taken(slots_B):
            self._refuse(batch)
        firsts_B = self._scratch_S[slots_B]
        ends_B = firsts_B + counts_B
        num_rows = len(rows.tokens_R)
        if (
            counts_B.min() < 1
            or len(rows.parents_R) != num_rows
            or ends_B.max() > self.books.max_scratch
            or len(np.unique(slots_B)) < len(slots_B)
            or rows.tokens_R.min() < 0
            or rows.tokens_R.max() >= self.books.vocab_size
        ):
            self._refuse(batch)
        # Each row's place among its slot's scratch rows.
        shifts_B = firsts_B - (np.cumsum(counts_B) - counts_B)
        places_R = np.arange(num_rows) + np.repeat(shifts_B, counts_B)
        if rows.parents_R.min() < -1 or (rows.parents_R >= places_R).any():
            self._refuse(batch)
        if (self._cached_S[slots_B] + ends_B).max() > self.books.max_context:
            self._check_depths(batch)
        slots_R = np.repeat(slots_B, counts_B)
        self._tokens_SC[slots_R, places_R + 1] = rows.tokens_R
        self._parents_SC[slots_R, places_R] = rows.parents_R
        self._scratch_S[slots_B] = ends_B
        return slots_R, places_R

    def parent_tokens(self, slots_N: Ints, parents_N: Ints) -> Ints:
        """The tokens of scratch rows, the last cached one for -1."""
        tokens_N: Ints = self._tokens_SC[slots_N, parents_N + 1]
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

    def _are_taken(self, slots_B: Ints) -> bool:
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
