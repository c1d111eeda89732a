"""What the trainer of speculators can be told. Plain data: read by the command line, without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outrider.actors.train.trainer_options import TargetRowsOptions


@dataclass(frozen=True, kw_only=True)
class SpeculatorOptions(TargetRowsOptions):
    """Of `outrider train mlp_speculator`."""

    heads: int = 4
    """Tokens ahead."""

    inner: int = 384
    """Width of the net."""

    tied: bool = True
    """Share weights between the heads."""

    scaled: bool = True
    """Bring the target's hidden state to one size first."""

    inputs: Literal["mlp", "medusa", "eagle"] = "mlp"
    """What a head reads: state and token (mlp), no token (medusa), or the feature as the head before foresees it, and the token (eagle)."""

    tables: Literal["target", "own"] = "target"
    """Embedding and head of the target, which are not stored, or own ones, which are large."""

    labels: Literal["tokens", "law"] = "law"
    """Learn the tokens of the texts, as the paper does, or the target's distribution at them."""

    text_steps: int = 1200
    """Steps of the first stage, on text; 0 leaves it out."""

    own_steps: int = 900
    """Steps of the second stage, on the target's own writing; 0 leaves it out."""

    own_rate: float = 0.3
    """Learning rate of the second stage, as a part of the first one's."""

    text_rows: int = 1600
    own_rows: int = 1600
    row_length: int = 128

    rows_per_step: int = 16
    """Rows of a step."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_positive("heads", "inner")
        self._check_rates("own_rate")
        if not self.text_steps >= 0 <= self.own_steps:
            raise ValueError("text_steps and own_steps must not be negative")
        if not self.text_steps + self.own_steps:
            raise ValueError("text_steps and own_steps are 0, so that nothing is learnt")
        if self.inputs == "eagle" and self.tables == "own":
            raise ValueError("inputs is 'eagle', which needs tables: 'target'")
        self._check_rows(least=1, beyond=self.heads + 1)
