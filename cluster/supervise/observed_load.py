"""What the metrics of all actors say of the load, as the policy needs it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from outrider.actors.metrics.families import PREFIX
from outrider.cluster.roster.actor_status import ActorState, ActorStatus
from outrider.cluster.roster.roster import Role
from outrider.v1 import metrics_pb2

WAITING = f"{PREFIX}num_requests_waiting"
SLOTS = f"{PREFIX}slots"
USED = f"{PREFIX}slots_used"
TOKENS = f"{PREFIX}committed_tokens_total"
ACCEPTED = f"{PREFIX}spec_decode_num_accepted_tokens_total"

_NEEDED = frozenset((WAITING, SLOTS, USED, TOKENS, ACCEPTED))

Told = tuple[ActorStatus, Sequence[metrics_pb2.MetricFamily] | None]
"""An actor, and its metrics; None if it did not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReading:
    """What one actor told."""

    name: str
    incarnation: int
    role: Role
    entry: str
    """Its name in the configuration, which replicas share."""

    slots: int = 0
    used: int = 0
    waiting: int = 0
    """Coordinator: requests that wait for a slot."""

    tokens: float = 0.0
    """Target: tokens committed since its start."""

    accepted: Mapping[str, float] = field(default_factory=dict)
    """Target: those of them that drafters had proposed, by the drafter's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSample:
    """The load of one entry of the configuration at one moment."""

    at_s: float
    """On the monotonic clock."""

    sessions: int
    """Texts that are decoded."""

    waiting: int
    """Texts that wait for a slot here; none for drafters, which nobody waits for."""

    slots: int
    """Of one replica."""

    tokens: float = 0.0
    """Drafters: tokens that were committed since the sample before, counted as far as the drafters have slots for the texts."""

    gained: float = 0.0
    """Drafters: those of them that these drafters had proposed."""


def read(told: Iterable[Told]) -> tuple[LoadReading, ...] | None:
    """What all actors that serve told. None if a target or a coordinator did not answer: then the load is not known."""
    readings = []
    for status, families in told:
        if status.state is not ActorState.SERVING:
            continue
        if families is not None:
            readings.append(_reading(status, families))
        elif status.role is not Role.DRAFTER:
            return None
    return tuple(readings)


def samples(
    before: Sequence[LoadReading], now: Sequence[LoadReading], at_s: float
) -> dict[str, LoadSample]:
    """The load by entry, of those of which a replica answered.

    Args:
        before: The readings of the look before.
        now: Those of this one.
        at_s: When this one was.
    """
    former = {(one.name, one.incarnation): one for one in before}
    sessions = sum(one.used for one in now if one.role is Role.TARGET)
    waiting = sum(one.waiting for one in now)
    tokens = 0.0
    gained: dict[str, float] = {}
    for one in now:
        last = former.get((one.name, one.incarnation))
        if one.role is not Role.TARGET or last is None:
            continue
        tokens += one.tokens - last.tokens
        for name, count in one.accepted.items():
            gained[name] = gained.get(name, 0.0) + count - last.accepted.get(name, 0.0)
    found = {}
    for entry in dict.fromkeys(one.entry for one in now if one.role is not Role.COORDINATOR):
        replicas = [one for one in now if one.entry == entry and one.role is not Role.COORDINATOR]
        slots = sum(one.slots for one in replicas)
        is_target = replicas[0].role is Role.TARGET
        served = min(1.0, slots / sessions) if sessions else 1.0
        found[entry] = LoadSample(
            at_s=at_s,
            sessions=sessions,
            waiting=waiting if is_target else 0,
            slots=max(1, round(slots / len(replicas))),
            tokens=0.0 if is_target else tokens * served,
            gained=sum(gained.get(one.name, 0.0) for one in replicas),
        )
    return found


def _reading(status: ActorStatus, families: Sequence[metrics_pb2.MetricFamily]) -> LoadReading:
    values: dict[str, float] = {}
    accepted: dict[str, float] = {}
    for family in families:
        if family.name not in _NEEDED:
            continue
        for metric in text_string_to_metric_families(family.samples):
            for sample in metric.samples:
                if sample.name == ACCEPTED:
                    accepted[sample.labels.get("drafter", "")] = sample.value
                else:
                    values[sample.name] = sample.value
    return LoadReading(
        name=status.name,
        incarnation=status.incarnation,
        role=status.role,
        entry=status.model,
        slots=int(values.get(SLOTS, 0)),
        used=int(values.get(USED, 0)),
        waiting=int(values.get(WAITING, 0)),
        tokens=values.get(TOKENS, 0.0),
        accepted=accepted,
    )
