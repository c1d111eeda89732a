"""Checks of what a client wrote. Pure: a request goes in, the settled options or a refusal come out.

Every rule stands in the comments of `protos/outrider/v1`; a refusal names the field, says what it holds and what to do.
A value that no service could take is INVALID_ARGUMENT; one that this model has no room for is OUT_OF_RANGE.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import grpc

from outrider.actors.speculation import shapes
from outrider.actors.speculation.options import Sampling, Speculation, Verifier
from outrider.actors.speculation.policies import DraftLength
from outrider.actors.speculation.verifiers.registry import METHODS
from outrider.actors.wire import verifier_from_proto
from outrider.cluster.policies import settle_policies
from outrider.cluster.status_codes import Refusal
from outrider.v1 import generation_pb2, sampling_pb2

MAX_LOGIT_BIAS = 1024
MAX_STOPS = 16
MAX_STOP_CHARS = 256
MAX_STOP_TOKEN_IDS = 64
MAX_LOGPROBS = 20
MAX_SEQUENCES = 16
MAX_NODES = 256
MAX_DEPTH = 64
MAX_SHAPE_CHARS = 128
MAX_MESSAGES = 1024
"""Turns of a conversation, at most: far above any real one, and bounds the work of a template."""

EXCLUDED = -100.0
"""A logit bias of this or less excludes the token."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")

_INTERVALS: dict[str, tuple[str, float, float]] = {
    "temperature": ("[0, 100]", 0.0, 100.0),
    "top_p": ("(0, 1]", 0.0, 1.0),
    "min_p": ("[0, 1]", 0.0, 1.0),
    "repetition_penalty": ("(0, 10]", 0.0, 10.0),
    "presence_penalty": ("[-2, 2]", -2.0, 2.0),
    "frequency_penalty": ("[-2, 2]", -2.0, 2.0),
}
"""Interval of each real option; a round bracket leaves the bound out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafter:
    """A drafter as far as a request can name it."""

    name: str
    verifiers: tuple[Verifier, ...]
    """What it can serve. Empty: not known yet."""
    draft_lengths: tuple[DraftLength, ...] = ()
    """Draft length policies that it can serve. Empty: not known yet."""
    mismatch: str = ""
    """Why it cannot serve this model; empty if it can."""

    def can_verify(self, verifier: Verifier) -> bool:
        """True if it serves the verifier, as far as is known."""
        return not self.verifiers or verifier in self.verifiers


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a request is checked against."""

    model: str
    vocab_size: int
    max_context: int
    eos_token_ids: frozenset[int]
    verifiers: tuple[Verifier, ...]
    drafters: tuple[Drafter, ...]
    default_max_tokens: int
    speculation: Speculation
    has_tokenizer: bool
    has_chat_template: bool
    max_token_chars: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """Options of a request with every default filled in."""

    sampling: Sampling
    """Of sequence 0; the others differ in the seed."""

    num_sequences: int
    stops: tuple[str, ...]
    stop_tokens: frozenset[int]
    """Token ids that end the output, end-of-text included unless it is ignored."""

    resume: tuple[int, ...]
    speculation: Speculation
    drafters: tuple[str, ...]
    """Drafters to use, in the order asked for; all that fit where the request does not say."""


def invalid(field: str, problem: str) -> Refusal:
    """A refusal of a value that no service could take."""
    return Refusal(grpc.StatusCode.INVALID_ARGUMENT, f"{field} {problem}", field=field)


def out_of_range(field: str, problem: str) -> Refusal:
    """A refusal of a value that this model has no room for."""
    return Refusal(grpc.StatusCode.OUT_OF_RANGE, f"{field} {problem}", field=field)


def check_request_id(request_id: str) -> None:
    """Refuses a name that is no name. Empty is fine: the service makes one."""
    if request_id and not _REQUEST_ID.fullmatch(request_id):
        raise invalid(
            "request_id",
            f"must be at most 128 characters of [A-Za-z0-9._:-], got {_shown(request_id)}",
        )


