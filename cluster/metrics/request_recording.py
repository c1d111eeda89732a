"""What a coordinator records of one request: for a timeline, metrics and spans, from its arrival to the last message to the client.

Each hook costs a look at the clock, or at `is_on`, while nobody traces. On the event loop.
"""

from __future__ import annotations

from collections.abc import Iterable

from outrider.actors.tracing.recorder import Recorder, args_of
from outrider.cluster.metrics.books import RequestBooks
from outrider.cluster.metrics.milestones import Milestones
from outrider.cluster.metrics.request_spans import Spans, parent_of
from outrider.v1 import generation_pb2, trace_pb2

RUNNING = "running"
"""Outcome of a request that has not ended."""


class RequestRecording:
    """Records of one request."""

    def __init__(
        self,
        recorder: Recorder,
        number: int,
        request_id: str,
        books: RequestBooks,
        spans: Spans | None = None,
    ) -> None:
        """Args:
        recorder: The coordinator's.
        number: Of the request at this coordinator.
        request_id: Its name.
        books: The coordinator's.
        spans: Where spans go, None: nobody wants any.
        """
        self.number = number
        self._recorder = recorder
        self._request_id = request_id
        self._began_ns = recorder.clock_ns()
        self._prompt_tokens = 0
        self._opened: dict[int, trace_pb2.TraceSpan] = {}
        self._waits_since_ns: dict[int, int] = {}
        """By sequence that waits for a slot."""
        self._spans = spans
        self._milestones = Milestones(
            books, request_id, self._began_ns, keeps_rounds=spans is not None
        )

    def now_ns(self) -> int:
        """The recorder's clock, for the beginning of what is told later."""
        return self._recorder.clock_ns()

    def came_from(self, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        """Takes what the call says of the trace that it is part of."""
        if self._spans is not None:
            self._milestones.parent = parent_of(metadata)

    def tokenised(self, num_tokens: int) -> None:
        """The prompt is known: until now it was checked and turned into tokens."""
        self._prompt_tokens = num_tokens
        self._milestones.tokenised(num_tokens)
        self._add("tokenise", self._began_ns, tokens=num_tokens)

    def waits(self, index: int) -> None:
        """A sequence begins to wait for a slot."""
        self._waits_since_ns[index] = now_ns = self.now_ns()
        self._milestones.waits(index, now_ns)

    def queued(self, index: int) -> None:
        """A sequence has its slot."""
        self._milestones.queued(index, self.now_ns())
        self._add("queue", self._waits_since_ns.pop(index), index=index)

    def opened(
        self, index: int, began_ns: int, *, target: str, incarnation: int, handle: int
    ) -> None:
        """A target has opened a session for a sequence."""
        span = self._make("open", began_ns, index=index)
        span.args.words["target"] = target
        span.opened.target, span.opened.incarnation, span.opened.handle = (
            target,
            incarnation,
            handle,
        )
        self._opened[index] = span
        self._milestones.opened(index, target, self.now_ns())
        if self._recorder.is_on:
            self._recorder.add(span)

    def detokenised(self, index: int, began_ns: int, num_tokens: int) -> None:
        """Committed tokens were turned into text."""
        if self._recorder.is_on:
            self._add("detokenise", began_ns, track="detokenise", index=index, tokens=num_tokens)

    def written(self, index: int, began_ns: int, num_tokens: int) -> None:
        """A message was written to the client."""
        self._milestones.delivered(index, num_tokens, began_ns)
        if self._recorder.is_on:
            self._add("write", began_ns, track="write", index=index, tokens=num_tokens)

    def completed(self, index: int, completion: generation_pb2.Completion) -> None:
        """A sequence is whole."""
        self._milestones.completed(index, completion)

    def ended(self, outcome: str) -> None:
        """The request is over."""
        self._milestones.ended(outcome)
        if self._spans is not None:
            self._spans.send(self._milestones, outcome, self.now_ns())
        if self._recorder.is_on:
            for span in self._whole(outcome):
                self._recorder.add(span)

    def so_far(self) -> list[trace_pb2.TraceSpan]:
        """What a trace that ends before the request must know of it."""
        return self._whole(RUNNING)

    def before(self) -> list[trace_pb2.TraceSpan]:
        """What a trace that begins now must know of a request that runs already: where its sessions are."""
        return list(self._opened.values())

    def _whole(self, outcome: str) -> list[trace_pb2.TraceSpan]:
        """All of it, after the waits that have not ended."""
        waits = [
            self._make("queue", since_ns, index=index)
            for index, since_ns in self._waits_since_ns.items()
        ]
        span = self._make(f"request {self.number}", self._began_ns, tokens=self._prompt_tokens)
        span.args.words["outcome"] = outcome
        return [*waits, span]

    def _add(
        self, name: str, began_ns: int, *, track: str = "", index: int = 0, tokens: int = 0
    ) -> None:
        if self._recorder.is_on:
            self._recorder.add(self._make(name, began_ns, track=track, index=index, tokens=tokens))

    def _make(
        self, name: str, began_ns: int, *, track: str = "", index: int = 0, tokens: int = 0
    ) -> trace_pb2.TraceSpan:
        return trace_pb2.TraceSpan(
            name=name,
            track=track,
            start_ns=began_ns,
            duration_ns=self._recorder.clock_ns() - began_ns,
            args=args_of({"tokens": tokens} if tokens else {}),
            owner=trace_pb2.TraceOwner(request=self.number, index=index, name=self._request_id),
        )
