"""What a drafter records for a timeline: its passes, why it sleeps, and how long it keeps candidates back.

Hooks of the core and the worker. Each costs a look at `is_on` while nobody traces. The worker's thread only.
"""

from __future__ import annotations

import numpy as np

from outrider.actors.draft.state.draft_events import CandidatesSent
from outrider.actors.draft.state.draft_sessions import DraftSessions
from outrider.actors.draft.trees.forest import Int64s
from outrider.actors.tracing.recorder import Recorder, args_of
from outrider.v1 import trace_pb2

DRAFTING = "drafting"
"""The track of what the worker does."""


class DraftRecording:
    """Records of one drafter."""

    def __init__(self, recorder: Recorder, sessions: DraftSessions, *, max_ahead: int) -> None:
        """Args:
        recorder: The drafter's.
        sessions: Its sessions.
        max_ahead: Nodes of one session below its base, at most.
        """
        self._recorder = recorder
        self._sessions = sessions
        self._max_ahead = max_ahead
        self._held_since: dict[int, int] = {}

    def begin_pass(self) -> None:
        """A pass begins."""
        self._recorder.enter(DRAFTING, "draft")

    def end_pass(self, grown: Int64s) -> None:
        """A pass is over.

        Args:
            grown: Sessions that have new candidates.
        """
        if not self._recorder.is_on:
            self._recorder.leave()
            return
        now_ns = self._recorder.clock_ns()
        rows = grown.tolist()
        for row in rows:
            self._held_since.setdefault(row, now_ns)
        nodes = int(self._sessions.forest.num_nodes_S[grown].sum())
        self._recorder.leave(
            name="draft" if rows else "catch up",
            args={"sessions": len(rows), "tree_nodes": nodes} if rows else None,
        )

    def begin_sleep(self) -> None:
        """The worker goes to sleep."""
        self._recorder.enter(DRAFTING, self._why)

    def end_sleep(self) -> None:
        """It woke up."""
        self._recorder.leave()

    def handed_out(self, frame: CandidatesSent, link: int) -> None:
        """Candidates leave the worker."""
        if not self._held_since:
            return
        sizes = {tree.handle: tree.num_nodes for tree in frame.own_trees}
        if frame.candidates is not None:
            nodes_E = np.diff(frame.candidates.starts_E).tolist()
            sizes |= dict(zip(frame.candidates.handles_E.tolist(), nodes_E, strict=True))
        rows = self._sessions.rows_of(link, np.array(list(sizes), np.uint64)).tolist()
        for row, (handle, num_nodes) in zip(rows, sizes.items(), strict=True):
            since_ns = self._held_since.pop(row, None)
            if since_ns is None or not self._recorder.is_on:
                continue
            self._recorder.add(
                trace_pb2.TraceSpan(
                    name="holds candidates",
                    track="holding",
                    start_ns=since_ns,
                    duration_ns=self._recorder.clock_ns() - since_ns,
                    args=args_of({"nodes": num_nodes}),
                    handles=[handle],
                )
            )

    def forget(self, row: int) -> None:
        """A session is over."""
        self._held_since.pop(row, None)

    def _why(self) -> str:
        sessions = self._sessions
        rows = np.flatnonzero(sessions.is_attached_S)
        if not len(rows):
            return "no session"
        able = rows[np.isnan(sessions.asked_at_S[rows])]
        if not len(able):
            return "waits for missing tokens"
        if sessions.is_resting(able).any():
            return "sent to rest"
        limits_E = sessions.allowed(able, self._max_ahead)
        # As many nodes as may be are with the target.
        if np.any((sessions.forest.num_sent(able) >= limits_E) & (limits_E > 0)):
            return "out of credits"
        return "nothing left to draft"
