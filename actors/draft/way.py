"""How far away a target is, counted in tokens: how much it commits while a message is on its way to it. Pure.

Verdicts tell which message the target had seen (`Verdict.seen`). A message that the verdict before had not seen came in after that,
so the text had grown at least as far: nodes no deeper than that were passed when they came. Without a delay nothing is.
"""

from __future__ import annotations

from collections import deque

SAMPLES = 4
"""Messages, of which the one that was passed least counts: a single late one does not keep back what would be in time."""

MOST_UNDER_WAY = 256
"""Messages that are remembered: far more than there are unless a target tells nothing of them."""


class Way:
    """The way of one session's messages."""

    def __init__(self) -> None:
        self._under_way: deque[tuple[int, int]] = deque(maxlen=MOST_UNDER_WAY)
        self._samples: deque[int] = deque(maxlen=SAMPLES)

    @property
    def num_tokens(self) -> int:
        """Levels below the base that are passed when a message that leaves now comes in; 0 until enough is known."""
        return min(self._samples) if len(self._samples) == SAMPLES else 0

    def left(self, number: int, length: int) -> None:
        """A message left, below a base of this length."""
        self._under_way.append((number, length))

    def heard(self, seen: int, before: int) -> None:
        """A verdict came.

        Args:
            seen: The last message that the target had taken in.
            before: Number of tokens that were committed before the verdict's round.
        """
        if not self._under_way:
            # Nothing was sent, perhaps because all of it seemed too late: let something go and see.
            self._samples.append(max(self.num_tokens - 1, 0))
        while self._under_way and self._under_way[0][0] <= seen:
            _, length = self._under_way.popleft()
            self._samples.append(max(before - length, 0))

    def forget(self) -> None:
        """Verdicts were left out, so that what they would have told is not known."""
        self._under_way.clear()
        self._samples.clear()
