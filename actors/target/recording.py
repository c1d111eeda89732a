"""What a target records for a timeline: its passes, its waits, and what became of every candidate.

Hooks of the worker and of the parts of a pass. Each costs a look at `is_on` while nobody traces. The worker's thread only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from outrider.actors.speculation.pool import Node
from outrider.actors.target.events import Candidates, FrozenCandidates
from outrider.actors.target.plan import Entry
from outrider.actors.target.session import Session
from outrider.actors.trace import Recorder
from outrider.v1 import trace_pb2

_FATES = {
    trace_pb2.NODE_FATE_ACCEPTED: "accepted",
    trace_pb2.NODE_FATE_REJECTED: "rejected",
    trace_pb2.NODE_FATE_FORESEEN: "foreseen",
    trace_pb2.NODE_FATE_NEVER_CHOSEN: "never_chosen",
}

Decided = tuple[Node, trace_pb2.NodeFate.ValueType]


class TargetRecording:
    """Records of one target."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._parts: list[trace_pb2.TracePart] = []

    # -- what the worker does ----------------------------------------------------------------------------------------

    def begin_wait(self, sessions: Iterable[Session]) -> None:
        """The worker goes to sleep."""
        waiting = list(sessions)
        if not waiting:
            kind = trace_pb2.TRACE_KIND_NO_SESSION
        elif any(session.has_candidates for session in waiting):
            kind = trace_pb2.TRACE_KIND_WAIT_RIPENING
        else:
            kind = trace_pb2.TRACE_KIND_WAIT_CANDIDATES
        self._recorder.enter(kind)

    def end_wait(self) -> None:
        """It woke up."""
        self._recorder.leave()

    def begin_pass(self) -> None:
        """A pass begins."""
        self._parts = []
        self._recorder.enter(trace_pb2.TRACE_KIND_VERIFY)

    def end_pass(
        self, entries: Sequence[Entry], *, num_rows: int, model_s: float, has_prompt: bool
    ) -> None:
        """A pass is over, and everyone was told what came of it."""
        if not self._recorder.is_on:
            self._recorder.leave()
            return
        settled = {part.handle for part in self._parts}
        parts = self._parts + [
            trace_pb2.TracePart(handle=entry.session.handle)
            for entry in entries
            if entry.session.handle not in settled
        ]
        kind = trace_pb2.TRACE_KIND_PREFILL if has_prompt else trace_pb2.TRACE_KIND_VERIFY
        self._recorder.leave(
            trace_pb2.TraceRecord(
                kind=kind, parts=parts, rows=num_rows, model_ns=max(int(model_s * 1e9), 0)
            )
        )

    # -- what becomes of candidates ----------------------------------------------------------------------------------

    def taken(
        self,
        event: Candidates | FrozenCandidates,
        waited_s: float,
        *,
        fresh: int = 0,
        stale: int = 0,
        refused: int = 0,
    ) -> None:
        """Candidates were taken in.

        Args:
            event: The candidates.
            waited_s: Since they came.
            fresh: Nodes that are new.
            stale: Nodes off the text.
            refused: Nodes without room.
        """
        if event.message is None or not self._recorder.is_on:
            return
        waited_ns = max(int(waited_s * 1e9), 0)
        if isinstance(event, FrozenCandidates):
            num_nodes = event.frozen.tree.num_nodes
        else:
            num_nodes = len(event.tokens)
        part = trace_pb2.TracePart(
            handle=event.handle,
            nodes=num_nodes,
            fresh=fresh,
            stale=stale,
            refused=refused,
        )
        self._recorder.add(
            trace_pb2.TraceRecord(
                kind=trace_pb2.TRACE_KIND_TAKEN,
                start_ns=self._recorder.clock_ns() - waited_ns,
                duration_ns=waited_ns,
                parts=[part],
                message=event.message,
            )
        )

    def decided(self, entry: Entry, tokens: Sequence[int], path: Sequence[int]) -> None:
        """A round is decided and about to be committed.

        Args:
            entry: What was run for the session.
            tokens: What will be committed.
            path: Those of the entry's nodes that were drawn.
        """
        if not self._recorder.is_on:
            return
        session, nodes = entry.session, entry.selection.nodes
        part = trace_pb2.TracePart(
            handle=session.handle,
            nodes=len(nodes),
            committed=len(tokens),
            depth=max((node.depth for node in nodes), default=session.length) - session.length,
        )
        found = fates(entry, tokens, path)
        names = session.drafters
        counts: dict[str, trace_pb2.TraceFates] = {}
        for node, fate in found:
            name = names[node.drafter]
            count = counts.setdefault(name, trace_pb2.TraceFates(drafter=name))
            field = _FATES[fate]
            setattr(count, field, getattr(count, field) + 1)
        if session.trees is not None:
            for name, passed in session.trees.nodes_below(session.length + len(tokens)).items():
                count = counts.setdefault(name, trace_pb2.TraceFates(drafter=name))
                count.never_chosen += passed
        part.fates.extend(counts.values())
        if self._recorder.wants_nodes:
            part.decided.extend(
                trace_pb2.TraceNode(
                    drafter=names[node.drafter],
                    depth=node.depth - session.length,
                    estimate=node.estimate,
                    fate=fate,
                )
                for node, fate in found
            )
        self._parts.append(part)


def fates(entry: Entry, tokens: Sequence[int], path: Sequence[int]) -> list[Decided]:
    """What becomes of each node when a round is committed; nodes that stay in the pool are left out."""
    session, nodes = entry.session, entry.selection.nodes
    accepted = {id(nodes[index]) for index in path}
    decided: list[Decided] = [
        (
            node,
            trace_pb2.NODE_FATE_ACCEPTED if id(node) in accepted else trace_pb2.NODE_FATE_REJECTED,
        )
        for node in nodes
    ]
    verified = {id(node) for node in nodes}
    is_over = tokens[-1] in session.stop_tokens or session.remaining <= len(tokens)
    walked, dropped = session.pool.sort_out(tokens, is_over=is_over)
    decided += [(n, trace_pb2.NODE_FATE_FORESEEN) for n in walked if id(n) not in verified]
    decided += [(n, trace_pb2.NODE_FATE_NEVER_CHOSEN) for n in dropped if id(n) not in verified]
    return decided
