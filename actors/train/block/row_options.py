"""What trainers of blocks can be told of their rows and steps. Plain data: read by the command line, without torch."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.actors.train.trainer_options import TargetTrainerOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTrainingOptions(TargetTrainerOptions):
    """Of trainers that learn blocks at random places of rows (`row_training.RowTraining`)."""

    block: int = 8
    """Tokens of a block."""

    window: int = 128
    """Positions that a block sees."""

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

    blocks_per_row: int = 16
    """Blocks of a row."""

    seed: int = 0
    """Of the weights and the order."""

    def __post_init__(self) -> None:
        # Two arguments, as `slots` makes another class of this one.
        super(RowTrainingOptions, self).__post_init__()
        for name in ("steps", "text_rows", "own_rows", "blocks_per_row"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not 2 <= self.prompt_length < self.row_length - self.block:
            raise ValueError(
                f"row_length is {self.row_length}; it must be above prompt_length {self.prompt_length} by more than {self.block}"
            )
