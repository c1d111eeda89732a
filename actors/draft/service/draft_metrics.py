"""The metrics of a drafter."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import Metric

from outrider.actors.draft.draft_worker import DraftWorker
from outrider.actors.engine.timed_engine import TimedEngine
from outrider.actors.metrics.families import counter, emulated_device, gauge

COUNTERS = {
    "passes": ("draft_passes", "Units of drafting work."),
    "messages": ("draft_messages", "Messages with candidates sent."),
    "nodes": ("draft_nodes_sent", "Candidate nodes sent, repeated ancestors included."),
    "verdicts": ("draft_verdicts", "Verdicts that continued the text."),
    "committed": ("draft_committed_tokens", "Tokens committed in attached sessions."),
    "foreseen": (
        "draft_foreseen_tokens",
        "Those that were in the drafter's tree when their verdict came.",
    ),
    "stale": ("draft_stale_verdicts", "Verdicts that said nothing new."),
    "resyncs": ("draft_resyncs", "Times that missing tokens were asked for."),
    "failures": ("draft_failures", "Drafting passes that raised."),
    "feature_bytes": ("draft_feature_bytes", "Bytes of hidden states and likeliest tokens."),
    "feature_rows": ("draft_feature_rows", "Rows of them that the method was given."),
    "features_late": ("draft_features_late", "Those that came when the text had gone on."),
    "features_doubled": ("draft_features_doubled", "Rows that had come before."),
    "features_missing": (
        "draft_features_missing",
        "Positions that were passed over: reused prompts, passes before the drafter was there, dropped rows.",
    ),
    "features_dropped": (
        "draft_features_dropped",
        "Rows of another subscription or of sessions that never came.",
    ),
    "features_broken": ("draft_features_broken", "Rows and frames that were none."),
}
"""Name and meaning of each field of `DraftStats`."""


class DraftCollector:
    """Reads what the worker has counted. From any thread; the worker is not stopped."""

    def __init__(self, worker: DraftWorker, engine: TimedEngine | None) -> None:
        """Args:
        worker: The drafter's.
        engine: Its model, None without one.
        """
        self._worker = worker
        self._engine = engine

    def collect(self) -> Iterable[Metric]:
        """The metrics of this moment."""
        worker = self._worker
        yield gauge("slots", "Sessions that it can hold.", worker.num_slots)
        yield gauge(
            "slots_used", "Sessions that it holds.", worker.num_slots - worker.num_free_slots
        )
        yield counter("busy_seconds", "Seconds of passes.", worker.total_busy_s)
        if self._engine is not None:
            yield emulated_device(self._engine.spec.emulated)
            yield counter("model_passes", "Forward passes of the model.", self._engine.num_passes)
            yield counter(
                "model_cpu_seconds", "Processor seconds of them.", self._engine.model_cpu_s
            )
        stats = worker.stats
        for field, (name, help_) in COUNTERS.items():
            yield counter(name, help_, getattr(stats, field))
