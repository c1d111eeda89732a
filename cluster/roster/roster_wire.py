"""The wire forms of the roster and its members."""

from __future__ import annotations

from outrider.cluster.roster.roster import Absent, Member, ReplicaScale, Role, Roster
from outrider.v1 import cluster_pb2


def member_to_proto(member: Member) -> cluster_pb2.Member:
    """The wire form."""
    return cluster_pb2.Member(
        name=member.name,
        role=cluster_pb2.Role.Value(f"ROLE_{member.role.name}"),
        address=member.address,
        incarnation=member.incarnation,
        model=member.model,
        pid=member.pid,
        node_id=member.node_id,
        internal_address=member.internal_address,
        deployment=member.deployment,
        is_draining=member.is_draining,
    )


def member_from_proto(message: cluster_pb2.Member) -> Member:
    """The member of a message.

    Raises:
        ValueError: The name, the address or the incarnation is absent, or the role is not known.
    """
    role = _role(message.role)
    for field in ("name", "address", "incarnation"):
        if not getattr(message, field):
            raise ValueError(f"member.{field} is absent")
    return Member(
        name=message.name,
        role=role,
        address=message.address,
        incarnation=message.incarnation,
        model=message.model,
        pid=message.pid,
        node_id=message.node_id,
        internal_address=message.internal_address,
        deployment=message.deployment,
        is_draining=message.is_draining,
    )


def _role(value: int) -> Role:
    roles: dict[int, Role] = {cluster_pb2.Role.Value(f"ROLE_{role.name}"): role for role in Role}
    if value not in roles:
        raise ValueError(f"member.role is {value}; expected one of {sorted(roles)}")
    return roles[value]


def roster_to_proto(roster: Roster) -> cluster_pb2.Roster:
    """The wire form."""
    return cluster_pb2.Roster(
        version=roster.version,
        members=[member_to_proto(member) for member in roster.members],
        absent=[
            cluster_pb2.Absent(
                name=absent.name,
                role=cluster_pb2.Role.Value(f"ROLE_{absent.role.name}"),
                model=absent.model,
                state=absent.state,
                reason=absent.reason,
                restarts=absent.restarts,
            )
            for absent in roster.absent
        ],
        refused=roster.refused,
        last_refusal=roster.last_refusal,
        scales=[
            cluster_pb2.Scale(
                entry=scale.entry,
                role=cluster_pb2.Role.Value(f"ROLE_{scale.role.name}"),
                least=scale.least,
                most=scale.most,
                wanted=scale.wanted,
                reason=scale.reason,
            )
            for scale in roster.scales
        ],
    )


def roster_from_proto(message: cluster_pb2.Roster) -> Roster:
    """The roster of a message.

    Raises:
        ValueError: A member is not complete.
    """
    return Roster(
        version=message.version,
        members=tuple(member_from_proto(member) for member in message.members),
        absent=tuple(
            Absent(
                name=one.name,
                role=_role(one.role),
                model=one.model,
                state=one.state,
                reason=one.reason,
                restarts=one.restarts,
            )
            for one in message.absent
        ),
        refused=message.refused,
        last_refusal=message.last_refusal,
        scales=tuple(
            ReplicaScale(
                entry=scale.entry,
                role=_role(scale.role),
                least=scale.least,
                most=scale.most,
                wanted=scale.wanted,
                reason=scale.reason,
            )
            for scale in message.scales
        ),
    )
