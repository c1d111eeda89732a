"""The states of a sequence, the events that it is told, and where each leads."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class SessionState(StrEnum):
    """Where a sequence stands."""

    ADMITTED = "admitted"
    """Nothing was sent yet."""
    OPENING = "opening"
    """The target was, or will be, asked."""
    RUNNING = "running"
    """Tokens come."""
    CLOSING = "closing"
    """A stop string ended the output; the target's last word is awaited."""
    ENDED = "ended"
    """Nothing comes any more."""


class SessionEvent(StrEnum):
    """What a sequence is told."""

    START = "start"
    """Begin."""
    OPENED = "opened"
    """The target has opened the session."""
    COMMITTED = "committed"
    """The target has committed tokens."""
    FINISHED = "finished"
    """The target has ended the session, or tells what became of one that was closed."""
    CLOSING_EXPIRED = "closing_expired"
    """The target did not tell in time what became of a closed session."""
    FAILED = "failed"
    """The target cannot open the session or go on with it."""
    LOST = "lost"
    """The stream to the target broke."""
    ABORT = "abort"
    """The client wants no more."""


_State, _Event = SessionState, SessionEvent

TRANSITIONS: Mapping[tuple[SessionState, SessionEvent], frozenset[SessionState]] = {
    # Ended at once: the resumed tokens are the whole output already.
    (_State.ADMITTED, _Event.START): frozenset({_State.OPENING, _State.ENDED}),
    (_State.ADMITTED, _Event.ABORT): frozenset({_State.ENDED}),
    (_State.OPENING, _Event.OPENED): frozenset({_State.RUNNING}),
    # Opened again, or given up after too many tries; for want of a slot it is tried for ever.
    (_State.OPENING, _Event.FAILED): frozenset({_State.OPENING, _State.ENDED}),
    (_State.OPENING, _Event.LOST): frozenset({_State.OPENING, _State.ENDED}),
    (_State.OPENING, _Event.ABORT): frozenset({_State.ENDED}),
    # Closing: a stop string was completed. Opened again: a commit out of turn; ended: the output was whole by then.
    (_State.RUNNING, _Event.COMMITTED): frozenset(
        {_State.RUNNING, _State.CLOSING, _State.OPENING, _State.ENDED}
    ),
    (_State.RUNNING, _Event.FINISHED): frozenset({_State.ENDED}),
    (_State.RUNNING, _Event.FAILED): frozenset({_State.OPENING, _State.ENDED}),
    (_State.RUNNING, _Event.LOST): frozenset({_State.OPENING, _State.ENDED}),
    (_State.RUNNING, _Event.ABORT): frozenset({_State.ENDED}),
    (_State.CLOSING, _Event.FINISHED): frozenset({_State.ENDED}),
    (_State.CLOSING, _Event.CLOSING_EXPIRED): frozenset({_State.ENDED}),
    (_State.CLOSING, _Event.FAILED): frozenset({_State.ENDED}),
    (_State.CLOSING, _Event.LOST): frozenset({_State.ENDED}),
    (_State.CLOSING, _Event.ABORT): frozenset({_State.ENDED}),
}
"""Where an event leads. An event that a state does not take is of an opening that is over: it changes nothing."""
