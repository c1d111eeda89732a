"""The layout of one pass: whose rows lie where in the packed batch, and what each row may see.

A pass runs the rows of all sessions one after another, as one sequence without padding. A row sees all cached rows of its
slot, its ancestors among the scratch rows, and itself; under a sliding window of w positions, only those of them whose
position is greater than its own minus w, as in transformers. Positions are depths, so a window cuts a tree as it would cut
the text of each branch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from outrider.actors.engine.kv.slot import SlotGrowth
from outrider.actors.engine.protocol import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class PassLayout:
    """One pass."""

    segments: list[SlotGrowth]
    """Rows of each session, in the order of the packed batch."""

    starts: list[int]
    """Where each segment starts in the packed batch, and the number of packed rows at the end."""

    tokens: list[int]
    """Of the packed rows."""

    positions: list[int]
    """Of the packed rows."""

    wanted: list[int]
    """Packed rows that logits are wanted for, ascending."""

    offsets: tuple[int, ...]
    """Where each segment's wanted rows start in `wanted`; one more than there are segments."""

    @property
    def num_rows(self) -> int:
        """Packed rows."""
        return self.starts[-1]


def plan_pass(batch: Sequence[Rows], segments: list[SlotGrowth]) -> PassLayout:
    """Packs a checked batch."""
    starts, offsets = [0], [0]
    tokens: list[int] = []
    positions: list[int] = []
    wanted: list[int] = []
    for rows, segment in zip(batch, segments, strict=True):
        start, end = starts[-1], starts[-1] + len(segment.parents)
        tokens.extend(segment.tokens)
        positions.extend([segment.cached + depth for depth in segment.depths])
        if rows.logits == "all":
            wanted.extend(range(start, end))
        elif rows.logits == "last":
            wanted.append(end - 1)
        starts.append(end)
        offsets.append(len(wanted))
    return PassLayout(
        segments=segments,
        starts=starts,
        tokens=tokens,
        positions=positions,
        wanted=wanted,
        offsets=tuple(offsets),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sight:
    """What the rows of one segment see."""

    first: int
    """First row of the slot that any of them sees; they are shown the rows from there to the slot's last."""

    mask_NS: npt.NDArray[np.float32] | None
    """0 where a row sees a shown row, else minus infinity. None: see `causal`."""

    causal: bool = False
    """Without a mask: whether row i sees rows 0 to i; otherwise each sees all."""


def sight(segment: SlotGrowth, *, window: int | None, implicit: bool = True) -> Sight:
    """What the rows of a segment see.

    Args:
        segment: The rows.
        window: Width of the sliding window in positions; None for no window.
        implicit: Whether a causal triangle may be left to the attention kernel.
    """
    cached, num_rows, total = segment.cached, len(segment.parents), segment.total
    greatest = cached + max(segment.depths)
    # A window that no row outgrows is no window.
    if window is not None and greatest < window:
        window = None
    scratch = total - cached
    is_chain = segment.lineages[-1] == (1 << scratch) - 1
    if window is None and is_chain:
        if num_rows == 1:
            return Sight(first=0, mask_NS=None)
        if implicit and num_rows == total:
            return Sight(first=0, mask_NS=None, causal=True)
    if window is None and segment.mask is not None:
        return Sight(first=0, mask_NS=segment.mask)
    first = 0
    if window is not None:
        first = max(0, min(cached, cached + min(segment.depths) - window + 1))
    mask_NS = np.zeros((num_rows, total - first), dtype=np.float32)
    mask_NS[:, cached - first :][~_lineage_bits(segment.lineages, scratch)] = -np.inf
    if window is not None:
        _cut_window(mask_NS, segment, first=first, window=window)
    return Sight(first=first, mask_NS=mask_NS)


def _lineage_bits(lineages: list[int], width: int) -> npt.NDArray[np.bool_]:
    """Lineages as rows of bits. Shape (lineages, width)."""
    num_bytes = (width + 7) // 8
    packed = b"".join([lineage.to_bytes(num_bytes, "little") for lineage in lineages])
    octets = np.frombuffer(packed, dtype=np.uint8).reshape(len(lineages), num_bytes)
    return np.unpackbits(octets, axis=1, count=width, bitorder="little").view(np.bool_)


def _cut_window(
    mask_NS: npt.NDArray[np.float32], segment: SlotGrowth, *, first: int, window: int
) -> None:
    """Hides what lies a window or more before each row."""
    depths = np.array(segment.depths)
    bits = _lineage_bits(segment.lineages, segment.total - segment.cached)
    # The ancestor at depth d is the d-th set bit of the lineage, for parents come before children.
    ancestor_depths = np.cumsum(bits, axis=1) - 1
    oldest = segment.cached + depths[:, None] - window + 1
    cached_positions = np.arange(first, segment.cached)[None, :]
    mask_NS[:, : segment.cached - first][cached_positions < oldest] = -np.inf
    mask_NS[:, segment.cached - first :][segment.cached + ancestor_depths < oldest] = -np.inf
