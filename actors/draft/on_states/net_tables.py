"""The tables of tokens that a draft net works with, its own or the target's; and heads that stand for some of the target's tokens only."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

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


def spread(values: Tensor, draft_ids: Tensor, vocab_size: int) -> Tensor:
    """Logits of some tokens [.., K] as logits of all [.., V]: minus infinity for the others, which are never proposed."""
    spreaded = values.new_full((*values.shape[:-1], vocab_size), -torch.inf)
    spreaded[..., draft_ids] = values
    return spreaded


def draft_ids_of(
    table: Tensor, mask: Tensor | None, vocab_size: int, *, is_absolute: bool = False
) -> Tensor:
    """The target's ids that the rows of a reduced head stand for (EAGLE-3, arXiv 2503.01840).

    Args:
        table: For each row the difference of the target's id and the row's number; or the id itself, as files with a mask may have it, too.
        mask: Which of the target's ids there are [V]; None: not given.
        vocab_size: V.
        is_absolute: The table has the ids.

    Raises:
        ValueError: No reading gives distinct ids of the target, or not those of the mask.
    """
    numbers = table.to(torch.int64)
    offsets = numbers + torch.arange(len(numbers))
    wanted = None if mask is None else mask.to(torch.bool).nonzero()[:, 0]
    readings = [numbers] if is_absolute else [offsets] if mask is None else [offsets, numbers]
    for ids in readings:
        is_legal = len(ids) > 0 and int(ids.min()) >= 0 and int(ids.max()) < vocab_size
        is_legal = is_legal and len(set(ids.tolist())) == len(ids)
        if is_legal and (wanted is None or torch.equal(ids.sort().values, wanted)):
            return ids
    raise ValueError(
        f"the {len(numbers)} rows of the head stand for no distinct ids below {vocab_size}"
        + ("" if wanted is None else f", or not for the {len(wanted)} that the mask names")
    )
