"""Who is alive, where, and since when. Pure: the clock is an argument.

The supervisor owns the one `Registry`; everyone else sees `Roster` values. Invariants: a name is on the roster at most
once, and with the start that the supervisor expects; the version rises with each change of what a roster tells.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NoReturn


class Role(StrEnum):
    """What an actor does."""

    COORDINATOR = "coordinator"
    """Serves clients, admits requests, controls sessions."""

    TARGET = "target"
    """Holds a target model."""

    DRAFTER = "drafter"
    """Proposes candidates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One living actor."""

    name: str
    """Its name, unique in the cluster."""

    role: Role
    """What it does."""

    address: str
    """Its gRPC address, as other nodes reach it."""

    incarnation: int
    """Identifies this start of the actor. Later starts have greater numbers."""

    model: str
    """The model it holds, as clients know it; for a drafter its own name in the configuration."""

    pid: int
    """Operating system process id."""

    node_id: str
    """The Ray node it runs on."""

    internal_address: str = ""
    """Its gRPC address for other actors; coordinators share the public one."""

    deployment: str = ""
    """Which model it serves; empty for drafters."""

    is_draining: bool = False
    """It takes no new sessions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """One actor that should be alive and is not."""

    name: str
    """Its name."""

    role: Role
    """What it does."""

    model: str
    """The model it holds."""

    state: str
    """What becomes of it."""

    reason: str
    """Why it is not alive; empty if it starts for the first time."""

    restarts: int
    """How often it was started again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaScale:
    """How many actors one entry of the configuration has."""

    entry: str
    """The entry's name; its actors have it for their model."""

    role: Role
    """What they do."""

    least: int
    """As many run at the least."""

    most: int
    """As many run at the most."""

    wanted: int
    """As many as the load asks for, within these bounds. More than run while they start, or if there is no room for them."""

    reason: str = ""
    """Why the number was last changed, or why it cannot be. Empty if nothing has changed since the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """Everyone who is alive at one moment."""

    version: int
    """Rises with each change."""

    members: tuple[Member, ...]
    """The members, by name."""

    absent: tuple[Absent, ...] = ()
    """Who should be there and is not, by name."""

    refused: int = 0
    """Registrations that were refused."""

    last_refusal: str = ""
    """Why the last one was."""

    scales: tuple[ReplicaScale, ...] = ()
    """How many actors there should be."""


EMPTY = Roster(version=0, members=())
"""Nobody is known."""


class StaleIncarnation(ValueError):
    """A start of an actor that a later one has replaced asked to be on the roster."""


class Stranger(ValueError):
    """Someone whom the supervisor did not start asked to be on the roster."""


@dataclass(slots=True)
class _Lease:
    member: Member
    ends_s: float


class Registry:
    """The roster and its leases."""

    def __init__(self, *, lease_s: float) -> None:
        self.lease_s = lease_s
        self.on_change: Callable[[], None] = lambda: None
        """Called whenever the version has risen."""
        self._leases: dict[str, _Lease] = {}
        self._fences: dict[str, int] = {}
        self._draining: set[str] = set()
        """Names of those that take no new sessions, on the roster or not."""
        self._absent: dict[str, Absent] = {}
        self._refused = 0
        self._last_refusal = ""
        self._scales: tuple[ReplicaScale, ...] = ()
        self._version = 0

    @property
    def roster(self) -> Roster:
        """The members at this moment, by name."""
        members = tuple(self._leases[name].member for name in sorted(self._leases))
        return Roster(
            version=self._version,
            members=members,
            absent=tuple(self._absent[name] for name in sorted(self._absent)),
            refused=self._refused,
            last_refusal=self._last_refusal,
            scales=self._scales,
        )

    def note_scales(self, scales: tuple[ReplicaScale, ...]) -> None:
        """Tells how many actors there should be from now on."""
        if scales != self._scales:
            self._scales = scales
            self._changed()

    def note_absent(self, absent: Absent) -> None:
        """Tells of an actor that should be there and is not."""
        if self._absent.get(absent.name) != absent:
            self._absent[absent.name] = absent
            self._changed()

    def forget_absent(self, name: str) -> None:
        """The actor is there, or is not wanted any more."""
        if self._absent.pop(name, None) is not None:
            self._changed()

    def fence(self, name: str, *, incarnation: int) -> None:
        """Expects one start of `name` and no other from now on, and takes an earlier one off the roster."""
        self._fences[name] = max(incarnation, self._fences.get(name, 0))
        self._draining.discard(name)
        lease = self._leases.get(name)
        if lease is not None and lease.member.incarnation < incarnation:
            self._drop(name)

    def register(self, member: Member, *, now_s: float) -> None:
        """Puts the expected start of an actor on the roster. Repeating it renews the lease.

        Raises:
            StaleIncarnation: A later start is expected. The roster is as it was.
            Stranger: No such actor or start was asked for. The roster is as it was.
        """
        expected = self._fences.get(member.name)
        if expected is not None and member.incarnation < expected:
            self._refuse(
                StaleIncarnation(
                    f"incarnation {member.incarnation} of {member.name!r} at {member.address} was replaced by {expected}; "
                    "stop this process"
                )
            )
        if member.incarnation != expected:
            self._refuse(
                Stranger(
                    f"incarnation {member.incarnation} of {member.name!r} at {member.address} was not started by this "
                    "service's supervisor"
                )
            )
        if member.name in self._draining:
            member = replace(member, is_draining=True)
        held = self._leases.get(member.name)
        self._leases[member.name] = _Lease(member, now_s + self.lease_s)
        if held is None or held.member != member:
            self._changed()

    def drain(self, name: str) -> None:
        """Tells everyone to give an actor no new sessions, also if it is yet to register."""
        self._draining.add(name)
        lease = self._leases.get(name)
        if lease is not None and not lease.member.is_draining:
            lease.member = replace(lease.member, is_draining=True)
            self._changed()

    def renew(self, name: str, *, incarnation: int, now_s: float) -> bool:
        """Prolongs a lease. False: this start is not the registered one."""
        lease = self._leases.get(name)
        if lease is None or lease.member.incarnation != incarnation:
            return False
        lease.ends_s = now_s + self.lease_s
        return True

    def remove(self, name: str, *, incarnation: int) -> bool:
        """Takes one start of an actor off the roster. False: it was not on it."""
        lease = self._leases.get(name)
        if lease is None or lease.member.incarnation != incarnation:
            return False
        self._drop(name)
        return True

    def prolong(self, by_s: float) -> None:
        """Prolongs every lease, for a time in which nobody could renew."""
        for lease in self._leases.values():
            lease.ends_s += by_s

    def expire(self, *, now_s: float) -> tuple[Member, ...]:
        """Takes off everyone whose lease has ended, and says who."""
        ended = tuple(lease.member for lease in self._leases.values() if lease.ends_s <= now_s)
        for member in ended:
            self._drop(member.name)
        return ended

    def _refuse(self, error: ValueError) -> NoReturn:
        self._refused += 1
        self._last_refusal = str(error)
        self._changed()
        raise error

    def _drop(self, name: str) -> None:
        del self._leases[name]
        self._changed()

    def _changed(self) -> None:
        self._version += 1
        self.on_change()
