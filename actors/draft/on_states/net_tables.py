"""The tables of tokens that a draft net works with, its own or the target's; and heads that stand for some of the target's tokens only."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from outrider.actors.draft.checkpoints.drafted_ids import ids_of_rows

BORROWED_HEAD = "_head_VD"
"""The buffer of every net that holds a borrowed head."""


@dataclass(frozen=True, eq=False)
class NetTables:
    """Float32, frozen."""

    embedding_VD: Tensor
    """Rows of tokens."""

    head_KD: Tensor
    """Rows of the output layer: V, or as many as `draft_ids`."""

    draft_ids: Tensor | None = None
    """The target's token of each row of the head, int64; None: all tokens."""


def check_table(name: str, table: Tensor | None, shape: tuple[int, int]) -> None:
    """Refuses a table of the target that is not there, or of another shape. Raises ValueError."""
    found = None if table is None else tuple(table.shape)
    if found != shape:
        raise ValueError(f"the target's {name} is {found}; the shape asks for {shape}")


def spread(values: Tensor, draft_ids: Tensor, vocab_size: int) -> Tensor:
    """Logits of some tokens [.., K] as logits of all [.., V]: minus infinity for the others, which are never proposed."""
    spreaded = values.new_full((*values.shape[:-1], vocab_size), -torch.inf)
    spreaded[..., draft_ids] = values
    return spreaded


def draft_ids_of(
    table: Tensor, mask: Tensor | None, vocab_size: int, *, is_absolute: bool = False
) -> Tensor:
    """`ids_of_rows` of stored tensors; arguments and errors as there."""
    numbers = table.float() if table.is_floating_point() else table
    members = None if mask is None else mask.to(torch.bool).numpy()
    ids = ids_of_rows(numbers.numpy(), members, vocab_size, is_absolute=is_absolute)
    return torch.from_numpy(ids)
