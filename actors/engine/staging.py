"""Numbers on their way to a device: packed on the host, one transfer, no waiting.

A transfer from ordinary memory makes the host wait until it is through; one from pinned memory does not. torch keeps pinned
blocks that were released for the next use, and hands none out before the transfers from it are through, so a fresh block for
every transfer is safe and costs little.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Int64s = npt.NDArray[np.int64]


def to_device(array: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """A tensor on a device with the numbers of an array; on a CPU it shares their memory."""
    host = torch.from_numpy(array)
    if device.type == "cpu":
        return host
    return host.pin_memory().to(device, non_blocking=True)


class Staging:
    """A static buffer of integers on a device, filled from the host in one transfer.

    What was filled is there for everything that the device is given to do afterwards.
    """

    def __init__(self, capacity: int, device: torch.device) -> None:
        """Allocates.

        Args:
            capacity: Greatest number of integers.
            device: Where they go.
        """
        self.buffer = torch.zeros(capacity, dtype=torch.int64, device=device)
        """On the device; always the same memory."""

        self._on_host = device.type == "cpu"

    def fill(self, parts: Sequence[Int64s]) -> None:
        """Puts arrays one after another at the start of the buffer."""
        count = sum(part.size for part in parts)
        if self._on_host:
            np.concatenate(parts, out=self.buffer.numpy()[:count])
            return
        host = torch.empty(count, dtype=torch.int64, pin_memory=True)
        np.concatenate(parts, out=host.numpy())
        self.buffer[:count].copy_(host, non_blocking=True)


def to_host(tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Sends a tensor's numbers to the host; what is returned waits for them, and so for all that they depend on."""
    if tensor.device.type == "cpu":
        return lambda: tensor
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    host.copy_(tensor, non_blocking=True)
    arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]  # untyped in torch
    arrived.record(torch.cuda.current_stream(tensor.device))

    def wait() -> torch.Tensor:
        arrived.synchronize()
        return host

    return wait


def wait_for(device: torch.device) -> None:
    """Waits until a device has done everything that the calling thread gave it to do."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
