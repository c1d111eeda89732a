"""Options of a request as the actors use them: validated, with every default filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from outrider.actors.speculation.policies import DraftPolicies
from outrider.actors.speculation.trees.level_shapes import LevelShape

COUPLED = "coupled"
"""The verifier in force where nobody names one."""

LEAST_BUSY = "least_busy"
"""The selector in force where nobody names one."""

MOST_INVERSE = 1e20
"""Greatest factor of a logit: float32 holds the product, and the noise beside it is less than its last digit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """What decides the next token. Defaults change nothing about the model's distribution."""

    seed: int
    """Fixes the noise. 64 bits, unsigned."""

    max_tokens: int
    """Greatest number of output tokens."""

    temperature: float = 1.0
    """Divides the logits; 0 selects the most probable token."""

    top_p: float = 1.0
    """Keeps the smallest set of tokens whose probability reaches this mass; 1 is off."""

    top_k: int = 0
    """Keeps this many most probable tokens; 0 is off."""

    min_p: float = 0.0
    """Keeps tokens at least this fraction as probable as the most probable one; 0 is off."""

    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of tokens in prompt or output; 1 is off."""

    presence_penalty: float = 0.0
    """Subtracted from the logit of each token that the output contains; 0 is off."""

    frequency_penalty: float = 0.0
    """Subtracted once for each time the output contains the token; 0 is off."""

    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """Added to the logits of these token ids; -100 or less excludes a token."""

    min_tokens: int = 0
    """No stop token is drawn before this many output tokens."""

    stop_token_ids: tuple[int, ...] = ()
    """Ends the output, besides the model's end-of-text tokens."""

    ignore_eos: bool = False
    """The model's end-of-text tokens are ordinary tokens."""

    logprobs: int | None = None
    """Report log-probabilities, with this many alternatives; None reports nothing."""

    @property
    def inverse_temperature(self) -> float:
        """What logits are multiplied by where candidates are ranked: finite at every temperature, and 1 at 0."""
        return min(1.0 / self.temperature, MOST_INVERSE) if self.temperature > 0.0 else 1.0

    def uses_counts(self) -> bool:
        """True if the next token depends on which tokens came before, beyond the model itself."""
        return (
            self.repetition_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """What may be tried to be faster."""

    enabled: bool = True
    """False decodes plainly."""

    verifier: str = COUPLED
    """How candidates are verified."""

    verifier_options: Mapping[str, float] = field(default_factory=dict)
    """Numbers that the verifier takes, all of them; see `VerifierSpec.options`."""

    max_nodes: int = 32
    """Greatest number of candidate nodes in one target pass of a session. What rows cost decides how many there are; this only bounds it."""

    max_depth: int = 16
    """Greatest depth of the candidate tree."""

    tree_shape: LevelShape | None = None
    """Shape of a frozen tree; None: by verifier, within the limits above."""

    policies: DraftPolicies = field(default_factory=DraftPolicies)
    """How candidates are drafted."""

    selector: str = LEAST_BUSY
    """How drafters are chosen where fewer may work than there are."""

    selector_options: Mapping[str, float] = field(default_factory=dict)
    """Numbers that the selector takes; see `SelectorSpec.options`."""

    drafters_at_work: int | None = None
    """Drafters that work for a text at a time, at most; None: as many as the selector keeps at work."""
