"""Where the end of a text stood before, in that text or in others. Pure.

The suffix tree of bounded depth that suffix decoding is built on (Oliaro et al. 2024, arXiv 2411.04975) is not stored here: a node of it,
a run of tokens, *is* the set of places that follow the run, the node's count is their number, and its children are these places by the
token that stands there. Texts stay the only memory, the counts are those of the tree, and a long prompt costs nothing to take in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Texts = Mapping[int, NDArray[np.integer]]
"""Token ids by a text's number, which is not negative."""

_BITS = 40
_INDEX = (1 << _BITS) - 1

MOST_PLACES = 128
"""Places that are looked at, the newest: bounds the work where a short run stands everywhere."""


def place_of(number: int, index: int) -> int:
    """A place in a text as one integer. Greater ones are later; the next place is one more."""
    return number << _BITS | index


def places_after(
    text_T: NDArray[np.integer], tail: Sequence[int], *, number: int = 0, first: int = 1
) -> list[int]:
    """Places in a text that follow a run of tokens, the newest first, at most `MOST_PLACES`.

    Args:
        text_T: The text; a place at its end, which no token follows yet, does not count.
        tail: The run, at least one token.
        number: Of the text.
        first: Least index.
    """
    found = (text_T[first - 1 : -1] == tail[-1]).nonzero()[0] + first
    for back, token in enumerate(reversed(tail[:-1]), start=2):
        found = found[found >= back]
        found = found[text_T[found - back] == token]
    return [place_of(number, index) for index in found[::-1][:MOST_PLACES].tolist()]


def matches(
    texts: Texts, places: Sequence[int], tail: Sequence[int], *, longest: int
) -> list[tuple[int, list[int]]]:
    """Runs at the end of a text that stood at the given places, by length.

    Args:
        texts: What the places are in.
        places: They follow a token; those that are preferred first.
        tail: The end of the text.
        longest: Tokens of a run that are compared, at most.

    Returns:
        (length, places) for each length that fewer places match than the next lesser one, the longest first. Places that match
        longer come first, and those of a length in the order given.
    """
    by_length: dict[int, list[int]] = {}
    for place in places:
        text_T, index = texts[place >> _BITS], place & _INDEX
        most = min(longest, index, len(tail))
        length = 0
        while length < most and text_T.item(index - 1 - length) == tail[-1 - length]:
            length += 1
        by_length.setdefault(length, []).append(place)
    by_length.pop(0, None)
    found: list[tuple[int, list[int]]] = []
    so_far: list[int] = []
    for length in sorted(by_length, reverse=True):
        so_far = [*so_far, *by_length[length]]
        found.append((length, so_far))
    return found


def followers(texts: Texts, places: Sequence[int]) -> dict[int, list[int]]:
    """The places behind these, by the token that stands at them; places at the end of a text have none."""
    found: dict[int, list[int]] = {}
    for place in places:
        text_T, index = texts[place >> _BITS], place & _INDEX
        if index < len(text_T):
            found.setdefault(text_T.item(index), []).append(place + 1)
    return found
