"""Which of the target's token ids the rows of a reduced head stand for (EAGLE-3, arXiv 2503.01840). Without torch: the configuration's check asks, too."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]


def ids_of_rows(
    table: NDArray[np.generic],
    mask: NDArray[np.generic] | None,
    vocab_size: int,
    *,
    is_absolute: bool = False,
) -> Int64s:
    """The target's ids, one a row.

    Args:
        table: For each row the difference of the target's id and the row's number; or the id itself, as files with a mask may have it, too.
        mask: Which of the target's ids there are [V]; None: not given.
        vocab_size: V.
        is_absolute: The table has the ids.

    Raises:
        ValueError: The table has no whole numbers, or no reading gives distinct ids of the target, or not those of the mask.
    """
    if table.dtype.kind not in "iu":
        raise ValueError(f"the table of ids is {table.dtype}; whole numbers are needed")
    numbers = table.astype(np.int64)
    offsets = numbers + np.arange(len(numbers))
    wanted = None if mask is None else np.flatnonzero(mask.astype(bool))
    readings = [numbers] if is_absolute else [offsets] if mask is None else [offsets, numbers]
    for ids in readings:
        ascending = np.unique(ids)
        is_legal = 0 < len(ids) == len(ascending)
        is_legal = is_legal and ascending[0] >= 0 and ascending[-1] < vocab_size
        if is_legal and (wanted is None or np.array_equal(ascending, wanted)):
            return ids
    raise ValueError(
        f"the {len(numbers)} rows of the head stand for no distinct ids below {vocab_size}"
        + ("" if wanted is None else f", or not for the {len(wanted)} that the mask names")
    )
