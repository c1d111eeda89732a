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
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import grpc
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric

import outrider
from outrider.actors.metrics.families import counter, counters, gauges
from outrider.actors.metrics.metrics_service import render
from outrider.actors.rpc.closed_channel import ChannelClosed, telling_closed
from outrider.actors.rpc.credentials import Credentials
from outrider.actors.rpc.grpc_server import internal_channel
from outrider.cluster.roster.actor_status import ActorState, ActorStatus
from outrider.cluster.roster.roster import Roster
from outrider.v1 import metrics_pb2, metrics_pb2_grpc

COLLECT_S = 3.0
"""Seconds that an actor has to answer: from memory it takes milliseconds, on a loop that is late a second. Prometheus waits ten."""

LABELS = ("actor", "role", "model")
"""Of every sample, besides `node`; of the supervisor's own samples about an actor."""

OWN_LABELS = {"actor": "supervisor", "role": "supervisor", "model": "", "node": platform.node()}
"""Of the samples about the supervisor's own process."""

Families = Sequence[metrics_pb2.MetricFamily]


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

    async def told(self) -> list[tuple[ActorStatus, Families | None]]:
        """Every actor that should be there or has not ended yet, and what it tells; None if it does not answer."""
        statuses = [one for one in self._statuses() if one.state is not ActorState.STOPPED]
        addresses = {
            member.name: member.internal_address or member.address
            for member in self._roster().members
        }
        wanted = [addresses.get(status.name, "") for status in statuses]
        await self._hang_up(keep=set(wanted))
        asked = (self._ask(*one) for one in zip(statuses, wanted, strict=True))
        return list(zip(statuses, await asyncio.gather(*asked), strict=True))

    async def _collect(self) -> str:
        began_s = time.monotonic()
        told = await self.told()
        own = _Own(told, self._roster(), time.monotonic() - began_s)
        return united(
            [
                render(own, {}),
                render(self._process, OWN_LABELS),
                *(answer for _, answer in told if answer is not None),
            ]
        )

    async def _ask(self, status: ActorStatus, address: str) -> Families | None:
        """What one actor tells; None if it does not answer."""
        if status.state not in (ActorState.SERVING, ActorState.DRAINING) or not address:
            return None
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = internal_channel(address, self._credentials)
        stub = metrics_pb2_grpc.MetricsServiceStub(channel)
        request = metrics_pb2.CollectMetricsRequest(labels=_labels(status))
        try:
            with telling_closed():
                answer = await stub.Collect(request, timeout=COLLECT_S)
        except ChannelClosed:  # by another page
            return None
        except grpc.aio.AioRpcError:
            # The next page connects again, with the certificate of then.
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
        told: Sequence[tuple[ActorStatus, Families | None]],
        roster: Roster,
        took_s: float,
    ) -> None:
        self._statuses = [status for status, _ in told]
        self._told = {status.name: answer is not None for status, answer in told}
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
        yield from self._replicas()
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

    def _replicas(self) -> Iterable[Metric]:
        serving = Counter(
            (s.model, s.role) for s in self._statuses if s.state is ActorState.SERVING
        )
        for name, help_, value in (
            ("wanted", "Actors that the load asks for.", lambda scale: scale.wanted),
            ("running", "Actors that serve.", lambda scale: serving[scale.entry, scale.role]),
            ("min", "Actors that run at the least.", lambda scale: scale.least),
            ("max", "Actors that run at the most.", lambda scale: scale.most),
        ):
            yield gauges(
                f"replicas_{name}",
                help_,
                ("model", "role"),
                {(one.entry, one.role.value): value(one) for one in self._roster.scales},
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
