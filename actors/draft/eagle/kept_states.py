"""States of rows that were computed for a tree, kept when the tree is dropped: the next one may take them instead of computing its own.

Source: Chen et al. 2026, arXiv 2602.21224 (Lyanna). A kept state is of use as long as its position is not committed. How near it is to what would be
computed is told by three grades, from the token that its row read and the one before that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import torch


class Grade(IntEnum):
    """What a row's state is."""

    COMPUTED = 0
    """The net's own, or nothing."""

    SAME_PAIR = 1
    """Kept, of a row that read the same token behind the same one."""

    SAME_TOKEN = 2
    """Kept, of a row that read the same token behind another."""

    OTHER_TOKEN = 3
    """Kept, of a row at the same position that read another token, which is replaced in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A state for a row."""

    place: int
    """Of the state in the store."""
    read: int
    """The token that its row read."""
    grade: Grade


@dataclass(slots=True)
class _Position:
    """What is kept of a position; of each the newest place."""

    pairs: dict[tuple[int, int], int] = field(default_factory=dict)
    tokens: dict[int, int] = field(default_factory=dict)
    siblings: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By the token before: the token of the first row below it, and its place."""
    first: tuple[int, int] | None = None


class KeptStates:
    """Of one slot: the newest `capacity` states."""

    def __init__(self, capacity: int, width: int, device: torch.device) -> None:
        """Empty.

        Args:
            capacity: States, at most.
            width: Numbers of a state.
            device: Where they are.
        """
        self.states_KD = torch.zeros(capacity, width, device=device)
        self._keys: list[tuple[int, int, int] | None] = [None] * capacity
        self._by_position: dict[int, _Position] = {}
        self._next = 0

    def keep(self, position: int, before: int, token: int) -> int:
        """A place for the state of a row, which takes that of the oldest one.

        Args:
            position: Of the row's token.
            before: The token before it.
            token: The token.

        Returns:
            Where in `states_KD` it is to be written.
        """
        place = self._next
        self._next = (place + 1) % len(self._keys)
        self._drop(place)
        self._keys[place] = (position, before, token)
        here = self._by_position.setdefault(position, _Position())
        here.pairs[before, token] = here.tokens[token] = place
        here.siblings.setdefault(before, (token, place))
        here.first = here.first or (token, place)
        return place

    def find(self, position: int, before: int, token: int) -> Found | None:
        """The nearest state for a row, arguments as `keep`; None: nothing is kept of its position."""
        here = self._by_position.get(position)
        if here is None:
            return None
        if (place := here.pairs.get((before, token))) is not None:
            return Found(place=place, read=token, grade=Grade.SAME_PAIR)
        if (place := here.tokens.get(token)) is not None:
            return Found(place=place, read=token, grade=Grade.SAME_TOKEN)
        found = here.siblings.get(before) or here.first
        if found is None:
            return None
        return Found(place=found[1], read=found[0], grade=Grade.OTHER_TOKEN)

    def forget_before(self, position: int) -> None:
        """Drops what is kept of positions below."""
        for old in [one for one in self._by_position if one < position]:
            del self._by_position[old]

    def clear(self) -> None:
        """Drops everything."""
        self._by_position.clear()

    def _drop(self, place: int) -> None:
        if (key := self._keys[place]) is None or (here := self._by_position.get(key[0])) is None:
            return
        _, before, token = key
        if here.pairs.get((before, token)) == place:
            del here.pairs[before, token]
        if here.tokens.get(token) == place:
            del here.tokens[token]
        if here.siblings.get(before) == (token, place):
            del here.siblings[before]
        if here.first == (token, place):
            here.first = None
