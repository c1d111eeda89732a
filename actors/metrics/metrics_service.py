"""`MetricsService`: the metrics of an actor over its internal port, as lines that need only be put together."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable, Mapping
from typing import Any

import grpc
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from outrider.actors.metrics.families import Collector, counter
from outrider.v1 import metrics_pb2, metrics_pb2_grpc

"""Full name of the service, for health and reflection."""


class MetricsServicer(metrics_pb2_grpc.MetricsServiceServicer):
    """Collects when asked."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    async def Collect(
        self,
        request: metrics_pb2.CollectMetricsRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> metrics_pb2.CollectMetricsResponse:
        """Tells every metric, with the labels asked for and the name of this machine."""
        labels = {**request.labels, "node": platform.node()}
        return metrics_pb2.CollectMetricsResponse(families=render(self._registry, labels))


def serve_metrics(server: grpc.aio.Server, *collectors: Collector) -> None:
    """Adds the service to a server that is not started yet: what the collectors tell, the process and its event loop."""
    registry = CollectorRegistry()
    for collector in (*collectors, _Loop()):
        registry.register(collector)
    ProcessCollector(registry=registry)
    metrics_pb2_grpc.add_MetricsServiceServicer_to_server(MetricsServicer(registry), server)


def render(collector: Collector, labels: Mapping[str, str]) -> list[metrics_pb2.MetricFamily]:
    """Each metric as text, with labels added to every sample."""
    families = []
    for metric in collector.collect():
        labelled = Metric(metric.name, metric.documentation, metric.type)
        labelled.samples = [
            Sample(sample.name, {**sample.labels, **labels}, sample.value)
            for sample in metric.samples
        ]
        # The library writes the two lines about the metric first; several actors share them.
        _, type_line, samples = generate_latest(_One(labelled)).decode().split("\n", 2)
        _, _, name, type_ = type_line.split(" ")
        families.append(
            metrics_pb2.MetricFamily(
                name=name, type=type_, help=metric.documentation, samples=samples
            )
        )
    return families


class _One:
    """One metric as a collector."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        """The metric."""
        return (self._metric,)


class _Loop:
    """What the event loop costs. Collected on it."""

    def collect(self) -> Iterable[Metric]:
        """Processor seconds of the thread that asks."""
        yield counter(
            "event_loop_cpu_seconds",
            "Processor seconds of the thread that runs the event loop: messages, not models.",
            time.thread_time(),
        )
