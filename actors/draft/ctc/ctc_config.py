"""The shape of a CTC draft model: that of a block drafter without heads, whose slots are frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from outrider.actors.draft.block.block_config import BlockConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class CtcConfig(BlockConfig):
    """Wen et al. 2024 (arXiv 2412.00061); `ctc_net.CtcNet` has the equations."""

    kind: ClassVar[str] = "ctc"

    num_layers: int = 1
    rank: int = 0
    has_confidence: bool = False

    labels: int = 4
    """L: tokens that the frames of a block were trained to hold. Nothing is proposed behind them."""

    def __post_init__(self) -> None:
        # Two arguments, as `slots` makes another class of this one.
        super(CtcConfig, self).__post_init__()
        for name in ("rank", "has_confidence", "most_revealed", "first_slot"):
            if value := getattr(self, name):
                raise ValueError(f"{name} is {value!r}; frames have no such part, so 0")
        if type(self.labels) is not int or not 1 <= self.labels <= self.block:
            raise ValueError(
                f"labels is {self.labels!r}; it must be 1 to {self.block}, a frame for each"
            )

    @property
    def reach(self) -> int:
        """See `BlockConfig`."""
        return self.labels
