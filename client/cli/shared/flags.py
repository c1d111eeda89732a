"""The flags that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from outrider.client.connection.errors import InvalidRequest
from outrider.client.connection.timeouts import REQUEST_TIMEOUT_S
from outrider.client.messages.request_options import (
    DraftLength,
    Roots,
    SamplingOptions,
    SpeculationOptions,
    TreeMask,
    Verifier,
)

_SAMPLING = "Sampling"
_SPECULATION = "Speculation"

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Model = Annotated[str, typer.Option("--model", "-m", help="Target model. Default: the first.")]
TimeoutS = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", help="Time for one request.")
]

Temperature = Annotated[
    float | None,
    typer.Option("--temperature", "-t", rich_help_panel=_SAMPLING, help="0 is greedy."),
]
TopP = Annotated[
    float | None,
    typer.Option("--top-p", rich_help_panel=_SAMPLING, help="Probability mass to keep."),
]
TopK = Annotated[
    int | None,
    typer.Option("--top-k", rich_help_panel=_SAMPLING, help="Number of tokens to keep; 0 is all."),
]
MinP = Annotated[
    float | None,
    typer.Option(
        "--min-p", rich_help_panel=_SAMPLING, help="Least share of the best token's probability."
    ),
]
RepetitionPenalty = Annotated[
    float | None,
    typer.Option(
        "--repetition-penalty", rich_help_panel=_SAMPLING, help="On tokens of prompt and output."
    ),
]
PresencePenalty = Annotated[
    float | None,
    typer.Option("--presence-penalty", rich_help_panel=_SAMPLING, help="On tokens of the output."),
]
FrequencyPenalty = Annotated[
    float | None,
    typer.Option(
        "--frequency-penalty", rich_help_panel=_SAMPLING, help="Once for each time in the output."
    ),
]
LogitBias = Annotated[
    list[str] | None,
    typer.Option(
        "--logit-bias",
        metavar="ID=BIAS",
        rich_help_panel=_SAMPLING,
        help="Added to a token's logit; -100 excludes it. Repeatable.",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", rich_help_panel=_SAMPLING, help="Fixes the text. Default: random."),
]
MaxTokens = Annotated[
    int | None,
    typer.Option("--max-tokens", "-n", rich_help_panel=_SAMPLING, help="Most output tokens."),
]
MinTokens = Annotated[
    int | None,
    typer.Option("--min-tokens", rich_help_panel=_SAMPLING, help="Nothing ends the output before."),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(
        "--stop", rich_help_panel=_SAMPLING, help="Ends the output before it. Repeatable."
    ),
]
StopTokenIds = Annotated[
    list[int] | None,
    typer.Option("--stop-token-id", rich_help_panel=_SAMPLING, help="Ends the output. Repeatable."),
]
IgnoreEos = Annotated[
    bool,
    typer.Option("--ignore-eos", rich_help_panel=_SAMPLING, help="Go on past end-of-text."),
]
Logprobs = Annotated[
    int | None,
    typer.Option(
        "--logprobs",
        rich_help_panel=_SAMPLING,
        help="Report log-probabilities, with this many alternatives.",
    ),
]
NumSequences = Annotated[
    int | None,
    typer.Option("--num-sequences", rich_help_panel=_SAMPLING, help="Sequences to generate."),
]

Speculate = Annotated[
    bool | None,
    typer.Option(
        "--speculate/--plain", rich_help_panel=_SPECULATION, help="Speculate, or decode plainly."
    ),
]
VerifierName = Annotated[
    Verifier | None,
    typer.Option("--verifier", rich_help_panel=_SPECULATION, help="How candidates are verified."),
]
Drafters = Annotated[
    list[str] | None,
    typer.Option("--drafter", rich_help_panel=_SPECULATION, help="Drafter to use. Repeatable."),
]
MaxNodes = Annotated[
    int | None,
    typer.Option("--max-nodes", rich_help_panel=_SPECULATION, help="Most candidates in a pass."),
]
MaxDepth = Annotated[
    int | None,
    typer.Option("--max-depth", rich_help_panel=_SPECULATION, help="Greatest depth of the tree."),
]
TreeShape = Annotated[
    str | None,
    typer.Option(
        "--tree-shape",
        rich_help_panel=_SPECULATION,
        help="Children at each level of a frozen tree, for example 4,2,2.",
    ),
]

DraftLengthName = Annotated[
    DraftLength | None,
    typer.Option(
        "--draft-length", rich_help_panel=_SPECULATION, help="When drafters stop drafting further."
    ),
]
RootsName = Annotated[
    Roots | None,
    typer.Option("--roots", rich_help_panel=_SPECULATION, help="Where candidate trees begin."),
]
TreeMaskName = Annotated[
    TreeMask | None,
    typer.Option(
        "--tree-mask", rich_help_panel=_SPECULATION, help="How masks of growing trees are made."
    ),
]
Aggressiveness = Annotated[
    float | None,
    typer.Option(
        "--aggressiveness",
        rich_help_panel=_SPECULATION,
        help="Factor of the length for --draft-length confidence.",
    ),
]
DecisionThreshold = Annotated[
    float | None,
    typer.Option(
        "--decision-threshold",
        rich_help_panel=_SPECULATION,
        help="Score above which --draft-length decision goes on.",
    ),
]

TIMEOUT_DEFAULT = REQUEST_TIMEOUT_S


def parse_logit_bias(entries: list[str] | None) -> dict[int, float]:
    """Token biases from `ID=BIAS`.

    Raises:
        InvalidRequest: An entry cannot be read, or names a token twice.
    """
    biases: dict[int, float] = {}
    for entry in entries or []:
        token, _, bias = entry.partition("=")
        try:
            key, value = int(token), float(bias)
        except ValueError:
            raise InvalidRequest(
                f"--logit-bias {entry!r} is not ID=BIAS, for instance 42=-100",
                field="sampling.logit_bias",
            ) from None
        if key in biases:
            raise InvalidRequest(
                f"--logit-bias names token {key} twice", field="sampling.logit_bias"
            )
        biases[key] = value
    return biases


def sampling_options(
    *,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    min_p: float | None = None,
    repetition_penalty: float | None = None,
    presence_penalty: float | None = None,
    frequency_penalty: float | None = None,
    logit_bias: list[str] | None = None,
    seed: int | None = None,
    max_tokens: int | None = None,
    min_tokens: int | None = None,
    stop: list[str] | None = None,
    stop_token_ids: list[int] | None = None,
    ignore_eos: bool = False,
    logprobs: int | None = None,
    n: int | None = None,
) -> SamplingOptions:
    """Sampling options from flags.

    Raises:
        InvalidRequest: A bias cannot be read.
    """
    return SamplingOptions(
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        logit_bias=parse_logit_bias(logit_bias),
        seed=seed,
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        stop=tuple(stop or ()),
        stop_token_ids=tuple(stop_token_ids or ()),
        ignore_eos=True if ignore_eos else None,
        logprobs=logprobs,
        n=n,
    )


def speculation_options(
    *,
    speculate: bool | None = None,
    verifier: Verifier | None = None,
    drafters: list[str] | None = None,
    max_nodes: int | None = None,
    max_depth: int | None = None,
    tree_shape: str | None = None,
    draft_length: DraftLength | None = None,
    roots: Roots | None = None,
    tree_mask: TreeMask | None = None,
    aggressiveness: float | None = None,
    decision_threshold: float | None = None,
) -> SpeculationOptions:
    """Speculation options from flags."""
    return SpeculationOptions(
        enabled=speculate,
        verifier=verifier,
        drafters=tuple(drafters or ()),
        max_nodes=max_nodes,
        max_depth=max_depth,
        tree_shape=tree_shape,
        draft_length=draft_length,
        roots=roots,
        tree_mask=tree_mask,
        aggressiveness=aggressiveness,
        decision_threshold=decision_threshold,
    )
