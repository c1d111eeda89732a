"""Names and shapes of metrics: families with the prefix of the service, made when they are collected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from outrider.actors.metrics.histogram import Histogram

PREFIX = "outrider:"
"""Of every metric's name, as `vllm:` is at vLLM; what follows is vLLM's name where it means the same."""

Labelled = Mapping[tuple[str, ...], float]
"""Values by the values of the labels."""


class Collector(Protocol):
    """Who tells metrics when asked."""

    def collect(self) -> Iterable[Metric]:
        """The metrics of this moment."""
        ...


def counter(name: str, help_: str, value: float) -> Metric:
    """A number that only rises. `_total` is added to its name."""
    return CounterMetricFamily(PREFIX + name, help_, value=value)


def counters(name: str, help_: str, labels: Iterable[str], values: Labelled) -> Metric:
    """Numbers that only rise, told apart by labels. `_total` is added to the name."""
    family = CounterMetricFamily(PREFIX + name, help_, labels=list(labels))
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def gauge(name: str, help_: str, value: float) -> Metric:
    """A number that rises and falls."""
    return GaugeMetricFamily(PREFIX + name, help_, value=value)


def gauges(name: str, help_: str, labels: Iterable[str], values: Labelled) -> Metric:
    """Numbers that rise and fall, told apart by labels."""
    family = GaugeMetricFamily(PREFIX + name, help_, labels=list(labels))
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def emulated_device(profile: str) -> Metric:
    """Says whether every time and rate of an actor is that of an emulated device; the profile of a real one is empty."""
    help_ = "1: passes take what the profile says, so every time and rate here is emulated."
    return gauges("emulated_device", help_, ("profile",), {(profile,): float(bool(profile))})


def histogram(name: str, help_: str, values: Histogram) -> Metric:
    """How a value is distributed."""
    return histograms(name, help_, (), {(): values})


def histograms(
    name: str, help_: str, labels: Iterable[str], values: Mapping[tuple[str, ...], Histogram]
) -> Metric:
    """How a value is distributed, told apart by labels."""
    family = HistogramMetricFamily(PREFIX + name, help_, labels=list(labels))
    for key, value in values.items():
        family.add_metric(key, value.buckets, sum_value=value.sum)
    return family
