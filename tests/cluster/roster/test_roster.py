"""Leases, fences and the wire form of the roster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.cluster.roster.roster import (
    Absent,
    Member,
    Registry,
    Role,
    StaleIncarnation,
    Stranger,
)
from outrider.cluster.roster.roster_wire import (
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
    internal_address="127.0.0.1:7001",
)


def expecting(*members: Member) -> Registry:
    """A registry whose supervisor has started these."""
    registry = Registry(lease_s=10)
    for member in members:
        registry.fence(member.name, incarnation=member.incarnation)
    return registry


def test_registering_puts_on_the_roster_and_repeating_it_changes_nothing() -> None:
    """The version rises once, whatever a lost answer makes an actor send again."""
    registry = expecting(MEMBER)
    registry.register(MEMBER, now_s=0)
    before = registry.roster
    registry.register(MEMBER, now_s=1)

    assert before.members == (MEMBER,)
    assert registry.roster == before


def test_later_incarnation_takes_the_place_and_the_earlier_is_refused() -> None:
    """Of two starts of one actor the later stays."""
    registry = expecting(MEMBER)
    later = replace(MEMBER, incarnation=6)
    registry.register(MEMBER, now_s=0)
    registry.fence("draft-0", incarnation=6)
    registry.register(later, now_s=0)

    with pytest.raises(
        StaleIncarnation, match=r"incarnation 5 of 'draft-0' at .* was replaced by 6"
    ):
        registry.register(MEMBER, now_s=0)
    assert registry.roster.members == (later,)
    assert not registry.renew("draft-0", incarnation=5, now_s=0)


def test_fence_refuses_a_start_that_never_registered() -> None:
    """A slow starter that was given up may not come back beside its successor."""
    registry = Registry(lease_s=10)
    registry.fence("draft-0", incarnation=6)

    with pytest.raises(StaleIncarnation):
        registry.register(MEMBER, now_s=0)


@pytest.mark.parametrize(
    "stranger",
    [
        replace(MEMBER, name="target-7", role=Role.TARGET),
        replace(MEMBER, incarnation=6),
        replace(MEMBER, incarnation=2**64 - 1),
    ],
)
def test_who_was_not_started_here_is_refused_counted_and_fences_nobody(stranger: Member) -> None:
    """Neither a name that nobody asked for nor a later start of one: the real one stays, and may come back."""
    registry = expecting(MEMBER)
    registry.register(MEMBER, now_s=0)
    version = registry.roster.version
    with pytest.raises(Stranger, match="was not started by this service's supervisor"):
        registry.register(stranger, now_s=0)

    roster = registry.roster
    assert (roster.members, roster.refused, roster.version > version) == ((MEMBER,), 1, True)
    assert stranger.name in roster.last_refusal
    registry.register(MEMBER, now_s=1)
    assert roster_from_proto(roster_to_proto(roster)) == roster


def test_absent_actors_are_told_until_they_are_there() -> None:
    """The version rises with each change of what is told, and only then."""
    registry = expecting(MEMBER)
    gone = Absent(
        name="draft-0", role=Role.DRAFTER, model="m", state="restarting", reason="died", restarts=3
    )
    registry.note_absent(gone)
    before = registry.roster
    registry.note_absent(gone)
    assert registry.roster == before
    assert before.absent == (gone,)
    assert roster_from_proto(roster_to_proto(before)) == before
    registry.forget_absent("draft-0")
    assert registry.roster.absent == ()
    assert registry.roster.version > before.version


def test_fence_takes_the_earlier_start_off() -> None:
    """From the fence on nobody is sent to the old address."""
    registry = expecting(MEMBER)
    registry.register(MEMBER, now_s=0)
    registry.fence("draft-0", incarnation=6)

    assert registry.roster.members == ()


def test_lease_ends_unless_renewed() -> None:
    """Silence takes an actor off; a renewal prolongs from its own time."""
    registry = expecting(MEMBER)
    registry.register(MEMBER, now_s=0)

    assert registry.expire(now_s=9.9) == ()
    assert registry.renew("draft-0", incarnation=5, now_s=9.9)
    assert registry.expire(now_s=19.8) == ()
    assert registry.expire(now_s=19.9) == (MEMBER,)
    assert registry.roster.members == ()
    assert not registry.renew("draft-0", incarnation=5, now_s=20)


def test_prolonged_leases_end_later() -> None:
    """A pause of the supervisor is nobody's silence."""
    registry = expecting(MEMBER)
    registry.register(MEMBER, now_s=0)
    registry.prolong(100)

    assert registry.expire(now_s=109) == ()
    assert registry.expire(now_s=110) == (MEMBER,)


def test_expired_actor_may_register_again() -> None:
    """A lease that ended by a pause of the machine is no sentence."""
    registry = expecting(MEMBER)
    registry.register(MEMBER, now_s=0)
    registry.expire(now_s=10)
    registry.register(MEMBER, now_s=11)

    assert registry.roster.members == (MEMBER,)


def test_removing_another_incarnation_changes_nothing() -> None:
    """News of an old start's death does not touch its successor."""
    registry = expecting(MEMBER)
    registry.register(MEMBER, now_s=0)
    version = registry.roster.version

    assert not registry.remove("draft-0", incarnation=4)
    assert registry.roster.version == version
    assert registry.remove("draft-0", incarnation=5)
    assert registry.roster.version == version + 1


def test_roster_survives_the_wire() -> None:
    """Every field comes back."""
    registry = expecting(MEMBER)
    registry.register(MEMBER, now_s=0)
    for name in ("a", "b"):
        registry.fence(name, incarnation=MEMBER.incarnation)
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


def test_an_actor_that_drains_and_registers_again_goes_on_draining() -> None:
    """It lost its lease or its answer meanwhile, which is no reason to give it sessions."""
    registry = expecting(MEMBER)
    registry.register(MEMBER, now_s=0)
    registry.drain(MEMBER.name)
    registry.register(MEMBER, now_s=1)
    assert registry.roster.members == (replace(MEMBER, is_draining=True),)
    registry.expire(now_s=100)
    registry.register(MEMBER, now_s=101)
    assert registry.roster.members == (replace(MEMBER, is_draining=True),)


def test_an_actor_that_registers_after_it_was_told_to_go_gets_no_sessions() -> None:
    """It was being started when the word came."""
    registry = expecting(MEMBER)
    registry.drain(MEMBER.name)
    registry.register(MEMBER, now_s=0)
    assert registry.roster.members == (replace(MEMBER, is_draining=True),)


def test_a_later_start_of_a_name_takes_sessions() -> None:
    """One that went and is asked for again is as good as any."""
    registry = expecting(MEMBER)
    registry.drain(MEMBER.name)
    later = replace(MEMBER, incarnation=6)
    registry.fence(later.name, incarnation=6)
    registry.register(later, now_s=0)
    assert registry.roster.members == (later,)
