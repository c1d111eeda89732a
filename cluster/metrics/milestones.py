"""When what happened to one request, as far as its coordinator sees it: the source of its metrics and of its spans.

Called where the request is recorded for a timeline. On the event loop; times are nanoseconds of the recorder's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from outrider.cluster.metrics.books import RequestBooks
from outrider.v1 import generation_pb2

NS = 1e-9

MAX_ROUNDS = 64
"""Rounds of a sequence whose times are kept: enough to see the shape of a request, few enough to keep and to send."""


@dataclass(frozen=True, slots=True)
class RoundTimes:
    """One message with tokens to the client: what one round committed, or several if the client is slow."""

    end_ns: int
    num_tokens: int


@dataclass(slots=True)
class SequenceTimes:
    """One sequence of a request."""

    queued_ns: int | None = None
    """When it began to wait for a slot."""
    admitted_ns: int | None = None
    opened_ns: int | None = None
    """When its target had opened its first session."""
    target: str = ""
    rounds: list[RoundTimes] = field(default_factory=list)
    """The first ones."""
    num_tokens: int = 0
    last_ns: int | None = None
    """When its last tokens left."""
    completion: generation_pb2.Completion | None = None


class Milestones:
    """One request."""

    def __init__(
        self, books: RequestBooks, request_id: str, began_ns: int, *, keeps_rounds: bool = False
    ) -> None:
        """Args:
        books: Of the coordinator.
        request_id: The request's name.
        began_ns: When it came.
        keeps_rounds: Someone wants to know of single rounds.
        """
        self.request_id = request_id
        self.began_ns = began_ns
        self.prompt_tokens = 0
        self.sequences: dict[int, SequenceTimes] = {}
        self.parent: Mapping[str, str] = {}
        """What the client said of the trace that the request is part of; see `spans`."""
        self._books = books
        self._keeps_rounds = keeps_rounds

    def tokenised(self, num_tokens: int) -> None:
        """The prompt is known."""
        self.prompt_tokens = num_tokens

    def waits(self, index: int, now_ns: int) -> None:
        """A sequence begins to wait for a slot."""
        times = self._of(index)
        if times.queued_ns is None:
            times.queued_ns = now_ns

    def queued(self, index: int, now_ns: int) -> None:
        """A sequence has its slot."""
        times = self._of(index)
        if times.admitted_ns is None:
            times.admitted_ns = now_ns

    def opened(self, index: int, target: str, now_ns: int) -> None:
        """A target has opened a session."""
        if not any(times.opened_ns for times in self.sequences.values()):
            self._books.prompt_tokens += self.prompt_tokens
        times = self._of(index)
        times.target = target
        if times.opened_ns is None:
            times.opened_ns = now_ns
        else:
            self._books.reopened += 1

    def delivered(self, index: int, num_tokens: int, now_ns: int) -> None:
        """Tokens leave for the client."""
        if not num_tokens:
            return
        times, books = self._of(index), self._books
        books.generation_tokens += num_tokens
        if times.last_ns is None:
            books.first_token_s.observe(NS * (now_ns - self.began_ns))
        else:
            # Tokens of one round come together; each counts for its share, as a reader at an even pace would see it.
            books.token_s.observe(NS * (now_ns - times.last_ns) / num_tokens, num_tokens)
        times.last_ns = now_ns
        times.num_tokens += num_tokens
        if self._keeps_rounds and len(times.rounds) < MAX_ROUNDS:
            times.rounds.append(RoundTimes(now_ns, num_tokens))

    def completed(self, index: int, completion: generation_pb2.Completion) -> None:
        """A sequence is whole."""
        times = self._of(index)
        times.completion = completion
        self._books.completed(completion, times.num_tokens)

    def ended(self, outcome: str) -> None:
        """The request is over."""
        self._books.requests[outcome] += 1

    def _of(self, index: int) -> SequenceTimes:
        times = self.sequences.get(index)
        if times is None:
            times = self.sequences[index] = SequenceTimes()
        return times
