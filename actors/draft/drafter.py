"""What a drafting method must offer to the worker."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from outrider.actors.draft.session import DraftSession


class CannotDraft(Exception):
    """The method cannot serve this session; the message says why and what to do."""


class NoRoom(Exception):
    """Every place is taken; attach the session to another drafter, or configure more slots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What one unit of work did."""

    worked: bool
    """False: there is nothing to do until something arrives."""

    grown: Sequence[DraftSession] = ()
    """Sessions whose tree has new nodes."""


class Drafter(Protocol):
    """Grows candidate trees of sessions. Used by one thread."""

    @property
    def num_slots(self) -> int:
        """Sessions that can be served at a time."""
        ...

    @property
    def num_free_slots(self) -> int:
        """Sessions that can be attached."""
        ...

    def attach(self, session: DraftSession) -> None:
        """Makes room for a session.

        Raises:
            NoRoom: Every place is taken.
            CannotDraft: The session is not one that this method can serve.
        """
        ...

    def detach(self, session: DraftSession) -> None:
        """Frees the session's room."""
        ...

    def extend(self, session: DraftSession, tokens: Sequence[int]) -> None:
        """Takes tokens as committed, learns from them, and keeps what grew below them."""
        ...

    def rewrite(self, session: DraftSession, keep: int, tokens: Sequence[int]) -> None:
        """Takes other tokens as committed after the first `keep`; the tree is dropped."""
        ...

    def draft(self, sessions: Collection[DraftSession]) -> Progress:
        """Does one unit of work for these sessions."""
        ...

    def is_complete(self, session: DraftSession) -> bool:
        """True if the tree will not grow before the next verdict."""
        ...
