"""A service of plain processes, without Ray: one target, drafters, a coordinator, each a `bench.running.host`.

The actors are those of the product, and they talk as they always do; what is left out is Ray's placing and watching. This is
for what Ray's processes would disturb or cannot do: a drafter behind a relay or in another network namespace, and processor
time by thread.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Any, Self

from bench.running.child import Child
from outrider.client import Client, ModelInfo, Unavailable
from outrider.cluster.config.host_port import split_host_port

START_S = 300.0
"""How long an actor may take to load its model and warm up, on a busy machine."""

READY_S = 60.0
"""How long until every drafter is connected."""

LOOPBACK = "127.0.0.1"


class Assembly:
    """A running service. A context manager: leaving it ends every process."""

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        alterations: Mapping[str, Sequence[str]] | None = None,
        target_host: str = LOOPBACK,
        drafter_host: str = LOOPBACK,
        drafter_prefix: Sequence[str] = (),
        drafter_environment: Mapping[str, str] | None = None,
    ) -> None:
        """
        Args:
            config: As `outrider serve` reads it; its target and drafters have names.
            alterations: By actor, functions as `MODULE:NAME` that are called in its process before it starts, such as
                `bench.figures.observations:record_observations`.
            target_host: Where the target listens.
            drafter_host: Where the drafters listen.
            drafter_prefix: A command before the drafters' own, such as `ip netns exec NAME`.
            drafter_environment: Variables for the drafters.
        """
        self._config = dict(config)
        self._alterations = alterations or {}
        self._target_host = target_host
        self._drafter_host = drafter_host
        self._drafter_prefix = drafter_prefix
        self._drafter_environment = drafter_environment
        self._stack = ExitStack()
        self._children: dict[str, Child] = {}
        self._orders: dict[str, dict[str, Any]] = {}
        self._spares: dict[str, Child] = {}
        self.addresses: dict[str, str] = {}
        """Of every actor, by name."""

    @property
    def address(self) -> str:
        """Of the `GenerationService`."""
        return self.addresses["coordinator"]

    @property
    def target(self) -> str:
        """The target's name."""
        return str(self._config["targets"][0]["name"])

    @property
    def drafters(self) -> list[str]:
        """The drafters' names."""
        return [str(drafter["name"]) for drafter in self._config.get("drafters", ())]

    def __enter__(self) -> Self:
        try:
            self._start(self.target, self._target_host)
            for name in self.drafters:
                self._start(name, self._drafter_host)
            self._await(self.target, *self.drafters)
            self._start(
                "coordinator",
                LOOPBACK,
                targets=[self.addresses[self.target]],
                drafters=[(name, self.addresses[name]) for name in self.drafters],
            )
            self._await("coordinator")
            self._until_ready()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def ask(self, name: str, what: str) -> Any:
        """Asks an actor's process for `costs`, `observations` or, of a drafter, `drafted`: its `DraftStats`."""
        return self._children[name].ask(what)

    def costs(self) -> dict[str, Any]:
        """`bench.running.host.costs` of every actor, by name."""
        return {name: self.ask(name, "costs") for name in self._children}

    def restart(self, name: str, *, alterations: Sequence[str] | None = None) -> None:
        """Kills the target or a drafter, as a machine that fails would, and starts it again at its address.

        Args:
            name: Which.
            alterations: Of its process from now on; None: as before.
        """
        self._children[name].kill()
        order = self._orders[name]
        order["incarnation"] = order.get("incarnation", 1) + 1
        _, order["port"] = split_host_port(self.addresses[name])
        if alterations is not None:
            order["alterations"] = list(alterations)
        self._children[name] = child = self._spares.pop(name, None) or self._child(name)
        child.tell(order)
        self._await(name)

    def prepare_restart(self, name: str) -> None:
        """Starts a process that waits to take the place of this one: the next `restart` then loads the model only."""
        if name not in self._spares:
            self._spares[name] = self._child(name)

    def _start(self, name: str, host: str, **order: Any) -> None:
        self._children[name] = self._child(name)
        alterations = list(self._alterations.get(name, ()))
        order |= {"config": self._config, "name": name, "host": host, "alterations": alterations}
        self._orders[name] = order
        self._children[name].tell(order)

    def _child(self, name: str) -> Child:
        is_drafter = name in self.drafters
        child = Child(
            "bench.running.host",
            prefix=self._drafter_prefix if is_drafter else (),
            environment=self._drafter_environment if is_drafter else None,
        )
        return self._stack.enter_context(child)

    def _await(self, *names: str) -> None:
        for name in names:
            self.addresses[name] = self._children[name].answer(timeout_s=START_S)["address"]

    def _until_ready(self) -> None:
        deadline = time.monotonic() + READY_S
        with Client(self.address) as client:
            while True:
                models: tuple[ModelInfo, ...] = ()
                with suppress(Unavailable):  # On a busy machine the target is not connected yet.
                    models = client.models()
                ready = {
                    drafter.name for model in models for drafter in model.drafters if drafter.ready
                }
                if models and ready.issuperset(self.drafters):
                    return
                if time.monotonic() > deadline:
                    raise TimeoutError(
                        f"the coordinator has {sorted(ready)} of the drafters {self.drafters} after {READY_S:g} s"
                    )
                time.sleep(0.05)
