"""The shape of a speculator: everything but its weights. Plain data, a JSON file beside the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from outrider.actors.draft.on_states.net_shape import NetShape, check_sizes
from outrider.actors.exchange.feedback_request import FeedbackRequest

BEYOND = 2
"""A net whose later stages share their weights may be run so many times as deep as it was trained: as late features ask for."""

CHOICES = {"tables": ("target", "own"), "feeds": ("state", "feature", "hidden")}
"""Values of fields that are one of several words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculatorConfig(NetShape):
    """Wertheimer et al. 2024, arXiv 2404.19124; `speculator_net.SpeculatorNet` has the equations."""

    kind: ClassVar[str] = "mlp_speculator"

    width: int
    """D: numbers of a hidden state of the target."""

    inner: int
    """M: numbers of a state of the net."""

    num_stages: int = 4
    """Tokens ahead that the net was trained for."""

    tied: bool = True
    """Whether all stages share embedding, norm and head, and all but the first the projection."""

    scaled: bool = True
    """Whether the target's hidden state is brought to a root mean square of 1 / sqrt 2 first."""

    reads_tokens: bool = True
    """False: no stage sees the tokens that were drafted before it, as in Medusa (Cai et al. 2024, arXiv 2401.10774)."""

    feeds: str = "state"
    """What a stage takes from the one before: its `state`, or the target's `feature` as that one would have it, through the first
    stage's projection again (the input of EAGLE, Li et al. 2024, arXiv 2401.15077). The second needs `tables: target`. Or every stage
    takes the target's own `hidden` state, through residual blocks of its own and nothing else (the heads of Medusa)."""

    num_residuals: int = 0
    """Residual blocks of a stage, for `feeds: hidden`."""

    residual_biases: bool = True
    """Whether these have biases."""

    logit_scale: float = 1.0
    """What logits are multiplied by."""

    tables: str = "target"
    """Whose tables of tokens: the `target`'s embedding and head, frozen and not stored, through a linear map each; or its `own`."""

    def __post_init__(self) -> None:
        check_sizes(self, ("vocab_size", "width", "inner", "num_stages"))
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}; it must be {' or '.join(allowed)}"
                )
        if self.feeds == "feature" and self.tables == "own":
            raise ValueError("feeds is 'feature', which needs tables: 'target'")
        if self.feeds == "hidden":
            if self.reads_tokens or self.scaled or self.inner != self.width:
                raise ValueError(
                    "feeds is 'hidden', so reads_tokens and scaled must be false, and inner the width"
                )
            check_sizes(self, ("num_residuals",), least=0)
        elif self.num_residuals:
            raise ValueError("num_residuals is set, which needs feeds: 'hidden'")

    @property
    def request(self) -> FeedbackRequest:
        """What is asked of the target."""
        return FeedbackRequest(layers=("norm",), width=self.width)

    @property
    def num_tables(self) -> int:
        """Embeddings, norms and heads that there are."""
        return 1 if self.tied else self.num_stages

    @property
    def num_later(self) -> int:
        """Projections from a state of the net."""
        if self.feeds != "state":
            return 0
        return 1 if self.tied else self.num_stages - 1

    @property
    def deepest(self) -> int:
        """Stages that may be run one after another."""
        is_same = self.tied and self.feeds != "hidden"
        return self.num_stages * (BEYOND if is_same else 1)
