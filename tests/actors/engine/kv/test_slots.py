"""The books of slots against lists of nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    precondition,
    rule,
)

from outrider.actors.engine.kv.moved_rows import moved_rows
from outrider.actors.engine.kv.slots import SlotTable
from outrider.actors.engine.protocol import Moves, NoFreeSlot, Rows, SlotOverflow

NUM_SLOTS = 3
MAX_CONTEXT = 12
MAX_SCRATCH = 6


@dataclass(eq=False)
class Node:
    """A row as an object, linked to its parent; a slot is a chain of them with a tree below."""

    parent: Node | None


@dataclass
class Reference:
    """One slot."""

    cached: list[Node] = field(default_factory=list)
    scratch: list[Node] = field(default_factory=list)

    def ancestors(self, node: Node) -> list[Node]:
        """From the node up to the last cached row, exclusive."""
        found = []
        step: Node | None = node
        while step is not None and step in self.scratch:
            found.append(step)
            step = step.parent
        return found


class SlotBooks(RuleBasedStateMachine):
    """Random calls, right and wrong."""

    taken = Bundle("taken")

    def __init__(self) -> None:
        super().__init__()
        self.table = SlotTable(
            num_slots=NUM_SLOTS, max_context=MAX_CONTEXT, max_scratch=MAX_SCRATCH, vocab_size=10
        )
        self.slots: dict[int, Reference] = {}
        self.kept: dict[int, list[Node]] = {slot: [] for slot in range(NUM_SLOTS)}

    @rule(target=taken)
    def acquire(self) -> object:
        """The lowest free slot, or an error."""
        free = sorted(set(range(NUM_SLOTS)) - set(self.slots))
        if not free:
            with pytest.raises(NoFreeSlot):
                self.table.acquire()
            return multiple()
        assert free[0] == self.table.acquire()
        self.slots[free[0]] = Reference()
        self.kept[free[0]] = []
        return free[0]

    @rule(target=taken, slot=st.integers(-1, NUM_SLOTS), keep=st.integers(-1, MAX_CONTEXT))
    def acquire_kept(self, slot: int, keep: int) -> object:
        """A certain slot with rows that were kept, if it is free and has them."""
        is_free = slot in self.kept and slot not in self.slots
        if not is_free or not 0 <= keep <= len(self.kept[slot]):
            with pytest.raises(ValueError, match=f"slot {slot} "):
                self.table.acquire(slot, keep=keep)
            return multiple()
        assert slot == self.table.acquire(slot, keep=keep)
        self.slots[slot] = Reference(cached=self.kept[slot][:keep])
        self.kept[slot] = []
        return slot

    @rule(slot=consumes(taken))
    def release(self, slot: int) -> None:
        """Frees, and forgets the rows."""
        self.table.release(slot)
        del self.slots[slot]
        self.kept[slot] = []

    @rule(target=taken, slot=consumes(taken), keep=st.integers(-1, MAX_CONTEXT))
    def release_and_keep(self, slot: int, keep: int) -> object:
        """Frees, and keeps rows if there are so many."""
        held = self.slots[slot]
        if not 0 <= keep <= len(held.cached):
            with pytest.raises(ValueError, match="cannot keep"):
                self.table.release(slot, keep=keep)
            return slot
        self.table.release(slot, keep=keep)
        del self.slots[slot]
        self.kept[slot] = held.cached[:keep]
        return multiple()

    @rule(slot=taken, data=st.data())
    def forward(self, slot: int, data: st.DataObject) -> None:
        """Adds rows if they fit."""
        held = self.slots[slot]
        count = data.draw(st.integers(1, MAX_SCRATCH))
        first = len(held.scratch)
        parents = [data.draw(st.integers(-1, row - 1)) for row in range(first, first + count)]
        nodes = list(held.scratch)
        for parent in parents:
            root = held.cached[-1] if held.cached else None
            nodes.append(Node(parent=nodes[parent] if parent >= 0 else root))
        grown = Reference(cached=held.cached, scratch=nodes)
        positions = [len(held.cached) + len(grown.ancestors(node)) - 1 for node in nodes[first:]]
        rows = Rows(slot=slot, tokens=[0] * count, parents=parents)
        if len(nodes) > MAX_SCRATCH or max(positions) >= MAX_CONTEXT:
            with pytest.raises(SlotOverflow):
                self.table.check([rows])
            return
        added = self.table.check([rows])
        assert positions == (added.cached_B[0] + added.depths_R).tolist()
        self.table.grow(added)
        self.slots[slot] = grown

    @rule(slot=taken, data=st.data())
    def rebase(self, slot: int, data: st.DataObject) -> None:
        """Commits a path and keeps rows, if the choice is one that can be."""
        held = self.slots[slot]
        numbers = st.integers(0, max(0, len(held.scratch) - 1))
        is_real: bool = data.draw(st.booleans())
        if held.scratch and is_real:
            chosen = held.ancestors(held.scratch[data.draw(numbers)])[::-1]
            path = [held.scratch.index(node) for node in chosen]
        else:
            path = data.draw(st.lists(numbers, max_size=3))
        keep = sorted(data.draw(st.sets(numbers, max_size=4)))
        if data.draw(st.booleans()):
            keep = self.below(held, path[-1] if path else -1)
        if not self.can_rebase(held, path, keep):
            with pytest.raises(ValueError, match=f"slot {slot}: "):
                self.table.rebase(Moves.one(slot, path, keep))
            return
        self.table.rebase(Moves.one(slot, path, keep))
        moved = moved_rows(Moves.one(slot, path, keep), self.table.cached_S)
        order = [*range(len(held.cached)), *(len(held.cached) + row for row in path + keep)]
        assert list(zip(moved.sources_N, moved.targets_N, strict=True)) == [
            (row, place) for place, row in enumerate(order) if row != place
        ]
        self.slots[slot] = Reference(
            cached=held.cached + [held.scratch[row] for row in path],
            scratch=[held.scratch[row] for row in keep],
        )

    @staticmethod
    def below(held: Reference, end: int) -> list[int]:
        """All rows below a row, or below the last cached one."""
        if end < 0:
            return list(range(len(held.scratch)))
        if end >= len(held.scratch):
            return []
        top = held.scratch[end]
        return [
            row
            for row, node in enumerate(held.scratch)
            if node is not top and top in held.ancestors(node)
        ]

    @staticmethod
    def can_rebase(held: Reference, path: list[int], keep: list[int]) -> bool:
        """Whether a choice is a path from the last cached row, and rows hanging together below it."""
        if any(row >= len(held.scratch) for row in [*path, *keep]):
            return False
        end = held.cached[-1] if held.cached else None
        for row in path:
            if held.scratch[row].parent is not end:
                return False
            end = held.scratch[row]
        kept = [end]
        for row in keep:
            if held.scratch[row].parent not in kept or row in path:
                return False
            kept.append(held.scratch[row])
        return True

    @rule(slot=taken, length=st.integers(-1, MAX_CONTEXT))
    def truncate(self, slot: int, length: int) -> None:
        """Cuts, if there is as much."""
        held = self.slots[slot]
        if not 0 <= length <= len(held.cached):
            with pytest.raises(ValueError, match="cannot truncate"):
                self.table.truncate(slot, length)
            return
        self.table.truncate(slot, length)
        self.slots[slot] = Reference(cached=held.cached[:length])

    @precondition(lambda self: self.slots)
    @rule(source=taken, destination=taken, length=st.integers(0, MAX_CONTEXT))
    def copy_prefix(self, source: int, destination: int, length: int) -> None:
        """Copies to an empty slot."""
        held, other = self.slots[source], self.slots[destination]
        if length > len(held.cached) or other.cached or other.scratch:
            with pytest.raises(ValueError, match="copy"):
                self.table.copy_prefix(source, destination, length)
            return
        self.table.copy_prefix(source, destination, length)
        self.slots[destination] = Reference(cached=held.cached[:length])

    @rule(source=st.integers(0, NUM_SLOTS), destination=taken, length=st.integers(0, MAX_CONTEXT))
    def copy_kept_prefix(self, source: int, destination: int, length: int) -> None:
        """Copies from a free slot what was kept there."""
        if source in self.slots:
            return
        kept, other = self.kept.get(source, []), self.slots[destination]
        if length > len(kept) or other.cached or other.scratch or source not in self.kept:
            with pytest.raises(ValueError, match=r"copy|no slot"):
                self.table.copy_prefix(source, destination, length)
            return
        self.table.copy_prefix(source, destination, length)
        self.slots[destination] = Reference(cached=kept[:length])

    @invariant()
    def books_agree(self) -> None:
        """Counts, parents, depths and lineages are those of the linked nodes."""
        assert NUM_SLOTS - len(self.slots) == self.table.num_free
        for slot, kept in self.kept.items():
            if slot not in self.slots:
                assert len(kept) == self.table.reusable(slot)
        for slot, reference in self.slots.items():
            assert len(reference.cached) == self.table.cached(slot)
            assert len(reference.scratch) == self.table.scratch(slot)
            parents = self.table.parents(slot)
            for row, node in enumerate(reference.scratch):
                lineage = reference.ancestors(node)
                parent = reference.scratch.index(lineage[1]) if len(lineage) > 1 else -1
                assert parent == parents[row]
                if len(reference.scratch) == MAX_SCRATCH:
                    continue
                below = Rows(slot=slot, tokens=[0], parents=[row])
                if len(reference.cached) + len(lineage) >= MAX_CONTEXT:
                    with pytest.raises(SlotOverflow):
                        self.table.check([below])
                    continue
                child = self.table.check([below])
                bits = sum(1 << reference.scratch.index(each) for each in lineage)
                assert child.depths_R.tolist() == [len(lineage)]
                assert child.lineages_RW.tolist() == [[bits | 1 << len(reference.scratch)]]


SlotBooks.TestCase.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
test_books_agree_with_linked_nodes = SlotBooks.TestCase


@given(st.sampled_from(["num_slots", "max_context", "max_scratch"]), st.integers(-3, 0))
def test_sizes_must_be_positive(name: str, size: int) -> None:
    """A size below one is refused by name."""
    sizes: dict[str, Any] = {
        "num_slots": 1,
        "max_context": 1,
        "max_scratch": 1,
        "vocab_size": 1,
        name: size,
    }
    with pytest.raises(ValueError, match=f"{name} is {size}"):
        SlotTable(**sizes)


def test_a_wrong_entry_spoils_the_whole_batch() -> None:
    """One entry that does not fit, and none of the batch is taken."""
    table = SlotTable(num_slots=2, max_context=9, max_scratch=2, vocab_size=10)
    assert (table.acquire(), table.acquire()) == (0, 1)
    good = Rows(slot=0, tokens=[1], parents=[-1])
    with pytest.raises(SlotOverflow, match="slot 1: 3 more rows behind 0 scratch rows"):
        table.check([good, Rows(slot=1, tokens=[1, 1, 1], parents=[-1, -1, -1])])
    assert table.scratch(0) == 0
