"""The wire forms of the roster and what is on it: messages whose fields have the names of ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

from outrider.cluster.roster.roster import Absent, Member, ReplicaScale, Role, Roster
from outrider.v1 import cluster_pb2

Entry = TypeVar("Entry", Member, Absent, ReplicaScale)
Message = TypeVar("Message", cluster_pb2.Member, cluster_pb2.Absent, cluster_pb2.Scale)


def member_to_proto(member: Member) -> cluster_pb2.Member:
    """The wire form."""
    return _told(cluster_pb2.Member, member)


def member_from_proto(message: cluster_pb2.Member) -> Member:
    """The member of a message.

    Raises:
        ValueError: The name, the address or the incarnation is absent, or the role is not known.
    """
    member = _read(Member, message)
    for field in ("name", "address", "incarnation"):
        if not getattr(member, field):
            raise ValueError(f"member.{field} is absent")
    return member


def roster_to_proto(roster: Roster) -> cluster_pb2.Roster:
    """The wire form."""
    return cluster_pb2.Roster(
        version=roster.version,
        members=[member_to_proto(member) for member in roster.members],
        absent=[_told(cluster_pb2.Absent, absent) for absent in roster.absent],
        refused=roster.refused,
        last_refusal=roster.last_refusal,
        scales=[_told(cluster_pb2.Scale, scale) for scale in roster.scales],
    )


def roster_from_proto(message: cluster_pb2.Roster) -> Roster:
    """The roster of a message.

    Raises:
        ValueError: A member is not complete.
    """
    return Roster(
        version=message.version,
        members=tuple(member_from_proto(member) for member in message.members),
        absent=tuple(_read(Absent, absent) for absent in message.absent),
        refused=message.refused,
        last_refusal=message.last_refusal,
        scales=tuple(_read(ReplicaScale, scale) for scale in message.scales),
    )


def _told(kind: Callable[..., Message], entry: Member | Absent | ReplicaScale) -> Message:
    told: dict[str, Any] = {field.name: getattr(entry, field.name) for field in fields(entry)}
    return kind(**{**told, "role": cluster_pb2.Role.Value(f"ROLE_{entry.role.name}")})


def _read(kind: type[Entry], message: Any) -> Entry:
    read: dict[str, Any] = {field.name: getattr(message, field.name) for field in fields(kind)}
    return kind(**{**read, "role": _role(message.role)})


def _role(value: int) -> Role:
    roles: dict[int, Role] = {cluster_pb2.Role.Value(f"ROLE_{role.name}"): role for role in Role}
    if value not in roles:
        raise ValueError(f"member.role is {value}; expected one of {sorted(roles)}")
    return roles[value]
