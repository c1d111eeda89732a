"""What becomes of an actor whose process ends in the moment in which it is looked at. The process is real, the rest of Ray is not."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import ray

from outrider.actors.process.actor_runner import Started
from outrider.cluster.placement.actor_host import ActorCrashed
from outrider.cluster.ray.ray_actors import RayActor

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