def check_model(model: str, limits: Limits) -> None:
    """Refuses a model that is not served. Empty means the one that is."""
    if model and model != limits.model:
        raise Refusal(
            grpc.StatusCode.NOT_FOUND,
            f"model {_shown(model)} is not served here; known models: {limits.model!r}",
            field="model",
        )


def check_text(text: str, limits: Limits, field: str = "text") -> None:
    """Refuses text that need not be tokenised to know that it cannot be taken."""
    if not limits.has_tokenizer:
        raise invalid(
            field, "cannot be tokenised: this service has no tokenizer; send the prompt as tokens"
        )
    if limits.max_token_chars and len(text) > limits.max_token_chars * limits.max_context:
        least = -(-len(text) // limits.max_token_chars)
        raise out_of_range(
            field,
            f"is at least {least} tokens long ({len(text)} characters), but the context of {limits.model!r} "
            f"holds {limits.max_context}; shorten it",
        )


def check_chat(chat: generation_pb2.ChatMessages, limits: Limits) -> list[tuple[str, str]]:
    """The turns of a conversation, or a refusal."""
    check_text("".join(message.content for message in chat.messages), limits, "chat.messages")
    if not limits.has_chat_template:
        raise invalid(
            "chat", f"needs a chat template, and {limits.model!r} has none; send the prompt as text"
        )
    if not 1 <= len(chat.messages) <= MAX_MESSAGES:
        raise invalid(
            "chat.messages", f"must hold 1 to {MAX_MESSAGES} turns, got {len(chat.messages)}"
        )
    for index, message in enumerate(chat.messages):
        if not message.role:
            raise invalid(
                f"chat.messages[{index}].role",
                "is empty; name who speaks, usually system, user or assistant",
            )
    return [(message.role, message.content) for message in chat.messages]


def check_token_ids(ids: Sequence[int], limits: Limits, field: str) -> None:
    """Refuses ids that the model does not have."""
    if ids and max(ids) >= limits.vocab_size:
        index = next(index for index, token in enumerate(ids) if token >= limits.vocab_size)
        raise out_of_range(
            f"{field}[{index}]",
            f"is {ids[index]}, outside the vocabulary of {limits.model!r}: ids must be below "
            f"{limits.vocab_size}",
        )


def check_prompt(prompt: Sequence[int], limits: Limits, field: str) -> None:
    """Refuses a prompt that is empty, unknown to the model, or leaves no room for output."""
    if not prompt:
        raise invalid(field, "is empty: the prompt needs at least one token")
    if len(prompt) >= limits.max_context:
        raise out_of_range(
            field,
            f"is {len(prompt)} tokens long, but the context of {limits.model!r} holds {limits.max_context} "
            "with at least one of them output; shorten it",
        )
    check_token_ids(prompt, limits, field)


def settle(
    request: generation_pb2.GenerateRequest,
    *,
    prompt_length: int,
    limits: Limits,
    fresh_seed: int,
) -> Settled:
    """Checks the options of a request and fills in the defaults.

    Args:
        request: What the client wrote.
        prompt_length: Number of prompt tokens.
        limits: What the service offers.
        fresh_seed: The seed to use if the request has none.

    Raises:
        Refusal: An option is wrong.
    """
    options = request.sampling
    _check_reals(options)
    num_sequences = _number(options, "n", 1, MAX_SEQUENCES, default=1)
    resume = tuple(request.resume.ids)
    check_token_ids(resume, limits, "resume.ids")
    if request.HasField("resume"):
        _check_resume(options, num_sequences)
    max_tokens = _max_tokens(options, prompt_length, len(resume), limits)
    if options.min_tokens > max_tokens:
        raise invalid(
            "sampling.min_tokens",
            f"is {options.min_tokens}, greater than the {max_tokens} of sampling.max_tokens",
        )
    stops, stop_tokens = _stops(options, limits)
    speculation, drafters = _settle_speculation(request.speculation, limits)
    return Settled(
        sampling=Sampling(
            seed=options.seed if options.HasField("seed") else fresh_seed,
            max_tokens=max_tokens,
            temperature=_real(options, "temperature", 1.0),
            top_p=_real(options, "top_p", 1.0),
            top_k=options.top_k,
            min_p=options.min_p,
            repetition_penalty=_real(options, "repetition_penalty", 1.0),
            presence_penalty=options.presence_penalty,
            frequency_penalty=options.frequency_penalty,
            logit_bias=_logit_bias(options, limits),
            min_tokens=options.min_tokens,
            stop_token_ids=tuple(options.stop_token_ids),
            ignore_eos=options.ignore_eos,
            logprobs=_number(options, "logprobs", 0, MAX_LOGPROBS, default=0)
            if options.HasField("logprobs")
            else None,
        ),
        num_sequences=num_sequences,
        stops=stops,
        stop_tokens=stop_tokens,
        resume=resume,
        speculation=speculation,
        drafters=drafters,
    )


def _check_reals(options: sampling_pb2.SamplingOptions) -> None:
    for name, (interval, low, high) in _INTERVALS.items():
        if not options.HasField(name):  # type: ignore[arg-type]  # the stub wants literals
            continue
        value = getattr(options, name)
        is_open = interval.startswith("(")
        if not (low <= value <= high) or (is_open and value == low):
            raise invalid(f"sampling.{name}", f"must be in {interval}, got {_plain(value)}")


def _real(options: sampling_pb2.SamplingOptions, name: str, default: float) -> float:
    return getattr(options, name) if options.HasField(name) else default  # type: ignore[arg-type]


def _number(
    options: sampling_pb2.SamplingOptions, name: str, low: int, high: int, *, default: int
) -> int:
    if not options.HasField(name):  # type: ignore[arg-type]
        return default
    value: int = getattr(options, name)
    if not low <= value <= high:
        raise invalid(f"sampling.{name}", f"must be {low} to {high}, got {value}")
    return value


def _check_resume(options: sampling_pb2.SamplingOptions, num_sequences: int) -> None:
    if not options.HasField("seed"):
        raise invalid(
            "resume", "needs sampling.seed: give the seed that the first stream's admission told"
        )
    if num_sequences != 1:
        raise invalid("resume", f"needs sampling.n = 1, got {num_sequences}")


def _max_tokens(
    options: sampling_pb2.SamplingOptions, prompt_length: int, num_resumed: int, limits: Limits
) -> int:
    room = limits.max_context - prompt_length
    if not options.HasField("max_tokens"):
        max_tokens = min(limits.default_max_tokens, room)
    elif options.max_tokens < 1:
        raise out_of_range("sampling.max_tokens", "must be at least 1, got 0")
    elif options.max_tokens > room:
        raise out_of_range(
            "sampling.max_tokens",
            f"is {options.max_tokens}, but a context of {limits.max_context} tokens with a prompt of "
            f"{prompt_length} leaves {room}",
        )
    else:
        max_tokens = options.max_tokens
    if num_resumed > max_tokens:
        raise invalid(
            "resume.ids",
            f"holds {num_resumed} tokens, more than the {max_tokens} of sampling.max_tokens",
        )
    return max_tokens


def _logit_bias(options: sampling_pb2.SamplingOptions, limits: Limits) -> dict[int, float]:
    bias = dict(options.logit_bias)
    if len(bias) > MAX_LOGIT_BIAS:
        raise invalid(
            "sampling.logit_bias", f"must hold at most {MAX_LOGIT_BIAS} entries, got {len(bias)}"
        )
    for token, value in bias.items():
        if token >= limits.vocab_size:
            raise out_of_range(
                f"sampling.logit_bias[{token}]",
                f"is outside the vocabulary of {limits.model!r}: ids must be below {limits.vocab_size}",
            )
        if not -100 <= value <= 100:
            raise invalid(
                f"sampling.logit_bias[{token}]", f"must be in [-100, 100], got {_plain(value)}"
            )
    if sum(value <= EXCLUDED for value in bias.values()) >= limits.vocab_size:
        raise invalid(
            "sampling.logit_bias",
            f"excludes every one of the {limits.vocab_size} tokens; leave at least one",
        )
    return bias


def _stops(
    options: sampling_pb2.SamplingOptions, limits: Limits
) -> tuple[tuple[str, ...], frozenset[int]]:
    stops = tuple(options.stop)
    if stops and not limits.has_tokenizer:
        raise invalid(
            "sampling.stop", "needs a tokenizer and this service has none; use stop_token_ids"
        )
    if len(stops) > MAX_STOPS:
        raise invalid("sampling.stop", f"must hold at most {MAX_STOPS} strings, got {len(stops)}")
    for index, stop in enumerate(stops):
        if not 1 <= len(stop) <= MAX_STOP_CHARS:
            raise invalid(
                f"sampling.stop[{index}]",
                f"must have 1 to {MAX_STOP_CHARS} characters, got {len(stop)}",
            )
    stop_token_ids = tuple(options.stop_token_ids)
    if len(stop_token_ids) > MAX_STOP_TOKEN_IDS:
        raise invalid(
            "sampling.stop_token_ids",
            f"must hold at most {MAX_STOP_TOKEN_IDS} ids, got {len(stop_token_ids)}",
        )
    check_token_ids(stop_token_ids, limits, "sampling.stop_token_ids")
    if options.ignore_eos and (both := limits.eos_token_ids.intersection(stop_token_ids)):
        raise invalid(
            "sampling.ignore_eos",
            f"contradicts sampling.stop_token_ids, which holds the end-of-text token {min(both)}",
        )
    eos = frozenset[int]() if options.ignore_eos else limits.eos_token_ids
    return stops, eos.union(stop_token_ids)


def _settle_speculation(
    options: sampling_pb2.SpeculationOptions, limits: Limits
) -> tuple[Speculation, tuple[str, ...]]:
    defaults = limits.speculation
    enabled = options.enabled if options.HasField("enabled") else defaults.enabled
    named = tuple(options.drafters)
    if named and options.HasField("enabled") and not options.enabled:
        raise invalid(
            "speculation.drafters",
            f"names {', '.join(map(repr, named))} while speculation.enabled is false; leave one out",
        )
    verifier = _verifier(options, limits)
    shape = _tree_shape(options, verifier)
    max_nodes = options.max_nodes if options.HasField("max_nodes") else defaults.max_nodes
    if not 1 <= max_nodes <= MAX_NODES:
        raise invalid("speculation.max_nodes", f"must be 1 to {MAX_NODES}, got {max_nodes}")
    max_depth = options.max_depth if options.HasField("max_depth") else defaults.max_depth
    if not 1 <= max_depth <= MAX_DEPTH:
        raise invalid("speculation.max_depth", f"must be 1 to {MAX_DEPTH}, got {max_depth}")
    if shape is not None:
        max_nodes = _room_for(shape, "max_nodes", shape.num_nodes, max_nodes, options)
        max_depth = _room_for(shape, "max_depth", shape.depth, max_depth, options)
    able = [one for one in limits.drafters if not one.mismatch and one.can_verify(verifier)]
    policies = settle_policies(
        options,
        defaults=defaults.policies,
        verifier=verifier,
        enabled=enabled,
        served={one.name: one.draft_lengths for one in able if not named or one.name in named},
    )
    drafters = _drafters(named, verifier, policies.draft_length, limits) if enabled else ()
    return (
        Speculation(
            enabled=enabled,
            verifier=verifier,
            max_nodes=max_nodes,
            max_depth=max_depth,
            tree_shape=shape,
            policies=policies,
        ),
        drafters,
    )


def _tree_shape(
    options: sampling_pb2.SpeculationOptions, verifier: Verifier
) -> shapes.Shape | None:
    field = "speculation.tree_shape"
    if not options.HasField("tree_shape"):
        return None
    method = METHODS[verifier]
    if not method.needs_draft_probs:
        frozen = ", ".join(name.value for name, one in METHODS.items() if one.needs_draft_probs)
        raise invalid(
            field,
            f"does not go with {verifier.value!r}, whose trees grow as they please; leave it out, or set "
            f"speculation.verifier to one of {frozen}",
        )
    if len(options.tree_shape) > MAX_SHAPE_CHARS:
        raise invalid(
            field, f"must have at most {MAX_SHAPE_CHARS} characters, got {len(options.tree_shape)}"
        )
    try:
        shape = shapes.parse(options.tree_shape)
    except ValueError as error:
        raise invalid(field, f"cannot be used: {error}") from None
    if method.is_chain_only and any(count != 1 for count in shape.branching):
        raise invalid(
            field,
            f"is {str(shape)!r}, a tree, and {verifier.value!r} verifies chains; write 1,1,1,1 for a chain of four",
        )
    for name, value, most in (
        ("candidates", shape.num_nodes, MAX_NODES),
        ("levels", shape.depth, MAX_DEPTH),
    ):
        if value > most:
            raise invalid(field, f"has {value} {name}; at most {most} are possible")
    return shape


def _room_for(
    shape: shapes.Shape,
    name: Literal["max_nodes", "max_depth"],
    needed: int,
    given: int,
    options: sampling_pb2.SpeculationOptions,
) -> int:
    """The limit that lets a shape through: a default gives way, what the client wrote does not."""
    if needed > given and options.HasField(name):
        raise invalid(
            "speculation.tree_shape",
            f"is {str(shape)!r}, which needs {needed}, and speculation.{name} is {given}; change one of them",
        )
    return max(needed, given)


def _verifier(options: sampling_pb2.SpeculationOptions, limits: Limits) -> Verifier:
    if not options.HasField("verifier") or not options.verifier:
        return limits.speculation.verifier
    offered = ", ".join(verifier.value for verifier in limits.verifiers)
    try:
        verifier = verifier_from_proto(options.verifier)
    except ValueError:
        raise invalid(
            "speculation.verifier",
            f"is {int(options.verifier)}, which this version does not know; offered: {offered}",
        ) from None
    if verifier not in limits.verifiers:
        raise invalid(
            "speculation.verifier",
            f"{verifier.value!r} is not offered by {limits.model!r}; offered: {offered}",
        )
    return verifier


def _drafters(
    named: tuple[str, ...], verifier: Verifier, length: DraftLength, limits: Limits
) -> tuple[str, ...]:
    known = {drafter.name: drafter for drafter in limits.drafters}
    if not named:
        return tuple(
            drafter.name
            for drafter in limits.drafters
            if not drafter.mismatch
            and drafter.can_verify(verifier)
            and (not drafter.draft_lengths or length in drafter.draft_lengths)
        )
    for index, name in enumerate(named):
        field = f"speculation.drafters[{index}]"
        drafter = known.get(name)
        if drafter is None:
            listed = ", ".join(map(repr, known)) or "none"
            raise Refusal(
                grpc.StatusCode.NOT_FOUND,
                f"{field} {_shown(name)} is not a drafter here; known drafters: {listed}",
                field=field,
            )
        if name in named[:index]:
            raise invalid(field, f"names {name!r} a second time")
        if drafter.mismatch:
            raise Refusal(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"{field} {name!r} cannot serve {limits.model!r}: {drafter.mismatch}; name another, or none",
                field=field,
            )
        if not drafter.can_verify(verifier):
            can = ", ".join(one.value for one in drafter.verifiers)
            raise invalid(
                field, f"{name!r} cannot serve the verifier {verifier.value!r}, only {can}"
            )
        if drafter.draft_lengths and length not in drafter.draft_lengths:
            can = ", ".join(one.value for one in drafter.draft_lengths)
            raise invalid(
                field, f"{name!r} cannot serve the draft length {length.value!r}, only {can}"
            )
    return named


def _plain(value: float) -> str:
    """A float32 as the client wrote it: 1.5 rather than 1.50000000."""
    return repr(value) if not math.isfinite(value) else f"{value:.6g}"


def _shown(text: str) -> str:
    """A client's text, short enough for a message."""
    return repr(text if len(text) <= 80 else text[:77] + "...")
