"""What the trainer of CTC drafters can be told. Plain data: read by the command line, without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outrider.actors.train.block.block_options import BlockTrainingOptions


@dataclass(frozen=True, kw_only=True)
class CtcTrainingOptions(BlockTrainingOptions):
    """Of `outrider train ctc`."""

    loss: Literal["ctc", "prefix", "cross_entropy"] = "ctc"
    """ctc: of the whole string, the paper's. prefix: of each token given those before it, summed over alignments, later ones counting less.
    cross_entropy: the same module without blank, slot by slot; makes a DFlash drafter (dspark)."""

    labels: int = 8
    """Tokens that the frames of a block hold."""

    num_layers: int = 1
    """Blocks of the draft model."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.labels <= self.block:
            raise ValueError(
                f"labels is {self.labels}; it must be 1 to {self.block}, a frame for each"
            )
