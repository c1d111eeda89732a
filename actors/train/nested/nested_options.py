"""What the trainer of nested drafts can be told. Plain data: read by the command line, without torch."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.actors.train.trainer_options import TargetRowsOptions


@dataclass(frozen=True, kw_only=True)
class NestedTrainingOptions(TargetRowsOptions):
    """Of `outrider train sorted`."""

    exits: tuple[int, ...] = (1, 2, 3)
    """Layers after each of which the head is put, ascending; the last is the depth of the model. Given once for each."""

    separate: bool = False
    """Train a model of each size by itself, too, for as many steps, and compare."""

    width: int = 64
    """Numbers of a hidden state."""

    num_heads: int = 4
    """Heads of the attention; they divide the width."""

    num_key_heads: int = 2
    """Heads of keys and values; they divide the heads."""

    inner: int = 160
    """Width of the gated products."""

    steps: int = 2400
    """Steps of the training."""

    text_rows: int = 2560
    own_rows: int = 768

    def __post_init__(self) -> None:
        super().__post_init__()
        exits = self.exits
        if not exits or exits[0] < 1 or list(exits) != sorted(set(exits)):
            raise ValueError(
                f"exits is {', '.join(map(str, exits)) or 'empty'}; give ascending numbers of layers, from 1 on"
            )
        self._check_positive("steps", "inner", "width")
        if self.num_heads < 1 or self.width % (2 * self.num_heads):
            raise ValueError(
                f"num_heads is {self.num_heads}; it must divide width {self.width} into even parts"
            )
        if self.num_key_heads < 1 or self.num_heads % self.num_key_heads:
            raise ValueError(
                f"num_key_heads is {self.num_key_heads}; it must divide num_heads {self.num_heads}"
            )
        if not 2 <= self.prompt_length < self.row_length:
            raise ValueError(
                f"prompt_length is {self.prompt_length}; it must be 2 to row_length {self.row_length} less one"
            )
