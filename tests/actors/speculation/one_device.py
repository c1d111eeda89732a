"""Whether arithmetic mixes devices, tried without a second one: the device `meta` computes nothing but knows what is where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# What torch needs for this device takes seconds to import: done where tests are collected, once for all mutants.
torch.arange(1, device="meta")


class OneDevice(TorchDispatchMode):  # type: ignore[no-untyped-call]  # of torch
    """Refuses an operation on tensors of two devices, of no dimension or more; copies are free."""

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Look at the operands, then go on."""
        operands = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if func is not torch.ops.aten._to_copy.default:
            assert len({operand.device for operand in operands}) < 2, func
        return func(*args, **(kwargs or {}))
