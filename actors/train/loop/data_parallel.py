"""The workers of one training: each has a part of every batch, and a step is made of all parts.

A loss is a sum divided by a count. Here the count is the mean of the workers' counts (`count_of_all`), so that the mean of their losses, and of their
gradients, is that of the whole batch, whatever each has of what counts. Trainers are the same program in every worker; what is on disk is written by
the first one (`is_first`), and what depends on a clock is decided by it (`from_first`). A training that is not spread is its own first worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar, overload

import numpy as np
import torch
import torch.distributed
from numpy.typing import NDArray
from torch import nn

Rows = TypeVar("Rows", torch.Tensor, NDArray[np.int64])


class Workers:
    """What one worker can ask of all of them, which must ask the same in the same order; this one is alone."""

    rank = 0
    """Number of this one."""

    count = 1
    """How many there are."""

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """The sum over workers, of numbers that each has; may be written into `values`."""
        return values

    def first(self, values: torch.Tensor) -> torch.Tensor:
        """Those of the first worker; may be written into `values`."""
        return values


class TorchWorkers(Workers):
    """The processes of torch's default group."""

    def __init__(self) -> None:
        """Of this process, whose group is there already."""
        self.rank = torch.distributed.get_rank()
        self.count = torch.distributed.get_world_size()

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """See `Workers`."""
        torch.distributed.all_reduce(values)
        return values

    def first(self, values: torch.Tensor) -> torch.Tensor:
        """See `Workers`."""
        torch.distributed.broadcast(values, src=0)
        return values


_workers: ContextVar[Workers] = ContextVar("workers", default=Workers())  # noqa: B039 - it has no state


@contextmanager
def among(workers: Workers) -> Iterator[None]:
    """Whatever is trained inside is trained by these."""
    token = _workers.set(workers)
    try:
        yield
    finally:
        _workers.reset(token)


def is_first() -> bool:
    """Whether this worker writes what is kept, and says how it goes."""
    return _workers.get().rank == 0


def from_first(number: int) -> int:
    """The first worker's number; where the others wait for it."""
    workers = _workers.get()
    return int(workers.first(torch.tensor(number))) if workers.count > 1 else number


def own_part(rows: Rows) -> Rows:
    """This worker's part of what belongs to the rows of a batch: the parts lie one after the other, and differ by one row at the most."""
    workers, num = _workers.get(), len(rows)
    return rows[workers.rank * num // workers.count : (workers.rank + 1) * num // workers.count]


def rows_of_all(num_rows: int) -> int:
    """Rows of the whole batch, of which this worker has so many. What is drawn at random for rows is drawn for all of them."""
    workers = _workers.get()
    return int(workers.sum(torch.tensor(num_rows))) if workers.count > 1 else num_rows


@overload
def count_of_all(count: int) -> float: ...
@overload
def count_of_all(count: torch.Tensor) -> torch.Tensor: ...
def count_of_all(count: int | torch.Tensor) -> float | torch.Tensor:
    """What a sum over this worker's part is to be divided by: the mean over workers of how much counts. Without a gradient."""
    workers = _workers.get()
    if workers.count == 1:
        return count
    if isinstance(count, torch.Tensor):
        return workers.sum(count.detach().float().clone()) / workers.count
    return float(workers.sum(torch.tensor(float(count)))) / workers.count


def mean_loss_of_all(loss: torch.Tensor) -> float:
    """The loss of the whole batch."""
    workers = _workers.get()
    return float(workers.sum(loss.detach().clone())) / workers.count


def start_alike(net: nn.Module) -> None:
    """Gives every worker the first one's weights."""
    workers = _workers.get()
    if workers.count > 1:
        for tensor in net.state_dict().values():
            tensor.copy_(workers.first(tensor.detach().clone()))


def average_gradients(net: nn.Module) -> None:
    """Puts the mean of the workers' gradients in place of each one's; a weight that none has a gradient of keeps none."""
    workers = _workers.get()
    if workers.count == 1:
        return
    weights = [weight for weight in net.parameters() if weight.requires_grad]
    parts = [
        (torch.zeros_like(weight) if weight.grad is None else weight.grad).flatten().float()
        for weight in weights
    ]
    has_any = [float(weight.grad is not None) for weight in weights]
    flat = workers.sum(torch.cat((*parts, parts[0].new_tensor(has_any))))
    *means, has_any_of_all = torch.split(flat, [*map(len, parts), len(weights)])
    for weight, mean, num_with in zip(weights, means, has_any_of_all.tolist(), strict=True):
        if num_with:
            weight.grad = (mean / workers.count).view_as(weight).to(weight.dtype)
