"""What the supervisor needs of the place where actors run. `ray_actors` offers it; the tests bring their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from outrider.actors.process.actor_runner import Identity, Started
from outrider.cluster.placement.actor_specs import ActorSettings, ActorSpec


class ActorCrashed(RuntimeError):
    """The process of an actor ended on its own: try again."""


class ActorRefused(RuntimeError):
    """An actor said why it cannot start: trying again changes nothing."""


class RunningActor(Protocol):
    """One start of one actor."""

    async def placed(self) -> None:
        """Waits until it has a process, on a node with room.

        Raises:
            ActorCrashed: Its process ended.
        """
        ...

    async def prepare(self) -> None:
        """Waits until it has loaded what it can before others serve.

        Raises:
            ActorRefused: It cannot start; the message is its own.
            ActorCrashed: Its process ended.
        """
        ...

    async def start(self) -> Started:
        """Waits until it serves and is registered. After `prepare`.

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

    @property
    def listen_host(self) -> str:
        """The host that actors listen at for each other; empty: the address of the node that they are on."""
        ...

    async def wait_for_room(
        self, specs: tuple[ActorSpec, ...], *, timeout_s: float, tell: Callable[[str], None]
    ) -> None:
        """Waits until there are nodes that could hold all of them.

        Args:
            specs: The actors.
            timeout_s: Bound on the wait.
            tell: Is told what is missing, at each change.

        Raises:
            PlacementError: They are not there within the time; says what is missing.
        """
        ...

    async def spawn(
        self, spec: ActorSpec, settings: ActorSettings, identity: Identity
    ) -> RunningActor:
        """Starts the process of an actor on the best node, as far as is known; it does nothing until `prepare`.

        Raises:
            ActorCrashed: None can be asked for at the moment.
        """
        ...

    async def lacking(self, spec: ActorSpec) -> str:
        """Why an actor has no process yet."""
        ...
