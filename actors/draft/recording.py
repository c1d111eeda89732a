"""What a drafter records for a timeline: its passes, why it sleeps, and how long it keeps candidates back.

Hooks of the worker. Each costs a look at `is_on` while nobody traces. The worker's thread only.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from outrider.actors.draft.session import DraftSession
from outrider.actors.trace import IDLE, Recorder
from outrider.v1 import trace_pb2


class DraftRecording:
    """Records of one drafter."""

    def __init__(self, recorder: Recorder, *, max_ahead: int) -> None:
        """Args:
        recorder: The drafter's.
        max_ahead: Nodes of one session below its base, at most.
        """
        self._recorder = recorder
        self._max_ahead = max_ahead
        self._held_since: dict[DraftSession, int] = {}

    def begin_pass(self) -> None:
        """A pass begins."""
        self._recorder.enter(trace_pb2.TRACE_KIND_DRAFT)

    def end_pass(self, grown: Sequence[DraftSession], *, worked: bool) -> None:
        """A pass is over.

        Args:
            grown: Sessions that have new candidates.
            worked: False if there was nothing to do.
        """
        if not worked:
            self._recorder.enter(IDLE)
            return
        if not self._recorder.is_on:
            self._recorder.leave()
            return
        now_ns = self._recorder.clock_ns()
        for session in grown:
            self._held_since.setdefault(session, now_ns)
        self._recorder.leave(
            trace_pb2.TraceRecord(
                kind=trace_pb2.TRACE_KIND_DRAFT if grown else trace_pb2.TRACE_KIND_CATCH_UP,
                parts=[
                    trace_pb2.TracePart(handle=session.key.handle, nodes=len(session.tree))
                    for session in grown
                ],
            )
        )

    def begin_sleep(self, sessions: Collection[DraftSession]) -> None:
        """The worker goes to sleep."""
        self._recorder.enter(self._why(sessions))

    def end_sleep(self) -> None:
        """It woke up."""
        self._recorder.leave()

    def handed_out(self, session: DraftSession, num_nodes: int) -> None:
        """Candidates of a session leave the worker."""
        since_ns = self._held_since.pop(session, None)
        if since_ns is None or not self._recorder.is_on:
            return
        self._recorder.add(
            trace_pb2.TraceRecord(
                kind=trace_pb2.TRACE_KIND_HOLD,
                start_ns=since_ns,
                duration_ns=self._recorder.clock_ns() - since_ns,
                parts=[trace_pb2.TracePart(handle=session.key.handle, nodes=num_nodes)],
            )
        )

    def forget(self, session: DraftSession) -> None:
        """A session is over."""
        self._held_since.pop(session, None)

    def _why(self, sessions: Collection[DraftSession]) -> trace_pb2.TraceKind.ValueType:
        if not sessions:
            return trace_pb2.TRACE_KIND_NO_SESSION
        able = [session for session in sessions if session.asked_at is None]
        if not able:
            return trace_pb2.TRACE_KIND_WAIT_TOKENS
        if any(session.is_resting for session in able):
            return trace_pb2.TRACE_KIND_REST
        if any(self._is_far_ahead(session) for session in able):
            return trace_pb2.TRACE_KIND_WAIT_CREDITS
        return trace_pb2.TRACE_KIND_WAIT_VERDICT

    def _is_far_ahead(self, session: DraftSession) -> bool:
        """As many nodes as may be are with the target."""
        limit = self._max_ahead
        if session.credits is not None:
            limit = min(limit, session.credits)
        return session.tree.num_sent >= limit > 0
