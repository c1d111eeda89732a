"""The shape of a masked-diffusion draft model: everything but its weights. Plain data, a JSON file beside the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from outrider.actors.draft.on_states.net_shape import LayerShape, check_sizes

SIZES = (
    "vocab_size",
    "table_width",
    "width",
    "num_layers",
    "num_heads",
    "num_key_heads",
    "head_dim",
    "inner",
    "block",
    "window",
)
"""Fields that are numbers of at least one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffusionConfig(LayerShape):
    """A block-causal denoiser (Christopher et al. 2024, arXiv 2408.05636); `diffusion_net.DiffusionNet` has the equations."""

    kind: ClassVar[str] = "diffusion"

    table_width: int
    """Numbers of a row of the target's embedding and head, which the draft model borrows."""

    num_layers: int = 3
    head_dim: int = 32

    inner: int = 160

    block: int = 8
    """L: tokens that are proposed. The first follows from the newest token's own row, each other from a place that holds the mask or
    a token that was filled in."""

    window: int = 128
    """Positions before its own that a row sees, at most, its own included."""

    first: tuple[float, ...] = ()
    """Measured by the trainer: how often the target's token is the likeliest candidate, by distance from the last token that is known, each given
    that those before it were right. What a drafter believes before it has seen a verdict. Empty: not measured."""

    among: tuple[float, ...] = ()
    """Likewise, how often it is one of the candidates."""

    def __post_init__(self) -> None:
        check_sizes(self, SIZES)
        if self.block < 2:
            raise ValueError(
                f"block is {self.block}; it must be at least 2, so that something is denoised"
            )
        self.check_layer()
        for name in ("first", "among"):
            rates = getattr(self, name)
            if len(rates) not in (0, self.block):
                raise ValueError(
                    f"{name} has {len(rates)} numbers; it must have {self.block}, one a token, or none"
                )
            if not all(0.0 <= rate <= 1.0 for rate in rates):
                raise ValueError(f"{name} is {rates}; each must be 0 to 1")

    @property
    def request(self) -> None:
        """What is asked of the target: nothing but tokens."""
        return None
