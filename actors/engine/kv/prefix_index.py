"""Which texts lie in which slots, and how much of a new one each of them begins with.

Texts are compared token by token, never by hash, so a match is certain. Cost: a comparison of bytes at C speed for each slot,
and a bisection for those that beat the best so far; some ten microseconds for 64 texts of 2000 tokens.

Pure. Which rows of a text are really there is not known here.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence

WIDTH = array("I").itemsize
"""Bytes of a packed token id: four, so ids up to 2**32."""


def pack(tokens: Sequence[int]) -> bytes:
    """Token ids as bytes."""
    return array("I", tokens).tobytes()


class PrefixIndex:
    """The texts of slots."""

    def __init__(self) -> None:
        self._texts: dict[int, bytes] = {}

    def put(self, slot: int, text: bytes) -> None:
        """Sets the text of a slot."""
        self._texts[slot] = text

    def remove(self, slot: int) -> None:
        """Forgets the text of a slot, if it has one."""
        self._texts.pop(slot, None)

    def cut(self, slot: int, length: int) -> None:
        """Forgets a text's tokens from `length` on."""
        self._texts[slot] = self._texts[slot][: WIDTH * length]

    def text(self, slot: int) -> bytes:
        """The text of a slot, packed."""
        return self._texts[slot]

    def length(self, slot: int) -> int:
        """Number of tokens of a slot's text."""
        return len(self._texts[slot]) // WIDTH

    def longest(
        self, text: bytes, slots: Iterable[int], rows: Callable[[int], int] | None = None
    ) -> tuple[int, int]:
        """The slot whose text has the longest beginning in common with a new text; of equal ones the first.

        Args:
            text: The new text.
            slots: Slots to look at.
            rows: Gives how many tokens of a slot's text count; None: all of them.

        Returns:
            The slot and the number of common tokens; (-1, 0) if there are none.
        """
        best, length, whole = -1, 0, len(text) // WIDTH
        # One token more than the best so far: whoever lacks that cannot beat it.
        needed = text[:WIDTH]
        for slot in slots:
            if length == whole:
                break
            theirs = self._texts[slot]
            if not theirs.startswith(needed):
                continue
            limit = whole if rows is None else min(rows(slot), whole)
            common = common_length(theirs, text, known=length, limit=limit)
            if common > length:
                best, length, needed = slot, common, text[: WIDTH * (common + 1)]
        return best, length

    def within(self, slot: int, other: int) -> bool:
        """True if a slot's text is the beginning of another's, or all of it."""
        return self._texts[other].startswith(self._texts[slot])


def common_length(first: bytes, second: bytes, *, known: int = 0, limit: int | None = None) -> int:
    """Number of tokens that two packed texts have in common at their beginnings.

    Args:
        first: A text.
        second: Another.
        known: Tokens that are known to be common.
        limit: Greatest number that is asked for; None: as long as the shorter text.
    """
    view = memoryview(second)
    low, high = known, min(len(first), len(second)) // WIDTH
    if limit is not None:
        high = min(high, limit)
    while low < high:
        middle = (low + high + 1) // 2
        if first.startswith(view[WIDTH * low : WIDTH * middle], WIDTH * low):
            low = middle
        else:
            high = middle - 1
    return low
