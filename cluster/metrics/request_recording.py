"""What a coordinator records of one request: for a timeline, metrics and spans, from its arrival to the last message to the client.

Each hook costs a look at the clock, or at `is_on`, while nobody traces. On the event loop.
"""

from __future__ import annotations

from collections.abc import Iterable

from outrider.actors.tracing.recorder import Recorder, args_of
from outrider.cluster.metrics.books import RequestBooks
from outrider.cluster.metrics.milestones import Milestones, RoundTimes
from outrider.cluster.metrics.request_spans import Spans, parent_of
from outrider.v1 import generation_pb2, trace_pb2

NS = 1e-9

MAX_ROUNDS = 64
"""Rounds of a sequence whose times are kept for spans: enough to see the shape of a request, few enough to keep and to send."""

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
        self._books = books
        self._spans = spans
        self._milestones = Milestones(request_id, recorder.clock_ns())
        self._opened: dict[int, trace_pb2.TraceSpan] = {}
        self._waits_since_ns: dict[int, int] = {}
        """By sequence that waits for a slot."""

    def now_ns(self) -> int:
        """The recorder's clock, for the beginning of what is told later."""
        return self._recorder.clock_ns()

    def came_from(self, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        """Takes what the call says of the trace that it is part of."""
        if self._spans is not None:
            self._milestones.parent = parent_of(metadata)

    def tokenised(self, num_tokens: int) -> None:
        """The prompt is known: until now it was checked and turned into tokens."""
        self._milestones.prompt_tokens = num_tokens
        self._add("tokenise", self._milestones.began_ns, tokens=num_tokens)

    def waits(self, index: int) -> None:
        """A sequence begins to wait for a slot."""
        self._waits_since_ns[index] = now_ns = self.now_ns()
        times = self._milestones.sequences[index]
        if times.queued_ns is None:
            times.queued_ns = now_ns

    def queued(self, index: int) -> None:
        """A sequence has its slot."""
        times = self._milestones.sequences[index]
        if times.admitted_ns is None:
            times.admitted_ns = self.now_ns()
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
        if not any(one.opened_ns for one in self._milestones.sequences.values()):
            self._books.prompt_tokens += self._milestones.prompt_tokens
        times = self._milestones.sequences[index]
        times.target = target
        if times.opened_ns is None:
            times.opened_ns = self.now_ns()
        else:
            self._books.reopened += 1
        if self._recorder.is_on:
            self._recorder.add(span)

    def detokenised(self, index: int, began_ns: int, num_tokens: int) -> None:
        """Committed tokens were turned into text."""
        if self._recorder.is_on:
            self._add("detokenise", began_ns, track="detokenise", index=index, tokens=num_tokens)

    def written(self, index: int, began_ns: int, num_tokens: int) -> None:
        """A message was written to the client."""
        if num_tokens:
            self._count(index, began_ns, num_tokens)
        if self._recorder.is_on:
            self._add("write", began_ns, track="write", index=index, tokens=num_tokens)

    def completed(self, index: int, completion: generation_pb2.Completion) -> None:
        """A sequence is whole."""
        times = self._milestones.sequences[index]
        times.completion = completion
        self._books.completed(completion, times.num_tokens)

    def ended(self, outcome: str) -> None:
        """The request is over."""
        self._books.requests[outcome] += 1
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

    def _count(self, index: int, now_ns: int, num_tokens: int) -> None:
        """Tokens leave for the client."""
        times, books = self._milestones.sequences[index], self._books
        books.generation_tokens += num_tokens
        if times.last_ns is None:
            books.first_token_s.observe(NS * (now_ns - self._milestones.began_ns))
        else:
            # Tokens of one round come together; each counts for its share, as a reader at an even pace would see it.
            books.token_s.observe(NS * (now_ns - times.last_ns) / num_tokens, num_tokens)
        times.last_ns = now_ns
        times.num_tokens += num_tokens
        if self._spans is not None and len(times.rounds) < MAX_ROUNDS:
            times.rounds.append(RoundTimes(now_ns, num_tokens))

    def _whole(self, outcome: str) -> list[trace_pb2.TraceSpan]:
        """All of it, after the waits that have not ended."""
        waits = [
            self._make("queue", since_ns, index=index)
            for index, since_ns in self._waits_since_ns.items()
        ]
        milestones = self._milestones
        span = self._make(
            f"request {self.number}", milestones.began_ns, tokens=milestones.prompt_tokens
        )
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
            owner=trace_pb2.TraceOwner(
                request=self.number, index=index, name=self._milestones.request_id
            ),
        )
