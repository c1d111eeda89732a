"""What was said before: the outputs of sessions that are over, the newest of them, bounded in tokens."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from outrider.actors.draft.text.occurrences import MOST_PLACES, Texts, place_of


class OutputMemory:
    """Texts, oldest first out, and where each pair of tokens stands in them: about 250 bytes a token."""

    def __init__(self, most_tokens: int) -> None:
        """
        Args:
            most_tokens: Tokens of all texts together.
        """
        self._most_tokens = most_tokens
        self._texts: dict[int, NDArray[np.int32]] = {}
        self._firsts: dict[int, int] = {}
        """Least place of each text that follows anything."""
        self._places: dict[tuple[int, int], list[int]] = {}
        self._next = 0
        self.num_tokens = 0
        """Of all texts together."""

    @property
    def texts(self) -> Texts:
        """What is remembered, the oldest first."""
        return self._texts

    def add(self, tokens_T: NDArray[np.integer], *, context: int = 0) -> None:
        """Remembers a text, of one that is too long the end; forgets the oldest ones if there is no room.

        Args:
            tokens_T: The text, with what stood before it.
            context: Tokens at its beginning that matches may begin in, but that do not follow anything.
        """
        text_T = tokens_T[-self._most_tokens :].astype(np.int32)
        # A place follows two tokens.
        first = max(context - (len(tokens_T) - len(text_T)), 2)
        if len(text_T) <= first:
            return
        while self.num_tokens + len(text_T) > self._most_tokens:
            self._forget_oldest()
        number, self._next = self._next, self._next + 1
        self._texts[number], self._firsts[number] = text_T, first
        self.num_tokens += len(text_T)
        for index, pair in _pairs(text_T, first):
            self._places.setdefault(pair, []).append(place_of(number, index))

    def places_after(self, tail: Sequence[int]) -> list[int]:
        """Places that follow the last two tokens of a text, the newest first, at most `MOST_PLACES`."""
        if len(tail) < 2:
            return []
        return self._places.get((tail[-2], tail[-1]), [])[: -MOST_PLACES - 1 : -1]

    def _forget_oldest(self) -> None:
        number = next(iter(self._texts))
        text_T, first = self._texts.pop(number), self._firsts.pop(number)
        self.num_tokens -= len(text_T)
        for _, pair in _pairs(text_T, first):
            # Places are in the order of their texts: the oldest text's come first.
            places = self._places[pair]
            del places[0]
            if not places:
                del self._places[pair]


def _pairs(text_T: NDArray[np.int32], first: int) -> list[tuple[int, tuple[int, int]]]:
    """From the place `first` on, each place and the pair of tokens that it follows."""
    tokens = text_T[first - 2 : -1].tolist()
    return list(enumerate(itertools.pairwise(tokens), start=first))
