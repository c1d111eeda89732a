"""What the trainer of nested drafts can be told. Plain data: read by the command line, without torch."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.actors.train.trainer_options import TargetTrainerOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class NestedTrainingOptions(TargetTrainerOptions):
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

    matrix_rate: float = 0.02
    """Learning rate of the maps (Muon)."""

    other_rate: float = 3e-3
    """Learning rate of everything else (AdamW)."""

    text_rows: int = 2560
    """Rows of text whose hidden states are kept."""

    own_rows: int = 768
    """Rows of the target's writing whose hidden states are kept."""

    row_length: int = 144
    """Tokens of a row."""

    prompt_length: int = 32
    """Tokens of a row of its writing that the target is given."""

    seed: int = 0
    """Of the weights and the order."""

    def __post_init__(self) -> None:
        # Two arguments, as `slots` makes another class of this one.
        super(NestedTrainingOptions, self).__post_init__()
        exits = self.exits
        if not exits or exits[0] < 1 or list(exits) != sorted(set(exits)):
            raise ValueError(
                f"exits is {', '.join(map(str, exits)) or 'empty'}; give ascending numbers of layers, from 1 on"
            )
        for name in ("steps", "text_rows", "own_rows", "inner", "width"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
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
