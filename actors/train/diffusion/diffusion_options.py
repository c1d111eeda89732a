"""What the trainer of diffusion drafters can be told. Plain data: read by the command line, without torch."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.actors.train.block.row_options import RowTrainingOptions


@dataclass(frozen=True, kw_only=True)
class DiffusionTrainingOptions(RowTrainingOptions):
    """Of `outrider train diffusion`."""

    width: int = 128
    """Width of the draft model; the target's tables are mapped to it and back."""

    num_layers: int = 3
    """Layers of the draft model."""

    num_heads: int = 4
    """Heads of its attention; they divide its width into even parts."""

    num_key_heads: int = 2
    """Heads of its keys and values; they divide the other heads."""

    inner: int = 160
    """Width of its gated products."""

    text_rows: int = 2048

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_positive("width", "num_layers", "num_heads", "num_key_heads")
        if self.width % (2 * self.num_heads):
            raise ValueError(
                f"width is {self.width}, which {self.num_heads} heads do not divide into even parts"
            )
