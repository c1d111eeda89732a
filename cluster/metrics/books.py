"""What a coordinator counts of all requests, for Prometheus. On the event loop."""

from __future__ import annotations

from collections import Counter

from outrider.actors.metrics.histogram import Histogram
from outrider.v1 import generation_pb2

FIRST_TOKEN_BOUNDS_S = (
    *(0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0),
    *(2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
"""From a short prompt on a free target to a full queue."""

TOKEN_BOUNDS_S = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15),
    *(0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0),
)
"""Of one token: as peers have them, and finer below, where several tokens share a pass."""

REQUEST_BOUNDS_S = (
    *(0.05, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0),
    *(10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0),
)
"""Of a whole request."""

TOKENS_BOUNDS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 50_000, 200_000)
"""Of prompts and outputs."""

OUTCOMES = ("completed", "aborted", "cancelled", "RESOURCE_EXHAUSTED", "UNAVAILABLE", "INTERNAL")
REASONS = ("stop_token", "stop_string", "length", "aborted")
"""Told as 0 before the first one: Prometheus sees no rise in a series that begins with 1."""


class RequestBooks:
    """The books of one coordinator."""

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.reopened = 0
        """Times that a session was opened again, at the same target or another."""
        self.requests = Counter(dict.fromkeys(OUTCOMES, 0))
        """Ended requests by outcome: completed, aborted, cancelled, or the status that refused them."""
        self.finished = Counter(dict.fromkeys(REASONS, 0))
        """Completed sequences by reason."""
        self.first_token_s = Histogram(FIRST_TOKEN_BOUNDS_S)
        self.token_s = Histogram(TOKEN_BOUNDS_S)
        self.mean_token_s = Histogram(TOKEN_BOUNDS_S)
        self.total_s = Histogram(REQUEST_BOUNDS_S)
        self.queue_s = Histogram(FIRST_TOKEN_BOUNDS_S)
        self.prefill_s = Histogram(FIRST_TOKEN_BOUNDS_S)
        self.decode_s = Histogram(REQUEST_BOUNDS_S)
        self.prompt_length = Histogram(TOKENS_BOUNDS)
        self.output_length = Histogram(TOKENS_BOUNDS)

    def completed(self, completion: generation_pb2.Completion, num_tokens: int) -> None:
        """Counts a whole sequence.

        Args:
            completion: What the client was told at the end.
            num_tokens: Output tokens that were delivered here, those of a resumed request left out.
        """
        timing, usage = completion.timing, completion.usage
        reason = generation_pb2.FinishReason.Name(completion.finish_reason)
        self.finished[reason.removeprefix("FINISH_REASON_").lower()] += 1
        self.total_s.observe(timing.total_s)
        self.queue_s.observe(timing.queue_s)
        self.prefill_s.observe(timing.prefill_s)
        decode_s = max(timing.total_s - timing.first_token_s, 0.0)
        self.decode_s.observe(decode_s)
        if num_tokens > 1:
            self.mean_token_s.observe(decode_s / (num_tokens - 1))
        self.prompt_length.observe(usage.prompt_tokens)
        self.output_length.observe(num_tokens)
