"""Waiting for Ray's node: as long as it may still come, and not after the user gave up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ray._private import services

from outrider.cluster.ray import ray_patience
from outrider.cluster.ray.ray_patience import NodeEnded, StartCancelled, patient


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asks more often than for a real start."""
    monkeypatch.setattr(ray_patience, "POLL_S", 0.001)


def answering_after(failures: int) -> Callable[..., str]:
    """A node that is not there for the first so many questions."""
    left: Iterator[int] = iter(range(failures))

    def get_node(address: str, node_id: str) -> str:
        if next(left, None) is not None:
            raise RuntimeError("no such node yet")
        return f"{node_id} at {address}"

    return get_node


def test_a_node_that_comes_late_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's own question is put again until it is answered, and is its own again afterwards."""
    ask = answering_after(50)
    module: Any = services
    monkeypatch.setattr(module, "get_node", ask)
    with patient(is_cancelled=lambda: False, is_alive=lambda: True):
        assert module.get_node("here", "n1") == "n1 at here"
    assert module.get_node is ask


def test_a_node_that_ended_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the error is none that Ray takes for a reason to ask again."""
    module: Any = services
    monkeypatch.setattr(module, "get_node", answering_after(10**9))
    asked = iter((True, True, False))
    with (
        patient(is_cancelled=lambda: False, is_alive=lambda: next(asked)),
        pytest.raises(NodeEnded) as ended,
    ):
        module.get_node("here", "n1")
    assert not isinstance(ended.value, RuntimeError)


def test_the_user_may_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal in the midst of the wait is heard."""
    module: Any = services
    monkeypatch.setattr(module, "get_node", answering_after(10**9))
    asked = iter((False, False, True))
    with (
        patient(is_cancelled=lambda: next(asked), is_alive=lambda: True),
        pytest.raises(StartCancelled),
    ):
        module.get_node("here", "n1")


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """With Ray's own error, which it then explains."""
    monkeypatch.setattr(ray_patience, "PATIENCE_S", 0.01)
    module: Any = services
    monkeypatch.setattr(module, "get_node", answering_after(10**9))
    with (
        patient(is_cancelled=lambda: False, is_alive=lambda: True),
        pytest.raises(RuntimeError, match="no such node yet"),
    ):
        module.get_node("here", "n1")
