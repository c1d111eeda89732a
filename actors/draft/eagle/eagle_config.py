"""The shape of an EAGLE-3 draft net: everything but its weights. Plain data, a JSON file beside the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from outrider.actors.draft.on_states.net_shape import LayerShape, check_sizes
from outrider.actors.exchange.feedback_request import FeedbackRequest, Layer

SIZES = (
    "vocab_size",
    "width",
    "target_width",
    "num_heads",
    "num_key_heads",
    "head_dim",
    "inner",
    "num_steps",
    "window",
)
"""Fields that are numbers of at least one."""

BEYOND = 4
"""The net may go on so many times as deep on its own states as it was trained to. While the target verifies one tree, the next one grows behind it, so
twice the depth of a tree is asked for; a net of five steps is nearly as good at the tenth token as at the first. What depth costs is learned while serving."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EagleConfig(LayerShape):
    """EAGLE-3 (Li et al. 2025, arXiv 2503.01840); `eagle_net.EagleNet` has the equations."""

    kind: ClassVar[str] = "eagle3"

    taps: tuple[Layer, ...]
    """Layers of the target whose states are fused, as `exchange.feedback_request.Layer` counts them."""

    target_width: int
    """Numbers of a hidden state of the target; D in most nets."""

    num_drafted: int = 0
    """Token ids that the net proposes, its head's rows; 0: all of the target's."""

    num_steps: int = 4
    """Tokens in a row that the net was trained for; all but the first are read with states of its own."""

    window: int = 256
    """Newest positions with states of the target that a row sees, at most: it bounds the memory of a session."""

    owns_embedding: bool = False
    """Whether the folder holds an embedding. If not, it is the target's."""

    owns_head: bool = False
    """Whether the folder holds a head. If not, it is the target's, its rows for the ids that are proposed."""

    has_head_norms: bool = False
    """Whether each head's queries and keys are normed, as in Qwen3."""

    fuses: bool = True
    """Whether `fc` fuses the tapped states. If not, those of a single tap are read as they are."""

    fc_bias: bool = False
    """Whether `fc` has a bias."""

    norm_before_fc: bool = False
    """Whether the states side by side are normed before they are fused."""

    norm_each_tap: bool = False
    """Whether each layer's states are normed before they are fused (`fc_norm` of some checkpoints)."""

    norm_before_residual: bool = False
    """Whether the sum around attention begins with the normed state."""

    norm_output: bool = False
    """Whether it is the normed output that is read next."""

    projects: bool = False
    """Whether the token and the state beside it are brought to one width before the layer, as in modules of multi-token prediction; then nothing
    is fused either."""

    reuse_rank: int = 0
    """Rank of the map that puts another token into a kept state (`hidden_reuse`); 0: there is none."""

    logit_scale: float = 1.0
    """What the head's logits are multiplied by."""

    def __post_init__(self) -> None:
        check_sizes(self, SIZES)
        for name, most in (("num_drafted", self.vocab_size), ("reuse_rank", self.width)):
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value <= most:
                raise ValueError(f"{name} is {value!r}; it must be 0 to {most}")
        self.check_layer()
        if not self.taps:
            raise ValueError("taps is empty; name layers of the target")
        if not (self.has_fc or self._reads_as_is):
            raise ValueError(
                "projects, and fuses: false, go with one tap of the net's own width, and with no norm of it"
            )
        if self.projects and self.norm_before_residual:
            raise ValueError("projects goes without norm_before_residual")
        if self.norm_before_fc and self.norm_each_tap:
            raise ValueError("norm_before_fc and norm_each_tap exclude each other")
        _ = self.request

    @property
    def num_layers(self) -> int:
        """Decoder layers. More than one would make what a row sees depend on more than its own states."""
        return 1

    @property
    def has_fc(self) -> bool:
        """Whether tapped states pass a linear map."""
        return self.fuses and not self.projects

    @property
    def _reads_as_is(self) -> bool:
        is_one = len(self.taps) == 1 and self.target_width == self.width
        return is_one and not (self.norm_before_fc or self.norm_each_tap)

    @property
    def request(self) -> FeedbackRequest:
        """What is asked of the target."""
        return FeedbackRequest(layers=self.taps, width=self.target_width)

    @property
    def deepest(self) -> int:
        """Tokens in a row behind the newest state of the target that are read, at most."""
        return BEYOND * self.num_steps
