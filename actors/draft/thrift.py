"""How much a candidate must be worth to be sent, so that a committed token costs about as many bytes as wanted.

A target that has more candidates below its text needs not wait for them, and most of what is sent comes to nothing all the same:
how many bytes that takes depends on the text, the models and the way there. So the floor follows what was spent: it falls while
tokens are cheap, down to the floor of what is run at all, and rises where they are dear. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

MESSAGE_BYTES = 48
"""What a message costs beside its nodes: the session, the base, and the frames of gRPC, HTTP/2 and its answer."""

VERDICT_BYTES = 48
"""What a verdict costs, its frames included."""

MEMORY_TOKENS = 64.0
"""Tokens after which what was spent before weighs a third: a few dozen rounds of one session."""

SPEED = 1.0
"""How fast the floor moves, per `MEMORY_TOKENS`: by this power of e where twice the wanted bytes are spent."""

LARGEST_SURPRISE = 4.0
"""What one verdict's tokens cost counts as this many times what is wanted, at most: what was sent in vain to a target that was
away is no law."""

LEAST = 0.24
"""Lowest part of the floor. Below it lies what is not even run (`RUN_SHARE`), which was of no use when it was sent."""

BEGINNING = 0.5
"""Part of the floor before anything is known: half way, in the logarithm."""


class Thrift:
    """The floor of one target's link: every session there adds to what is spent."""

    def __init__(self, bytes_per_token: float) -> None:
        """
        Args:
            bytes_per_token: Wanted, on the wire, both ways.
        """
        self._wanted = bytes_per_token
        self._spent = 0.0
        self._mean = 0.0
        self._weight = 0.0
        self.share = BEGINNING
        """What a candidate must be worth to be sent, as a part of `SENT_SHARE` of an average place; `LEAST` to 1."""

    def sent(self, tokens: Sequence[int]) -> None:
        """Takes in that a message with these tokens went out."""
        self._spent += MESSAGE_BYTES + sum(3 if t < 128 else 4 if t < 16384 else 5 for t in tokens)

    def committed(self, num_tokens: int) -> None:
        """Takes in a verdict over so many tokens, and moves the floor."""
        if num_tokens < 1:
            return
        each = min((self._spent + VERDICT_BYTES) / num_tokens, LARGEST_SURPRISE * self._wanted)
        self._spent = 0.0
        kept = exp(-num_tokens / MEMORY_TOKENS)
        self._mean = kept * self._mean + (1.0 - kept) * each
        self._weight = kept * self._weight + (1.0 - kept)
        excess = self._mean / self._weight / self._wanted - 1.0
        moved = self.share * exp(SPEED * num_tokens / MEMORY_TOKENS * min(excess, 1.0))
        self.share = min(max(moved, LEAST), 1.0)
