"""The texts of sequences of one request, for each other: of those that run as far as they are, of those that ended all that they said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from outrider.actors.draft.state.draft_sessions import DraftSession
from outrider.actors.draft.trees.forest import Int64s


@dataclass(slots=True)
class _Group:
    """A request."""

    running: dict[int, DraftSession] = field(default_factory=dict)
    ended: dict[int, tuple[Int64s, int]] = field(default_factory=dict)
    """Text and prompt length by number."""


class SiblingTexts:
    """The requests that have sequences here."""

    def __init__(self, most_tokens: int) -> None:
        """
        Args:
            most_tokens: Tokens of sequences that have ended, of all requests together; beyond it the oldest are forgotten.
        """
        self._most_tokens = most_tokens
        self._groups: dict[int, _Group] = {}
        self._numbers: dict[int, int] = {}
        self._next = 0
        self.num_tokens = 0
        """Of sequences that have ended."""
        self._ended: dict[int, int] = {}
        """The group of each, by number, the oldest first."""

    def join(self, session: DraftSession) -> None:
        """Takes a session in; one whose request has no other sequence stays alone."""
        if session.group:
            number, self._next = self._next, self._next + 1
            self._numbers[session.row] = number
            self._groups.setdefault(session.group, _Group()).running[number] = session

    def leave(self, session: DraftSession) -> None:
        """A session is over for this drafter. Its text serves its siblings on, also those that have not begun."""
        number = self._numbers.pop(session.row, None)
        if number is None:
            return
        group = self._groups[session.group]
        del group.running[number]
        text_T = session.text_T.copy()
        group.ended[number] = (text_T, session.prompt_length)
        self._ended[number] = session.group
        self.num_tokens += len(text_T)
        while self.num_tokens > self._most_tokens:
            self._forget_oldest()

    def others(self, session: DraftSession) -> Iterator[tuple[int, Int64s, int]]:
        """Number, text and prompt length of each sibling. The texts may be views: not to be kept."""
        group = self._groups.get(session.group)
        if group is None:
            return
        for number, (text_T, prompt_length) in group.ended.items():
            yield number, text_T, prompt_length
        for number, other in group.running.items():
            if other is not session:
                yield number, other.text_T, other.prompt_length

    def _forget_oldest(self) -> None:
        number = next(iter(self._ended))
        of = self._ended.pop(number)
        group = self._groups[of]
        text_T, _ = group.ended.pop(number)
        self.num_tokens -= len(text_T)
        if not group.ended and not group.running:
            del self._groups[of]
