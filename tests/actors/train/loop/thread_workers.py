"""Workers of one training as threads of one process, which is how trainers are tested without Ray."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from outrider.actors.train.loop.data_parallel import Workers, among

Result = TypeVar("Result")

PATIENCE_S = 20.0
"""For one another."""


class ThreadWorkers(Workers):
    """One of them."""

    def __init__(
        self, rank: int, slots: list[torch.Tensor | None], barrier: threading.Barrier
    ) -> None:
        self.rank, self.count = rank, len(slots)
        self._slots, self._barrier = slots, barrier

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """See `Workers`."""
        return torch.stack(self._told(values)).sum(0)

    def first(self, values: torch.Tensor) -> torch.Tensor:
        """See `Workers`."""
        return self._told(values)[0]

    def _told(self, values: torch.Tensor) -> list[torch.Tensor]:
        self._slots[self.rank] = values.clone()
        self._barrier.wait(PATIENCE_S)
        told = [one.clone() for one in self._slots if one is not None]
        self._barrier.wait(PATIENCE_S)
        return told


def together(count: int, work: Callable[[], Result]) -> list[Result]:
    """What each of so many workers made; if one fails, its error."""
    barrier = threading.Barrier(count)
    slots: list[torch.Tensor | None] = [None] * count

    def run(rank: int) -> Result:
        try:
            with among(ThreadWorkers(rank, slots, barrier)):
                return work()
        except Exception:
            barrier.abort()
            raise

    with ThreadPoolExecutor(count) as threads:
        ends = [threads.submit(run, rank) for rank in range(count)]
    errors = [error for end in ends if (error := end.exception()) is not None]
    for error in sorted(errors, key=lambda one: isinstance(one, threading.BrokenBarrierError)):
        raise error
    return [end.result() for end in ends]
