"""Slots that are given out with what they already hold: keys and values of a text are computed once while there is room.

A session that ends leaves its rows in its slot. The slot counts as free; the rows stay until another session needs it, the
least recently used first. A session that begins is given the longest beginning of its text that any slot holds: it takes
a free slot over where little else would be lost, otherwise the rows are copied. Used by target and drafters alike, by
the thread that runs the engine.

Invariants:

- Rows are shared only between texts with the very same token ids, of one engine, so of one model.
- The last token of a text is never taken over: its row gives the logits of what comes next.
- A session waits only for one that has begun, so there are no circles; and only while that one computes what both need.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.actors.engine.kv.prefix_index import WIDTH, PrefixIndex, pack
from outrider.actors.engine.protocol import Engine

SMALLEST_PREFIX = 16
"""Tokens from which rows are worth copying or keeping. Fewer cost less in the pass that comes anyway."""

SPARED_ROWS = 16
"""A kept text is cut by so many rows rather than copied: the end of an answer that a chat template writes differently."""

WORTH_WAITING = 64
"""Tokens from which a session waits for another request that is computing them. It loses a pass for the rest of its
prompt, which costs about as much. Sequences of one request have the whole prompt in common and wait from
`SMALLEST_PREFIX` on."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Tenant:
    """A session that has a slot."""

    group: int
    is_started: bool = False
    awaited: tuple[int, _Tenant, int] | None = None
    """Slot and tenant that compute a beginning of our text, and its length."""


class PrefixSlots:
    """The slots of an engine, and the texts in them."""

    def __init__(self, engine: Engine, *, is_shared: bool = True) -> None:
        """
        Args:
            engine: Whose slots; they are taken and freed only here from now on.
            is_shared: False: nothing is kept, and only sequences of one request share rows.
        """
        self._engine = engine
        self._is_shared = is_shared
        self._index = PrefixIndex()
        self._live: dict[int, _Tenant] = {}
        self._kept: dict[int, None] = {}
        """Free slots with rows, the least recently used first."""
        self._empty = list(range(engine.num_slots))
        """Free slots without rows, as a heap."""

    @property
    def num_slots(self) -> int:
        """Slots, free or taken."""
        return self._engine.num_slots

    @property
    def num_free(self) -> int:
        """Free slots, those with kept rows included."""
        return self._engine.num_free

    @property
    def num_kept(self) -> int:
        """Free slots with kept rows."""
        return len(self._kept)

    def take(self, tokens: Sequence[int], *, group: int = 0) -> int:
        """Takes a slot; the engine has cached as much of the text as could be found.

        Args:
            tokens: The text so far.
            group: Sequences of one request share this; 0: none.

        Raises:
            NoFreeSlot: Every slot is taken.
        """
        text = pack(tokens)
        slot = self._place(text[:-WIDTH]) if self._kept or self._empty else self._engine.acquire()
        self._index.put(slot, text)
        self._live[slot] = _Tenant(group=group)
        return slot

    def start(self, slot: int, *, may_wait: bool = True) -> bool:
        """Looks again before the first pass of a session: others may have computed a longer beginning meanwhile.

        Args:
            slot: The session's.
            may_wait: Whether to wait for one that is computing it. Who asks must run all others meanwhile.

        Returns:
            False: it is being computed; ask again after the next pass.
        """
        tenant = self._live[slot]
        if tenant.awaited is not None:
            source, other, length = tenant.awaited
            if self._live.get(source) is other and self._engine.cached(source) < length:
                return False
            tenant.awaited = None
        own, text = self._engine.cached(slot), self._index.text(slot)[:-WIDTH]
        others = self._others(slot)
        source, length = self._index.longest(text, [*self._kept, *others], self._rows)
        if may_wait:
            begun = [other for other in others if self._live[other].is_started]
            promising, promised = self._index.longest(text, begun)
            if promising >= 0 and promised - max(own, length) >= self._worth(tenant, promising):
                tenant.awaited = (promising, self._live[promising], promised)
                return False
        if length - own >= SMALLEST_PREFIX:
            self._engine.truncate(slot, 0)
            self._copy(source, slot, length)
        tenant.is_started = True
        return True

    def release(self, slot: int, tokens: Sequence[int] = ()) -> None:
        """Frees a slot.

        Args:
            slot: The slot.
            tokens: The text whose beginning its cached rows are. Empty: nothing is kept.
        """
        del self._live[slot]
        self._index.remove(slot)
        length = min(self._engine.cached(slot), len(tokens))
        if self._is_shared and length >= SMALLEST_PREFIX:
            self._index.put(slot, pack(tokens[:length]))
            if not any(self._index.within(slot, other) for other in self._kept):
                self._engine.release(slot, keep=length)
                for other in [o for o in self._kept if self._index.within(o, slot)]:
                    self._forget(other)
                self._kept[slot] = None
                return
            self._index.remove(slot)
        self._engine.release(slot)
        heapq.heappush(self._empty, slot)

    def rewrite(self, slot: int, keep: int) -> None:
        """Notes that the text of a session is another one after its first `keep` tokens."""
        self._index.cut(slot, keep)

    def _place(self, text: bytes) -> int:
        """Takes the best slot for a text, with what can be found of it."""
        others = self._live if self._is_shared else ()
        source, length = self._index.longest(text, [*self._kept, *others], self._rows)
        oldest = self._empty[0] if self._empty else next(iter(self._kept))
        if length < SMALLEST_PREFIX:
            return self._acquire(oldest)
        if source in self._kept:
            lost = self._index.length(source) - length
            if source == oldest or lost <= SPARED_ROWS:
                return self._acquire(source, keep=length)
        slot = self._acquire(oldest)
        self._copy(source, slot, length)
        return slot

    def _acquire(self, slot: int, *, keep: int = 0) -> int:
        if slot in self._kept:
            del self._kept[slot]
        else:
            heapq.heappop(self._empty)
        return self._engine.acquire(slot, keep=keep)

    def _copy(self, source: int, slot: int, length: int) -> None:
        self._engine.copy_prefix(source, slot, length)
        if source in self._kept:
            del self._kept[source]
            self._kept[source] = None

    def _forget(self, slot: int) -> None:
        del self._kept[slot]
        self._index.remove(slot)
        heapq.heappush(self._empty, slot)

    def _others(self, slot: int) -> list[int]:
        """Slots of other sessions that this one may share with, its siblings first."""
        group = self._live[slot].group
        others = [other for other in self._live if other != slot]
        siblings = [other for other in others if group and self._live[other].group == group]
        return list(dict.fromkeys([*siblings, *others])) if self._is_shared else siblings

    def _worth(self, tenant: _Tenant, other: int) -> int:
        is_sibling = tenant.group != 0 and tenant.group == self._live[other].group
        return SMALLEST_PREFIX if is_sibling else WORTH_WAITING

    def _rows(self, slot: int) -> int:
        """How many tokens of a slot's text have rows."""
        return self._engine.cached(slot) if slot in self._live else self._index.length(slot)
