"""Actors that tell metrics, as the supervisor is told them."""

from __future__ import annotations

from prometheus_client.core import Metric

from outrider.actors.metrics.families import counter, counters, gauge
from outrider.actors.metrics.metrics_service import render
from outrider.cluster.roster.actor_status import ActorState, ActorStatus
from outrider.cluster.roster.roster import Role
from outrider.cluster.supervise.observed_load import Told


class _Some:
    def __init__(self, *metrics: Metric) -> None:
        self._metrics = metrics

    def collect(self) -> tuple[Metric, ...]:
        """The metrics."""
        return self._metrics


def told(name: str, role: Role, entry: str, *metrics: Metric, incarnation: int = 1) -> Told:
    """An actor that serves, and what it tells."""
    status = ActorStatus(
        name=name, role=role, model=entry, state=ActorState.SERVING, incarnation=incarnation
    )
    labels = {"actor": name, "role": role.value, "model": entry, "node": "here"}
    return status, render(_Some(*metrics), labels)


def target(name: str, used: int, tokens: float, **accepted: float) -> Told:
    """A target of eight slots."""
    by_drafter: dict[tuple[str, ...], float] = {
        (drafter,): count for drafter, count in accepted.items()
    }
    return told(
        name,
        Role.TARGET,
        "t",
        gauge("slots", "", 8),
        gauge("slots_used", "", used),
        counter("committed_tokens", "", tokens),
        counters("spec_decode_num_accepted_tokens", "", ("drafter",), by_drafter),
    )


def drafter(name: str, slots: int) -> Told:
    """One of the drafters called d."""
    return told(name, Role.DRAFTER, "d", gauge("slots", "", slots))


def coordinator(waiting: int) -> Told:
    """One with a queue."""
    return told("c", Role.COORDINATOR, "t", gauge("num_requests_waiting", "", waiting))
