"""What the supervisor needs of the place where actors run. `ray_actors` offers it; the tests bring their own."""

from __future__ import annotations

from typing import Protocol

from outrider.actors.residence import Identity, Started
from outrider.cluster.fleet import ActorSettings, ActorSpec


class ActorCrashed(RuntimeError):
    """The process of an actor ended on its own: try again."""


class ActorRefused(RuntimeError):
    """An actor said why it cannot start: trying again changes nothing."""


class RunningActor(Protocol):
    """One start of one actor."""

    async def start(self) -> Started:
        """Waits until it serves and is registered.

        Raises:
            ActorRefused: It cannot start; the message is its own.
            ActorCrashed: Its process ended.
        """
        ...

    async def run(self) -> str:
        """Waits for its end, however it comes, and says how."""
        ...

    async def stop(self, grace_s: float) -> None:
        """Asks it to stop serving within the grace. An actor that is gone already is no error."""
        ...

    async def kill(self) -> None:
        """Ends its process at once. Idempotent."""
        ...


class ActorHost(Protocol):
    """Where actors run."""

    async def place(self, specs: tuple[ActorSpec, ...], *, timeout_s: float) -> None:
        """Reserves the resources of all of them.

        Raises:
            PlacementError: They are not there within the time; says what is missing.
        """
        ...

    def listen_host(self, spec: ActorSpec) -> str:
        """The host that an actor listens at for the others. Its resources are reserved."""
        ...

    def spawn(self, spec: ActorSpec, settings: ActorSettings, identity: Identity) -> RunningActor:
        """Starts the process of an actor, which does nothing until `start`."""
        ...

    async def release(self) -> None:
        """Gives all resources back."""
        ...
