"""What becomes of an actor whose process ends in the moment in which it is looked at, and of others while Ray is slow. The process is
real, the rest of Ray is not."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import ray

from outrider.actors.process.actor_runner import Started
from outrider.cluster.placement.actor_host import ActorCrashed
from outrider.cluster.placement.placement import PlacementPolicy
from outrider.cluster.ray.ray_actors import RayActor, RayActorHost

NODE = "here"


class Method:
    """A method of an actor that answers."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def remote(self) -> Any:
        """Answers."""
        return self._answer


def actor(pid: int) -> RayActor:
    """One that has started as this process, on this node."""
    served = Started(address="127.0.0.1:9", pid=pid, node_id=NODE)
    return RayActor(
        SimpleNamespace(start=Method(served)),
        own_node=NODE,
        settle=lambda node_id: None,
        leave=lambda: None,
    )


def started(program: str) -> subprocess.Popen[bytes]:
    """A process that runs a program of Python."""
    return subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE)


async def test_a_process_that_is_gone_as_it_is_looked_for_has_crashed() -> None:
    """So that it is started again, as one that ends a moment later is."""
    child = started("")
    child.wait()
    with pytest.raises(ActorCrashed):
        await actor(child.pid).start()
    child.communicate()


async def test_a_process_that_ends_before_it_is_killed_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It took a second to hear Ray, and then not a moment more."""
    child = started("input()")
    monkeypatch.setattr(ray, "kill", lambda handle, no_restart: None)
    made = actor(child.pid)
    await made.start()

    def late(self: psutil.Process, timeout: float) -> None:
        child.kill()
        child.wait()
        raise psutil.TimeoutExpired(timeout)

    monkeypatch.setattr(psutil.Process, "wait", late)
    await made.kill()
    assert child.returncode
    child.communicate()


async def test_others_are_answered_while_ray_does_not_say_which_nodes_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ray's control store is busy or out of reach for a while: leases are renewed, and the service is not taken for lost."""
    others_were_answered = threading.Event()

    def slow() -> list[dict[str, Any]]:
        assert others_were_answered.wait(30.0), "nobody was answered meanwhile"
        return []

    here = SimpleNamespace(get_node_id=lambda: NODE)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: here)
    monkeypatch.setattr(ray, "nodes", slow)
    host = RayActorHost(policy=PlacementPolicy(), use_loopback=True, may_grow=False)
    waiting = asyncio.create_task(host.wait_for_room((), timeout_s=60.0, tell=print))
    await asyncio.sleep(0)
    others_were_answered.set()
    await waiting


async def test_a_process_is_ended_though_nobody_waits_for_it_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The supervisor waits for a bounded time until Ray has heard it."""
    child = started("input()")
    was_given_up = threading.Event()
    monkeypatch.setattr(ray, "kill", lambda handle, no_restart: was_given_up.wait(30.0))
    made = actor(child.pid)
    await made.start()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(made.kill(), 0.01)
    was_given_up.set()
    assert await asyncio.to_thread(child.wait, 30.0)
    child.communicate()
