"""Leases, fences and the wire form of the roster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.cluster.roster import (
    Member,
    Registry,
    Role,
    StaleIncarnation,
    member_from_proto,
    member_to_proto,
    roster_from_proto,
    roster_to_proto,
)
from outrider.v1 import cluster_pb2

MEMBER = Member(
    name="draft-0",
    role=Role.DRAFTER,
    address="127.0.0.1:7000",
    incarnation=5,
    model="draft",
    pid=42,
    node_id="ab",
)


def test_registering_puts_on_the_roster_and_repeating_it_changes_nothing() -> None:
    """The version rises once, whatever a lost answer makes an actor send again."""
    registry = Registry(lease_s=10)
    registry.register(MEMBER, now_s=0)
    before = registry.roster
    registry.register(MEMBER, now_s=1)

    assert before.members == (MEMBER,)
    assert registry.roster == before


def test_later_incarnation_takes_the_place_and_the_earlier_is_refused() -> None:
    """Of two starts of one actor the later stays."""
    registry = Registry(lease_s=10)
    later = replace(MEMBER, incarnation=6)
    registry.register(MEMBER, now_s=0)
    registry.register(later, now_s=0)

    with pytest.raises(StaleIncarnation, match="incarnation 5 of 'draft-0' was replaced by 6"):
        registry.register(MEMBER, now_s=0)
    assert registry.roster.members == (later,)
    assert not registry.renew("draft-0", incarnation=5, now_s=0)


def test_fence_refuses_a_start_that_never_registered() -> None:
    """A slow starter that was given up may not come back beside its successor."""
    registry = Registry(lease_s=10)
    registry.fence("draft-0", incarnation=6)

    with pytest.raises(StaleIncarnation):
        registry.register(MEMBER, now_s=0)


def test_fence_takes_the_earlier_start_off() -> None:
    """From the fence on nobody is sent to the old address."""
    registry = Registry(lease_s=10)
    registry.register(MEMBER, now_s=0)
    registry.fence("draft-0", incarnation=6)

    assert registry.roster.members == ()


def test_lease_ends_unless_renewed() -> None:
    """Silence takes an actor off; a renewal prolongs from its own time."""
    registry = Registry(lease_s=10)
    registry.register(MEMBER, now_s=0)

    assert registry.expire(now_s=9.9) == ()
    assert registry.renew("draft-0", incarnation=5, now_s=9.9)
    assert registry.expire(now_s=19.8) == ()
    assert registry.expire(now_s=19.9) == (MEMBER,)
    assert registry.roster.members == ()
    assert not registry.renew("draft-0", incarnation=5, now_s=20)


def test_prolonged_leases_end_later() -> None:
    """A pause of the supervisor is nobody's silence."""
    registry = Registry(lease_s=10)
    registry.register(MEMBER, now_s=0)
    registry.prolong(100)

    assert registry.expire(now_s=109) == ()
    assert registry.expire(now_s=110) == (MEMBER,)


def test_expired_actor_may_register_again() -> None:
    """A lease that ended by a pause of the machine is no sentence."""
    registry = Registry(lease_s=10)
    registry.register(MEMBER, now_s=0)
    registry.expire(now_s=10)
    registry.register(MEMBER, now_s=11)

    assert registry.roster.members == (MEMBER,)


def test_removing_another_incarnation_changes_nothing() -> None:
    """News of an old start's death does not touch its successor."""
    registry = Registry(lease_s=10)
    registry.register(MEMBER, now_s=0)
    version = registry.roster.version

    assert not registry.remove("draft-0", incarnation=4)
    assert registry.roster.version == version
    assert registry.remove("draft-0", incarnation=5)
    assert registry.roster.version == version + 1


def test_roster_survives_the_wire() -> None:
    """Every field comes back."""
    registry = Registry(lease_s=10)
    registry.register(MEMBER, now_s=0)
    registry.register(replace(MEMBER, name="a", role=Role.TARGET), now_s=0)
    registry.register(replace(MEMBER, name="b", role=Role.COORDINATOR), now_s=0)

    assert roster_from_proto(roster_to_proto(registry.roster)) == registry.roster


@pytest.mark.parametrize("field", ["name", "address", "incarnation", "role"])
def test_incomplete_member_is_refused_by_the_field_name(field: str) -> None:
    """An actor that forgets something is told what."""
    message = member_to_proto(MEMBER)
    message.ClearField(field)  # type: ignore[arg-type]

    with pytest.raises(ValueError, match=rf"member\.{field}"):
        member_from_proto(message)


def test_unknown_role_is_refused() -> None:
    """A role of a later version is not taken for another."""
    message = member_to_proto(MEMBER)
    message.role = 99  # type: ignore[assignment]

    with pytest.raises(ValueError, match=r"member\.role is 99"):
        member_from_proto(message)
    assert cluster_pb2.ROLE_UNSPECIFIED == 0
