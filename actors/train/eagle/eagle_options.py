"""What the trainer of EAGLE-3 nets can be told. Plain data: read by the command line, without torch."""

from __future__ import annotations

from dataclasses import dataclass, field

from outrider.actors.train.features.target_shape_checks import check_heads, taps_of
from outrider.actors.train.trainer_options import TargetRowsOptions


@dataclass(frozen=True, kw_only=True)
class EagleTrainingOptions(TargetRowsOptions):
    """Of `outrider train eagle3`."""

    num_steps: int = 5
    """Tokens in a row that are drafted in training; all but the first from the net's own states."""

    decay: float = 0.8
    """Weight of a token as a part of that of the token before."""

    taps: int = 3
    """Layers of the target that are read, evenly from the second block's output to the last but two's."""

    norm_taps: bool = field(default=True, metadata={"flags": ("--norm-taps/--raw-taps",)})
    """Norm each layer's states before they are fused; raw as in the paper."""

    num_heads: int = 4
    """Heads of the attention; they divide the target's width into even parts."""

    num_key_heads: int = 2
    """Heads of keys and values; they divide the heads."""

    inner: int = 640
    """Width of the gated product."""

    window: int = 128
    """Newest positions with states of the target that are seen."""

    num_drafted: int = 0
    """Tokens that may be proposed, the most frequent of the training's; 0: all."""

    own_head: bool = False
    """Train a head of the net's own, which is large, instead of borrowing the target's."""

    reuse_rank: int = 32
    """Rank of the map that puts another token into a kept state; 0: none."""

    steps: int = 3500
    """Steps of the training."""

    reuse_steps: int = 300
    """Steps of the training of that map; 0 leaves it as it begins."""

    text_rows: int = 2304
    own_rows: int = 1536

    places_per_row: int = 24
    """Places of a row whose tokens count in a step; all places are computed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_positive(
            "num_steps", "taps", "num_heads", "num_key_heads", "steps", "places_per_row"
        )
        if self.reuse_steps < 0:
            raise ValueError(f"reuse_steps is {self.reuse_steps}; it must not be negative")
        if not 0.0 < self.decay <= 1.0:
            raise ValueError(f"decay is {self.decay}; it must be above 0 and at most 1")
        self._check_rows(least=2, beyond=self.num_steps + 1)

    def check_target(self, *, width: int, num_blocks: int) -> None:
        """See `TargetTrainerOptions`."""
        check_heads(self.num_heads, width)
        if self.num_heads % self.num_key_heads:
            raise ValueError(
                f"num_key_heads is {self.num_key_heads}; it must divide num_heads {self.num_heads}"
            )
        taps_of(self.taps, num_blocks)
