"""The metrics of a coordinator."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import Metric

from outrider.actors.metrics.families import (
    counter,
    counters,
    gauge,
    gauges,
    histogram,
)
from outrider.cluster.gateway.gateway import Gateway
from outrider.cluster.links.draft_link import DraftLink
from outrider.cluster.links.target_link import TargetLink
from outrider.cluster.requests.served_models import ServedModels


class CoordinatorCollector:
    """Reads what the coordinator has counted. On the event loop."""

    def __init__(self, gateway: Gateway, links: ServedModels) -> None:
        self._gateway = gateway
        self._links = links

    def collect(self) -> Iterable[Metric]:
        """The metrics of this moment."""
        yield from self._load()
        yield from self._requests()
        yield from self._times()
        yield from self._peers()

    def _load(self) -> Iterable[Metric]:
        running, waiting = self._gateway.load()
        yield gauge("num_requests_running", "Requests that are being decoded.", running)
        yield gauge("num_requests_waiting", "Requests that wait for a slot.", waiting)

    def _requests(self) -> Iterable[Metric]:
        books = self._gateway.books
        yield counters(
            "requests",
            "Ended requests: completed, aborted, cancelled (the client went away), or the status that refused them.",
            ("outcome",),
            {(outcome,): count for outcome, count in books.requests.items()},
        )
        yield counters(
            "request_success",
            "Whole sequences by why they ended: stop_token, stop_string, length, aborted.",
            ("finished_reason",),
            {(reason,): count for reason, count in books.finished.items()},
        )
        yield counter(
            "prompt_tokens", "Prompt tokens of requests that a target took.", books.prompt_tokens
        )
        yield counter("generation_tokens", "Tokens sent to clients.", books.generation_tokens)
        yield counter(
            "sessions_reopened", "Times that a sequence went on in a new session.", books.reopened
        )

    def _times(self) -> Iterable[Metric]:
        books = self._gateway.books
        for name, help_, values in (
            (
                "time_to_first_token_seconds",
                "From arrival to the first token.",
                books.first_token_s,
            ),
            (
                "inter_token_latency_seconds",
                "Between tokens: the time between two messages over the tokens of the second, once for each of them.",
                books.token_s,
            ),
            (
                "request_time_per_output_token_seconds",
                "Mean time between tokens of a sequence, once for each sequence.",
                books.mean_token_s,
            ),
            ("e2e_request_latency_seconds", "From arrival to the end.", books.total_s),
            ("request_queue_time_seconds", "From arrival to the first slot.", books.queue_s),
            ("request_prefill_time_seconds", "In passes over the prompt.", books.prefill_s),
            ("request_decode_time_seconds", "From the first token to the end.", books.decode_s),
            ("request_prompt_tokens", "Tokens of prompts.", books.prompt_length),
            ("request_generation_tokens", "Tokens of outputs.", books.output_length),
        ):
            yield histogram(name, help_, values)

    def _peers(self) -> Iterable[Metric]:
        targets = {link.name: link for link in self._links.targets.values()}
        drafters = dict(self._links.drafters)
        links: dict[str, TargetLink | DraftLink] = {**targets, **drafters}
        yield gauges(
            "link_up",
            "1 while the coordinator's stream to an actor is up.",
            ("peer",),
            {(name,): float(link.is_up) for name, link in links.items()},
        )
        yield counters(
            "link_breaks",
            "Streams to an actor that broke.",
            ("peer",),
            {(name,): one.breaks for name, one in self._links.counts.items()},
        )
        yield counters(
            "drafters_attached",
            "Times that a drafter was attached to a session.",
            ("drafter",),
            {(name,): one.attached for name, one in self._links.drafters.counts.items()},
        )
        yield counters(
            "drafters_refused",
            "Times that a drafter refused a session.",
            ("drafter",),
            {(name,): one.refused for name, one in self._links.drafters.counts.items()},
        )
