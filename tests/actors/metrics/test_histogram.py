"""Histograms that one thread fills and another reads."""

from __future__ import annotations

from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from outrider.actors.metrics.families import histogram
from outrider.actors.metrics.histogram import Histogram


class One:
    """One metric as a collector."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric

    def collect(self) -> list[Metric]:
        """The metric."""
        return [self.metric]


def test_buckets_hold_what_is_at_most_their_bound() -> None:
    """Counts are cumulative, a value at a bound is within it, and the last bucket holds everything."""
    values = Histogram((1.0, 2.5))
    for value in (0.5, 1.0, 1.5):
        values.observe(value)
    values.observe(9.0, times=3)

    assert values.buckets == [("1.0", 2.0), ("2.5", 3.0), ("+Inf", 6.0)]
    assert values.sum == 30.0


def test_prometheus_reads_what_is_told() -> None:
    """As the library's own parser sees it: count, sum and buckets belong together."""
    values = Histogram((0.1,))
    values.observe(0.05)
    values.observe(7.0)
    text = generate_latest(One(histogram("wait_seconds", "Waits.", values))).decode()

    (family,) = text_string_to_metric_families(text)
    assert family.type == "histogram"
    samples = {(sample.name, sample.labels.get("le")): sample.value for sample in family.samples}
    assert samples == {
        ("outrider:wait_seconds_bucket", "0.1"): 1.0,
        ("outrider:wait_seconds_bucket", "+Inf"): 2.0,
        ("outrider:wait_seconds_count", None): 2.0,
        ("outrider:wait_seconds_sum", None): 7.05,
    }
