"""What a request may ask for. None, or empty, leaves a field out: the service's default holds.

Values are checked by the service, which knows the model; the client refuses only what the wire cannot carry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Verifier(StrEnum):
    """How candidates are verified; see `sampling.proto` for the sources."""

    COUPLED = "coupled"
    EXACT_MATCH = "exact_match"
    SPECULATIVE_SAMPLING = "speculative_sampling"
    MCSD_WITH_REPLACEMENT = "mcsd_with_replacement"
    MCSD_WITHOUT_REPLACEMENT = "mcsd_without_replacement"
    SPECINFER = "specinfer"
    KSEQ = "kseq"
    CANONICAL = "canonical"
    BLOCK = "block"
    TRAVERSAL = "traversal"
    TRAVERSAL_WITH_REPLACEMENT = "traversal_with_replacement"


class DraftLength(StrEnum):
    """When drafters stop drafting further; see `sampling.proto` for the sources."""

    FULL = "full"
    CONFIDENCE = "confidence"
    DECISION = "decision"


class Roots(StrEnum):
    """Where the first level of a growing tree comes from."""

    DRAFT = "draft"
    TARGET = "target"


class TreeMask(StrEnum):
    """How the attention mask of a growing tree is made."""

    SLICED = "sliced"
    BUILT = "built"


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOptions:
    """What decides the next token."""

    temperature: float | None = None
    """Divides the logits; 0 selects the most probable token. In [0, 100]."""

    top_p: float | None = None
    """Keeps the smallest set of tokens whose probability reaches this mass. In (0, 1]."""

    top_k: int | None = None
    """Keeps this many most probable tokens; 0 keeps all."""

    min_p: float | None = None
    """Keeps tokens at least this fraction as probable as the most probable one. In [0, 1]."""

    repetition_penalty: float | None = None
    """Divides positive and multiplies negative logits of tokens in prompt or output. In (0, 10]."""

    presence_penalty: float | None = None
    """Subtracted from the logit of each token that the output contains. In [-2, 2]."""

    frequency_penalty: float | None = None
    """Subtracted once for each time the output contains the token. In [-2, 2]."""

    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """Added to the logits of these token ids; -100 excludes a token."""

    seed: int | None = None
    """Fixes the noise: the same request with the same seed gives the same text. 64 bits, unsigned."""

    max_tokens: int | None = None
    """Greatest number of output tokens."""

    min_tokens: int | None = None
    """Nothing ends the output before this many tokens."""

    stop: tuple[str, ...] = ()
    """The output ends before the first occurrence of any of these."""

    stop_token_ids: tuple[int, ...] = ()
    """The output ends at the first of these token ids."""

    ignore_eos: bool | None = None
    """True makes the model's end-of-text token an ordinary token."""

    logprobs: int | None = None
    """Reports the log-probability of each token and of this many alternatives, at most 20."""

    n: int | None = None
    """Number of sequences, each with a seed derived from the request's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationOptions:
    """What may be tried to be faster. Under coupled sampling nothing here changes the text."""

    enabled: bool | None = None
    """False decodes plainly."""

    verifier: Verifier | None = None
    """How candidates are verified."""

    drafters: tuple[str, ...] = ()
    """The drafters to use, by name; empty lets the service choose."""

    max_nodes: int | None = None
    """Greatest number of candidates in one target pass, 1 to 256."""

    max_depth: int | None = None
    """Greatest depth of the candidate tree, 1 to 64."""

    tree_shape: str | None = None
    """Children of each node of a level, such as `4,2,2`, for the verifiers that test a frozen tree."""

    draft_length: DraftLength | None = None
    """When drafters stop drafting further below the text."""

    roots: Roots | None = None
    """Where trees begin."""

    tree_mask: TreeMask | None = None
    """How the masks of growing trees are made."""

    aggressiveness: float | None = None
    """Factor of the length that confidence allows, for the draft length `confidence`. In (0, 8]."""

    decision_threshold: float | None = None
    """Score above which drafting goes on, for the draft length `decision`. In [0, 1]."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: str
    """Who speaks, as the model's chat template names it: usually `system`, `user` or `assistant`."""

    content: str
    """What is said."""
