"""The metrics of a target."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import Metric

from outrider.actors.engine.timed_engine import TimedEngine
from outrider.actors.metrics.families import (
    counter,
    counters,
    emulated_device,
    gauge,
    histogram,
    histograms,
)
from outrider.actors.target.state.target_state import TargetState


class TargetCollector:
    """Reads what the worker has counted. From any thread; the worker is not stopped."""

    def __init__(self, state: TargetState, engine: TimedEngine) -> None:
        self._state = state
        self._engine = engine

    def collect(self) -> Iterable[Metric]:
        """The metrics of this moment."""
        yield emulated_device(self._engine.spec.emulated)
        yield from self._load()
        yield from self._time()
        yield from self._speculation()
        yield from self._drafters()

    def _load(self) -> Iterable[Metric]:
        state, engine = self._state, self._engine
        used_S = state.table.used_S
        rows = engine.num_slots * engine.spec.max_context
        yield gauge("slots", "Sessions that it can hold.", engine.num_slots)
        yield gauge("slots_used", "Sessions that it holds.", engine.num_slots - engine.num_free)
        yield gauge(
            "kv_cache_usage_perc",
            "Rows of keys and values that running sessions use, 0 to 1.",
            float(state.table.lengths_S[used_S].sum()) / rows if rows else 0.0,
        )
        yield gauge(
            "candidate_pool_tokens",
            "Candidate nodes that wait for a pass, over all sessions.",
            int(state.pools.sizes_S[used_S].sum()),
        )
        yield gauge("drafters_connected", "Drafters whose stream is up.", len(state.live))
        yield gauge(
            "drafters_resting",
            "1 while drafters rest, because plain decoding is faster at this load.",
            state.is_resting,
        )

    def _time(self) -> Iterable[Metric]:
        tally, engine = self._state.tally, self._engine
        yield counter("busy_seconds", "Seconds of passes.", tally.busy_s)
        yield counter("model_passes", "Forward passes of the model.", engine.num_passes)
        yield counter("model_cpu_seconds", "Processor seconds of them.", engine.model_cpu_s)
        yield counter("pass_failures", "Passes that raised.", tally.failed_passes)
        yield histograms(
            "pass_seconds",
            "Seconds of a pass. `phase` is prompt if it held prompt tokens, else decode; `rows` is their number, rounded up to "
            "a power of two.",
            ("phase", "rows"),
            {
                ("prompt" if has_prompt else "decode", str(rows)): seconds
                for (has_prompt, rows), seconds in sorted(tally.passes.copy().items())
            },
        )
        yield histogram(
            "cost_model_error_ratio",
            "Seconds of a decoding pass over those predicted: 1 is right.",
            tally.errors,
        )

    def _speculation(self) -> Iterable[Metric]:
        sums = self._state.tally.totals(self._state.table)
        yield counter("sessions", "Sessions opened, also again after a break.", sums.sessions)
        yield counter("committed_tokens", "Tokens committed.", sums.tokens)
        yield counter(
            "spec_decode_num_drafts",
            "Rounds of a session over candidates. Mean acceptance length = 1 + accepted tokens / drafts.",
            sums.rounds,
        )
        yield counter("plain_passes", "Rounds of a session without candidates.", sums.plain_passes)
        yield counter(
            "stale_candidate_tokens",
            "Candidate nodes dropped because the text had gone another way.",
            sums.stale,
        )
        yield counter(
            "draft_wait_seconds",
            "Seconds for which the target was free and waited for candidates, summed over sessions.",
            sums.draft_wait_s,
        )
        yield counter(
            "near_ties", "Draws that another order of additions could have decided.", sums.near_ties
        )
        yield counter(
            "prefix_cache_queries", "Prompt tokens looked up in slots.", sums.prompt_tokens
        )
        yield counter(
            "prefix_cache_hits", "Those found, and not computed again.", sums.cached_tokens
        )

    def _drafters(self) -> Iterable[Metric]:
        drafters = self._state.tally.drafters.copy()
        by_name = ("drafter",)
        yield counters(
            "candidate_tokens",
            "Candidate nodes that came, repeated ones included.",
            by_name,
            {(name,): one.proposed for name, one in drafters.items()},
        )
        yield counters(
            "spec_decode_num_draft_tokens",
            "Candidate nodes that were part of a pass. `drafter` is target for those of the target itself.",
            by_name,
            {(name,): one.verified for name, one in drafters.items()},
        )
        yield counters(
            "spec_decode_num_accepted_tokens",
            "Candidate nodes that the target drew.",
            by_name,
            {(name,): one.accepted for name, one in drafters.items()},
        )
        yield counters(
            "spec_decode_num_accepted_tokens_per_pos",
            "Candidate nodes that the target drew, by their distance from the text: 0 is the next token.",
            ("drafter", "position"),
            {
                (name, str(position)): count
                for name, one in drafters.items()
                for position, count in enumerate(list(one.accepted_by_position))
            },
        )
        yield counters(
            "candidate_messages",
            "Messages with candidates, one a session.",
            by_name,
            {(name,): one.messages for name, one in drafters.items()},
        )
        yield counters(
            "link_bytes",
            "Bytes on the stream between drafter and target, before framing: in are candidates, out verdicts.",
            ("drafter", "direction"),
            {
                (name, direction): count
                for name, one in drafters.items()
                for direction, count in (("in", one.received), ("out", one.sent))
            },
        )
        yield from self._feedback()

    def _feedback(self) -> Iterable[Metric]:
        feedback, by_name = self._state.tally.feedback.copy(), ("drafter",)
        yield counters(
            "feedback_bytes",
            "Bytes of hidden states and likeliest tokens, to drafters that asked for them.",
            by_name,
            {(name,): one.num_bytes for name, one in feedback.items()},
        )
        yield counters(
            "feedback_rows",
            "Positions and candidates that those were of.",
            by_name,
            {(name,): one.rows for name, one in feedback.items()},
        )
        yield counters(
            "feedback_dropped_rows",
            "Those that were dropped because the drafter did not read as fast as they came.",
            by_name,
            {(name,): one.dropped_rows for name, one in feedback.items()},
        )
