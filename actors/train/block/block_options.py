"""What the trainer of block drafters can be told. Plain data: read by the command line, without torch."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.actors.train.block.row_options import RowTrainingOptions
from outrider.actors.train.features.target_shape_checks import check_heads, taps_of


@dataclass(frozen=True, kw_only=True)
class BlockTrainingOptions(RowTrainingOptions):
    """Of all of them; each field is a flag of the command line."""

    taps: int = 3
    """Layers of the target that are read, evenly from the second block's output to the last but two's."""

    num_layers: int = 2
    """Blocks of the draft model."""

    num_heads: int = 4
    """Heads of its attention; they divide the target's width into even parts."""

    inner: int = 320
    """Width of its gated products."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_positive("taps", "num_heads")

    def check_target(self, *, width: int, num_blocks: int) -> None:
        """See `TargetTrainerOptions`."""
        check_heads(self.num_heads, width)
        taps_of(self.taps, num_blocks)
