"""What trainers of blocks can be told of their rows and steps. Plain data: read by the command line, without torch."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.actors.train.trainer_options import TargetRowsOptions


@dataclass(frozen=True, kw_only=True)
class RowTrainingOptions(TargetRowsOptions):
    """Of trainers that learn blocks at random places of rows (`row_training.RowTraining`)."""

    block: int = 8
    """Tokens of a block."""

    window: int = 128
    """Positions that a block sees."""

    steps: int = 1300
    """Steps of the training."""

    text_rows: int = 1280
    own_rows: int = 1024

    blocks_per_row: int = 16
    """Blocks of a row."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_positive("steps", "blocks_per_row")
        self._check_rows(least=2, beyond=self.block)
