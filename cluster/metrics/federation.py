"""One page of metrics for the whole service: every actor is asked at the same time, and what each tells is put together.

At the supervisor: it knows who should be there, also of those that are not; it outlives coordinators; and no token passes it.
Each actor puts its labels on its samples itself, so that a page of a large service costs the supervisor a few copies of text.
Invariants: a page takes no longer than `COLLECT_S`; an actor that does not answer within it is `outrider_up 0` and costs the
page nothing else; pages that are asked for at the same time are one.
"""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import grpc
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric

import outrider
from outrider.actors.credentials import Credentials
from outrider.actors.grpc_server import internal_channel
from outrider.actors.metrics.families import counter, counters, gauges
from outrider.actors.metrics.service import render
from outrider.cluster.actor_status import ActorStatus, State
from outrider.cluster.roster import Roster
from outrider.v1 import metrics_pb2, metrics_pb2_grpc

COLLECT_S = 3.0
"""Seconds that an actor has to answer: from memory it takes milliseconds, on a loop that is late a second. Prometheus waits ten."""

LABELS = ("actor", "role", "model")
"""Of every sample, besides `node`; of the supervisor's own samples about an actor."""

OWN_LABELS = {"actor": "supervisor", "role": "supervisor", "model": "", "node": platform.node()}
"""Of the samples about the supervisor's own process."""

Families = Iterable[metrics_pb2.MetricFamily]


class Federation:
    """Collects the metrics of a service. On one event loop."""

    def __init__(
        self,
        statuses: Callable[[], Sequence[ActorStatus]],
        roster: Callable[[], Roster],
        credentials: Credentials,
    ) -> None:
        """Args:
        statuses: Every actor that should be there.
        roster: Who is.
        credentials: What calls carry.
        """
        self._statuses = statuses
        self._roster = roster
        self._credentials = credentials
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._page: asyncio.Task[str] | None = None
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)

    async def page(self) -> str:
        """Every metric, in the text exposition format."""
        if self._page is None or self._page.done():
            self._page = asyncio.create_task(self._collect(), name="metrics")
        # Whoever asks may leave; the others still want it.
        return await asyncio.shield(self._page)

    async def close(self) -> None:
        """Ends every connection. Idempotent."""
        if self._page is not None:
            self._page.cancel()
            await asyncio.gather(self._page, return_exceptions=True)
        channels, self._channels = self._channels, {}
        await asyncio.gather(*(channel.close() for channel in channels.values()))

    async def _collect(self) -> str:
        statuses, roster = self._statuses(), self._roster()
        addresses = {
            member.name: member.internal_address or member.address for member in roster.members
        }
        wanted = {status.name: addresses.get(status.name, "") for status in statuses}
        await self._hang_up(keep=set(wanted.values()))
        began_s = time.monotonic()
        answers = await asyncio.gather(
            *(self._ask(status, wanted[status.name]) for status in statuses)
        )
        took_s = time.monotonic() - began_s
        told = {
            status.name: answer is not None
            for status, answer in zip(statuses, answers, strict=True)
        }
        own = _Own(statuses, told, roster, took_s)
        return united(
            [
                render(own, {}),
                render(self._process, OWN_LABELS),
                *(answer for answer in answers if answer is not None),
            ]
        )

    async def _ask(self, status: ActorStatus, address: str) -> Families | None:
        """What one actor tells; None if it does not answer."""
        if status.state is not State.SERVING or not address:
            return None
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = internal_channel(address, self._credentials)
        stub = metrics_pb2_grpc.MetricsServiceStub(channel)
        request = metrics_pb2.CollectMetricsRequest(labels=_labels(status))
        try:
            answer = await stub.Collect(request, timeout=COLLECT_S)
        except grpc.aio.AioRpcError:
            # The next page connects anew, with the certificate of then.
            if self._channels.get(address) is channel:
                del self._channels[address]
            await channel.close()
            return None
        families: Families = answer.families
        return families

    async def _hang_up(self, *, keep: set[str]) -> None:
        for address in set(self._channels) - keep:
            await self._channels.pop(address).close()


class _Own:
    """What the supervisor itself knows."""

    def __init__(
        self,
        statuses: Sequence[ActorStatus],
        told: Mapping[str, bool],
        roster: Roster,
        took_s: float,
    ) -> None:
        self._statuses = statuses
        self._told = told
        self._roster = roster
        self._took_s = took_s

    def collect(self) -> Iterable[Metric]:
        up = GaugeMetricFamily(
            "outrider_up", "1 if the actor told its metrics for this page, else 0.", labels=LABELS
        )
        for status in self._statuses:
            up.add_metric(_key(status), float(self._told[status.name]))
        yield up
        yield counters(
            "actor_restarts",
            "Times that an actor was started again.",
            LABELS,
            {_key(status): status.restarts for status in self._statuses},
        )
        yield counter(
            "refused_registrations",
            "Registrations of actors that the service did not start.",
            self._roster.refused,
        )
        yield gauges(
            "build_info",
            "1; the label tells the version.",
            ("version",),
            {(outrider.__version__,): 1},
        )
        yield gauges(
            "collect_seconds", "Seconds that this page took to collect.", (), {(): self._took_s}
        )


def united(parts: Iterable[Families]) -> str:
    """Families of several actors as one text: each metric once, its samples together."""
    heads: dict[str, str] = {}
    samples: dict[str, list[str]] = {}
    for families in parts:
        for family in families:
            help_ = family.help.replace("\\", r"\\").replace("\n", r"\n")
            head = f"# HELP {family.name} {help_}\n# TYPE {family.name} {family.type}\n"
            heads.setdefault(family.name, head)
            samples.setdefault(family.name, []).append(family.samples)
    return "".join(head + "".join(samples[name]) for name, head in heads.items())


def _key(status: ActorStatus) -> tuple[str, ...]:
    return status.name, status.role.value, status.model


def _labels(status: ActorStatus) -> dict[str, str]:
    return dict(zip(LABELS, _key(status), strict=True))
