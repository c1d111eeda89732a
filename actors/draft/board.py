"""What all parts of a draft worker share: the sessions, which of them have news, and what was counted.

Owned by the worker's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog

from outrider.actors.draft.drafter import Drafter
from outrider.actors.draft.events import Ended, Report, ResyncWanted, SessionKey
from outrider.actors.draft.recording import DraftRecording
from outrider.actors.draft.session import DraftSession
from outrider.actors.draft.stats import DraftStats
from outrider.actors.draft.thrift import Thrift
from outrider.actors.trace import Recorder

ASK_AGAIN_S = 1.0
"""After this time without an answer, a verdict that does not fit makes the worker ask for the missing tokens again."""

_log = structlog.get_logger(__name__)


class Board:
    """The sessions of a drafter."""

    def __init__(
        self,
        drafter: Drafter,
        emit: Callable[[Report], None],
        *,
        max_ahead: int,
        bytes_per_token: float,
        lockstep: bool,
        recorder: Recorder | None = None,
    ) -> None:
        """As `DraftWorker`."""
        self.drafter = drafter
        self.emit = emit
        self.max_ahead = max_ahead
        self._bytes_per_token = bytes_per_token
        self._thrift: dict[int, Thrift] = {}
        self.lockstep = lockstep
        self.sessions: dict[SessionKey, DraftSession] = {}
        self.dirty: dict[DraftSession, None] = {}
        """Sessions that may have news, in the order in which they got them."""
        self.recording = DraftRecording(recorder or Recorder(), max_ahead=max_ahead)
        """For a timeline."""
        self.pass_s = 0.0
        """Mean seconds of a draft pass."""
        self._counts = dict.fromkeys(DraftStats.__dataclass_fields__, 0)

    @property
    def stats(self) -> DraftStats:
        """What was done so far."""
        return DraftStats(**self._counts)

    def thrift_of(self, link: int) -> Thrift | None:
        """What the sessions of a link may spend; None in lockstep, where trees go out whole."""
        if self.lockstep:
            return None
        return self._thrift.setdefault(link, Thrift(self._bytes_per_token))

    def forget_link(self, link: int) -> None:
        """Drops the sessions of a link that is lost, and what was known of it."""
        for lost in [s for k, s in self.sessions.items() if k.link == link]:
            self.drop(lost)
        self._thrift.pop(link, None)

    def count(self, **changes: int) -> None:
        """Adds to the statistics of these names."""
        for name, by in changes.items():
            self._counts[name] += by

    def ask(self, session: DraftSession, length: int, now: float) -> None:
        """Asks the target for the tokens after the first `length`, unless it was asked a moment ago."""
        if session.asked_at is not None and now - session.asked_at < ASK_AGAIN_S:
            return
        session.asked_at = now
        self.count(resyncs=1)
        self.emit(ResyncWanted(key=session.key, length=length))

    def fail(self, sessions: Iterable[DraftSession], error: Exception) -> None:
        """Ends the sessions that the drafting method failed on."""
        self.count(failures=1)
        ended = list(sessions)
        requests = [session.request_id for session in ended]
        _log.error("drafting failed", request_ids=requests, error=repr(error), exc_info=error)
        for session in ended:
            self.end(session, f"drafting failed: {error!r}; attach another drafter")

    def end(self, session: DraftSession, message: str) -> None:
        """Ends a session and says why."""
        if session.key in self.sessions:
            self.drop(session)
            self.emit(Ended(key=session.key, message=message))

    def drop(self, session: DraftSession) -> None:
        """Forgets a session."""
        del self.sessions[session.key]
        _log.debug("session left", request_id=session.request_id)
        self.dirty.pop(session, None)
        self.recording.forget(session)
        self.drafter.detach(session)
