"""What a request may ask for. None, or empty, leaves a field out: the service's default holds.

Values are checked by the service, which knows the model; the client refuses only what the wire cannot carry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated


@dataclass(frozen=True, slots=True)
class Flag:
    """How the command line asks for a field: `--name-of-the-field`, unless it says otherwise."""

    help: str
    """One line."""

    names: tuple[str, ...] = ()
    """Other names, such as `-t`; if one of them is long it stands in place of the usual one."""


class Verifier(StrEnum):
    """How candidates are verified; see `sampling.proto` for the sources. `ListModels` names further ones."""

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


SAME_TEXT = (None, Verifier.COUPLED, Verifier.EXACT_MATCH)
"""Verifiers whose text is that of plain decoding at every temperature; that of the other lossless ones has its distribution only."""


class DraftLength(StrEnum):
    """When drafters stop drafting further; see `sampling.proto` for the sources."""

    FULL = "full"
    CONFIDENCE = "confidence"
    DECISION = "decision"


class Roots(StrEnum):
    """Where the first level of a growing tree comes from."""

    DRAFT = "draft"
    TARGET = "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOptions:
    """What decides the next token."""

    temperature: Annotated[float | None, Flag("0 is greedy.", ("-t",))] = None
    """Divides the logits; 0 selects the most probable token. In [0, 100]."""

    top_p: Annotated[float | None, Flag("Probability mass to keep.")] = None
    """Keeps the smallest set of tokens whose probability reaches this mass. In (0, 1]."""

    top_k: Annotated[int | None, Flag("Number of tokens to keep; 0 is all.")] = None
    """Keeps this many most probable tokens; 0 keeps all."""

    min_p: Annotated[float | None, Flag("Least share of the best token's probability.")] = None
    """Keeps tokens at least this fraction as probable as the most probable one. In [0, 1]."""

    repetition_penalty: Annotated[float | None, Flag("On tokens of prompt and output.")] = None
    """Divides positive and multiplies negative logits of tokens in prompt or output. In (0, 10]."""

    presence_penalty: Annotated[float | None, Flag("On tokens of the output.")] = None
    """Subtracted from the logit of each token that the output contains. In [-2, 2]."""

    frequency_penalty: Annotated[float | None, Flag("Once for each time in the output.")] = None
    """Subtracted once for each time the output contains the token. In [-2, 2]."""

    logit_bias: Annotated[
        Mapping[int, float],
        Flag("ID=BIAS: added to a token's logit; -100 excludes it. Repeatable."),
    ] = field(default_factory=dict)
    """Added to the logits of these token ids; -100 excludes a token."""

    seed: Annotated[int | None, Flag("Fixes the text. Default: random.")] = None
    """Fixes the noise: the same request with the same seed gives the same text. 64 bits, unsigned."""

    max_tokens: Annotated[int | None, Flag("Most output tokens.", ("-n",))] = None
    """Greatest number of output tokens."""

    min_tokens: Annotated[int | None, Flag("Nothing ends the output before.")] = None
    """Nothing ends the output before this many tokens."""

    stop: Annotated[tuple[str, ...], Flag("Ends the output before it. Repeatable.")] = ()
    """The output ends before the first occurrence of any of these."""

    stop_token_ids: Annotated[
        tuple[int, ...], Flag("Ends the output. Repeatable.", ("--stop-token-id",))
    ] = ()
    """The output ends at the first of these token ids."""

    ignore_eos: Annotated[bool | None, Flag("Go on past end-of-text.")] = None
    """True makes the model's end-of-text token an ordinary token."""

    logprobs: Annotated[
        int | None, Flag("Report log-probabilities, with this many alternatives.")
    ] = None
    """Reports the log-probability of each token and of this many alternatives, at most 20."""

    n: Annotated[int | None, Flag("Sequences to generate.", ("--num-sequences",))] = None
    """Number of sequences, each with a seed derived from the request's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationOptions:
    """What may be tried to be faster. Under coupled sampling nothing here changes the text."""

    enabled: Annotated[
        bool | None, Flag("Speculate, or decode plainly.", ("--speculate/--plain",))
    ] = None
    """False decodes plainly."""

    verifier: Annotated[
        Verifier | str | None,
        Flag("How candidates are verified; `outrider models` lists the names."),
    ] = None
    """How candidates are verified."""

    verifier_options: Annotated[
        Mapping[str, float],
        Flag("NAME=NUMBER: what the verifier takes. Repeatable.", ("--verifier-option",)),
    ] = field(default_factory=dict)
    """Numbers that the verifier takes, by name."""

    drafters: Annotated[tuple[str, ...], Flag("Drafter to use. Repeatable.", ("--drafter",))] = ()
    """The drafters to use, by name; empty lets the service choose."""

    max_nodes: Annotated[int | None, Flag("Most candidates in a pass.")] = None
    """Greatest number of candidates in one target pass, 1 to 256."""

    max_depth: Annotated[int | None, Flag("Greatest depth of the tree.")] = None
    """Greatest depth of the candidate tree, 1 to 64."""

    tree_shape: Annotated[
        str | None, Flag("Children at each level of a frozen tree, for example 4,2,2.")
    ] = None
    """Children of each node of a level, such as `4,2,2`, for the verifiers that test a frozen tree."""

    draft_length: Annotated[DraftLength | None, Flag("When drafters stop drafting further.")] = None
    """When drafters stop drafting further below the text."""

    roots: Annotated[Roots | None, Flag("Where candidate trees begin.")] = None
    """Where trees begin."""

    aggressiveness: Annotated[
        float | None, Flag("Factor of the length for --draft-length confidence.")
    ] = None
    """Factor of the length that confidence allows, for the draft length `confidence`. In (0, 8]."""

    decision_threshold: Annotated[
        float | None, Flag("Score above which --draft-length decision goes on.")
    ] = None
    """Score above which drafting goes on, for the draft length `decision`. In [0, 1]."""

    selector: Annotated[
        str | None,
        Flag(
            "How drafters are chosen where fewer work than there are; `outrider models` lists the names."
        ),
    ] = None
    """How drafters are chosen where fewer may work for a text than there are."""

    selector_options: Annotated[
        Mapping[str, float],
        Flag("NAME=NUMBER: what the selector takes. Repeatable.", ("--selector-option",)),
    ] = field(default_factory=dict)
    """Numbers that the selector takes, by name."""

    drafters_at_work: Annotated[int | None, Flag("Most drafters at work for a text at a time.")] = (
        None
    )
    """Greatest number of drafters that work for a text at a time, 1 to 64."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: str
    """Who speaks, as the model's chat template names it: usually `system`, `user` or `assistant`."""

    content: str
    """What is said."""
