"""A stand-in for a CUDA graph on a CPU: records the operations of a run and replays them on the same memory.

As with a graph, Python runs once only; what a replay reads, beyond what it computes itself, is the memory that the recording
read. Operations that a capture refuses are refused: those that make the host wait for a value of the device, those whose
result's shape depends on values, and those that bring numbers from the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

REFUSED = {
    "aten::_local_scalar_dense",
    "aten::is_nonzero",
    "aten::nonzero",
    "aten::masked_select",
    "aten::unique_dim",
    "aten::_unique2",
    "aten::repeat_interleave.Tensor",
    "aten::bincount",
    "aten::lift_fresh",
    "aten::equal",
}
"""Operations that end a capture. `lift_fresh` is what `torch.tensor` does with numbers of the host."""


class Tape(TorchDispatchMode):  # type: ignore[no-untyped-call]  # untyped in torch
    """Operations with their arguments and results."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.operations: list[tuple[Callable[..., Any], Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.name() in REFUSED:
            raise RuntimeError(f"operation not permitted when recording: {func.name()}")
        result = func(*args, **kwargs)
        self.operations.append((func, args, kwargs, result))
        return result

    def replay(self, result: torch.Tensor) -> torch.Tensor:
        """Does the operations again; gives what now stands for a result of the recording."""
        made: dict[int, torch.Tensor] = {}

        def current(value: Any) -> Any:
            return made.get(id(value), value) if isinstance(value, torch.Tensor) else value

        for func, args, kwargs, old in self.operations:
            new = func(*tree_map(current, args), **tree_map(current, kwargs))
            for before, after in zip(_tensors(old), _tensors(new), strict=True):
                made[id(before)] = after
        return made[id(result)]


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for each in value for tensor in _tensors(each)]
    return []


class TapeRecorder:
    """A recorder for engines in tests."""

    def record(self, run: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
        """See `graphs.Recorder`."""
        run()
        tape = Tape()
        with tape:
            result = run()
        static = result.clone()

        def replay() -> torch.Tensor:
            # One memory for all results of this recording, as a graph has.
            return static.copy_(tape.replay(result))

        return replay
