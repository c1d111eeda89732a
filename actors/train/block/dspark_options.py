"""What the trainer of DSpark can be told. Plain data: read by the command line, without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outrider.actors.train.block.block_options import BlockTrainingOptions


@dataclass(frozen=True, kw_only=True)
class DsparkTrainingOptions(BlockTrainingOptions):
    """Of `outrider train dspark`."""

    rank: int = 32
    """Rank of the Markov head; 0 trains DFlash, without confidence head."""

    most_revealed: int = 6
    """Tokens that half of the training's blocks are told, at most; 0: none, as in the papers."""

    objective: Literal["auto", "overlap", "tokens"] = "auto"
    """Learn the target's distribution and its tokens (overlap, DSpark's), or its tokens alone (DFlash's). auto: by the rank."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.most_revealed < max(self.block - 1, 1):
            raise ValueError(
                f"most_revealed is {self.most_revealed}; it must be 0 to {max(self.block - 2, 0)}, so that a slot is left to predict"
            )
