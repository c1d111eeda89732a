"""The text of one sequence's tokens, as far as it is certain, up to the first stop string. Pure.

A token that may itself end the output (a stop token) has no text until it is known that it did not: it is held back until
more tokens come, or the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from outrider.cluster.text.detokenise import Detokeniser
from outrider.cluster.text.stops import Passed, StopStrings


class Read(NamedTuple):
    """What some tokens made certain."""

    text: str
    """Text that is output for certain; nothing without a detokeniser."""

    stop: str | None
    """The stop string that they completed; None while the output goes on."""

    num_read: int
    """Tokens up to the one that completed it, that one included; all of them while the output goes on."""


class OutputText:
    """Turns tokens into text."""

    def __init__(
        self,
        *,
        detokeniser: Detokeniser | None,
        stops: tuple[str, ...],
        stop_tokens: frozenset[int],
        min_tokens: int,
    ) -> None:
        """Takes what decides text and end.

        Args:
            detokeniser: Turns tokens into text; None: there is no text.
            stops: Stop strings.
            stop_tokens: Token ids that may end the output.
            min_tokens: Stop strings completed before this many tokens do not end it.
        """
        self._detokeniser = detokeniser
        self._stops = StopStrings(stops)
        self._has_stops = bool(stops)
        self._stop_tokens = stop_tokens
        self._min_tokens = min_tokens
        self._unread: int | None = None

    def read(self, ids: list[int], num_before: int) -> Read:
        """Takes in the next tokens.

        Args:
            ids: Token ids.
            num_before: Number of tokens read before.
        """
        if not self._has_stops:
            return Read(text=self._certain(ids), stop=None, num_read=len(ids))
        text = ""
        for num_read, token in enumerate(ids, 1):
            is_armed = num_before + num_read >= self._min_tokens
            passed = self._stops.feed(self._certain([token]), armed=is_armed)
            text += passed.text
            if passed.stop is not None:
                return Read(text=text, stop=passed.stop, num_read=num_read)
        return Read(text=text, stop=None, num_read=len(ids))

    def drop_stop_token(self) -> None:
        """The last token ended the output, so it has no text."""
        self._unread = None

    def finish(self, num_tokens: int, *, may_stop: bool) -> Passed:
        """The text still held back, which may itself complete a stop string.

        Args:
            num_tokens: Number of tokens read.
            may_stop: False if a stop string completed here must not end the output.
        """
        ids = [] if self._unread is None else [self._unread]
        self._unread = None
        rest = ""
        if self._detokeniser is not None:
            rest = self._detokeniser.feed(ids) + self._detokeniser.flush()
        passed = self._stops.feed(rest, armed=may_stop and num_tokens >= self._min_tokens)
        if passed.stop is not None:
            return passed
        return Passed(text=passed.text + self._stops.flush(), stop=None)

    def _certain(self, ids: Sequence[int]) -> str:
        """Text that some tokens make certain. A last token that may end the output waits."""
        if self._detokeniser is None:
            return ""
        if self._unread is not None:
            ids = [self._unread, *ids]
            self._unread = None
        if ids and ids[-1] in self._stop_tokens:
            self._unread = ids[-1]
            ids = ids[:-1]
        return self._detokeniser.feed(ids)
