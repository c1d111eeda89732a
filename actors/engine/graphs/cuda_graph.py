"""Recording the work of a pass so that it can be repeated without the host telling each kernel again.

A small pass of a large model is thousands of kernels of a few microseconds; told one by one from Python they take longer to
tell than to run. A CUDA graph tells them all at once. What is recorded must read and write the same memory each time, and
must not make the host wait; the caller sees to that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

WARM_UPS = 2
"""Runs before a capture, so that libraries have made their handles and workspaces and chosen their kernels."""

Run = Callable[[], torch.Tensor]


class GraphRecorder(Protocol):
    """Turns work into something that repeats it."""

    def record(self, run: Run) -> Run:
        """Does the work at least once; what is returned does it again.

        Raises:
            RuntimeError: It cannot be recorded. It was done, or not.
        """
        ...


class EagerRecorder:
    """Records nothing: does the work each time. For devices without graphs, so that their passes take the same way."""

    def record(self, run: Run) -> Run:
        """See `GraphRecorder`."""
        return run


class CudaGraphRecorder:
    """Captures CUDA graphs.

    All graphs share one pool of memory, for none of them needs what another left there; so a result is overwritten by the next
    replay of any. Graphs are kept as long as the recorder: destroying one can take away workspaces of those that were captured
    on the same stream.
    """

    def __init__(self, device: torch.device) -> None:
        """Makes the stream and the pool.

        Args:
            device: A CUDA device.
        """
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # untyped in torch
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: list[torch.cuda.CUDAGraph] = []

    def record(self, run: Run) -> Run:
        """See `GraphRecorder`. Takes some ten times as long as the work."""
        with torch.cuda.device(self._device):
            current = torch.cuda.current_stream(self._device)
            self._stream.wait_stream(current)
            with torch.cuda.stream(self._stream):
                for _ in range(WARM_UPS):
                    run()
            current.wait_stream(self._stream)
            graph = torch.cuda.CUDAGraph()
            self._graphs.append(graph)
            try:
                # Other threads of the process may use the device meanwhile: only this thread's work is captured.
                with torch.cuda.graph(
                    graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
                ):
                    result = run()
            finally:
                # A capture that fails at its end leaves the thread on the other stream.
                torch.cuda.set_stream(current)

        def replay() -> torch.Tensor:
            graph.replay()
            return result

        return replay


def recorder_for(device: torch.device) -> GraphRecorder:
    """The recorder of a device."""
    return CudaGraphRecorder(device) if device.type == "cuda" else EagerRecorder()
