"""What the trainer of block drafters can be told. Plain data: read by the command line, without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outrider.actors.train.trainer_options import TargetTrainerOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTrainingOptions(TargetTrainerOptions):
    """Of `outrider train dspark`."""

    block: int = 8
    """Tokens of a block."""

    taps: int = 3
    """Layers of the target that are read, evenly from the second block's output to the last but two's."""

    num_layers: int = 2
    """Blocks of the draft model."""

    num_heads: int = 4
    """Heads of its attention; they divide the target's width into even parts."""

    inner: int = 320
    """Width of its gated products."""

    window: int = 128
    """Positions that a block sees."""

    rank: int = 32
    """Rank of the Markov head; 0 trains DFlash, without confidence head."""

    most_revealed: int = 6
    """Tokens that half of the training's blocks are told, at most; 0: none, as in the papers."""

    objective: Literal["auto", "overlap", "tokens"] = "auto"
    """Learn the target's distribution and its tokens (overlap, DSpark's), or its tokens alone (DFlash's). auto: by the rank."""

    steps: int = 1300
    """Steps of the training."""

    matrix_rate: float = 0.02
    """Learning rate of the maps (Muon)."""

    other_rate: float = 3e-3
    """Learning rate of everything else (AdamW)."""

    text_rows: int = 1280
    """Rows of text whose hidden states are kept."""

    own_rows: int = 1024
    """Rows of the target's writing whose hidden states are kept."""

    row_length: int = 144
    """Tokens of a row."""

    prompt_length: int = 32
    """Tokens of a row of its writing that the target is given."""

    rows_per_step: int = 8
    """Rows of a step."""

    blocks_per_row: int = 16
    """Blocks of a row."""

    seed: int = 0
    """Of the weights and the order."""

    def __post_init__(self) -> None:
        # Two arguments, as `slots` makes another class of this one.
        super(BlockTrainingOptions, self).__post_init__()
        for name in ("taps", "steps", "text_rows", "own_rows", "rows_per_step", "blocks_per_row"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not 0 <= self.most_revealed < max(self.block - 1, 1):
            raise ValueError(
                f"most_revealed is {self.most_revealed}; it must be 0 to {max(self.block - 2, 0)}, so that a slot is left to predict"
            )
        if not 2 <= self.prompt_length < self.row_length - self.block:
            raise ValueError(
                f"row_length is {self.row_length}; it must be above prompt_length {self.prompt_length} by more than {self.block}"
            )
