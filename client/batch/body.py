"""The body of a record, in OpenAI's words, as options of ours. Pure.

A field that is null counts as left out, as it does there. A field that we do not know, or whose effect we do not have, is
a fault: an output that silently lacks what was asked for would be worse than none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from outrider.client.connection.wanted import shown
from outrider.client.messages.request_options import Message, SamplingOptions, SpeculationOptions

JsonObject = dict[str, Any]

MAX_ID_DIGITS = 10
"""Of a token id, which has 32 bits."""


@dataclass(frozen=True, slots=True)
class BodyProblem:
    """Why a record cannot be run."""

    code: str
    """One word for programs, such as `unsupported_field`."""

    message: str
    field: str | None = None
    """The field of the record that is wrong, such as `body.top_p`."""


class BadRecord(Exception):
    """A record cannot be run; carries the problem."""

    def __init__(self, code: str, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.problem = BodyProblem(code, message, field)


def wrong(field: str, value: object, needed: str) -> BadRecord:
    """The fault of a field whose value is of another kind."""
    return BadRecord("invalid_field", f"{field} is {shown(value)}; {needed} is needed", field)


def number(field: str, value: object) -> float:
    """A JSON number that a float can hold."""
    try:
        if type(value) in (int, float) and math.isfinite(value):  # type: ignore[arg-type]
            return value  # type: ignore[return-value]
    except OverflowError:
        pass
    raise wrong(field, value, "a number")


def integer(field: str, value: object) -> int:
    """A JSON number without a fraction."""
    if type(value) is not int:
        raise wrong(field, value, "a whole number")
    return value


def boolean(field: str, value: object) -> bool:
    """True or false."""
    if type(value) is not bool:
        raise wrong(field, value, "true or false")
    return value


def text(field: str, value: object) -> str:
    """A string."""
    if not isinstance(value, str):
        raise wrong(field, value, "a string")
    return value


def texts(field: str, value: object) -> tuple[str, ...]:
    """A list of strings; one string counts as a list of it."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list):
        raise wrong(field, value, "a string or a list of strings")
    return tuple(text(f"{field}[{index}]", item) for index, item in enumerate(value))


def integers(field: str, value: object) -> tuple[int, ...]:
    """A list of whole numbers."""
    if not isinstance(value, list):
        raise wrong(field, value, "a list of whole numbers")
    return tuple(integer(f"{field}[{index}]", item) for index, item in enumerate(value))


def numbers(field: str, value: object) -> dict[str, float]:
    """An object from names to numbers."""
    if not isinstance(value, dict):
        raise wrong(field, value, "an object of names and numbers")
    return {name: number(f"{field}.{name}", entry) for name, entry in value.items()}


def biases(field: str, value: object) -> dict[int, float]:
    """An object from token ids, as strings, to numbers."""
    if not isinstance(value, dict):
        raise wrong(field, value, "an object of token ids and biases")
    found: dict[int, float] = {}
    for key, bias in value.items():
        if not key.isascii() or not key.isdigit() or len(key) > MAX_ID_DIGITS:
            raise wrong(field, key, "a token id as key")
        if int(key) in found:
            raise BadRecord("invalid_field", f"{field} names token {int(key)} twice", field)
        found[int(key)] = number(f"{field}.{key}", bias)
    return found


Reader = Callable[[str, object], Any]

SAMPLING: Mapping[str, Reader] = {
    "temperature": number,
    "top_p": number,
    "top_k": integer,
    "min_p": number,
    "repetition_penalty": number,
    "presence_penalty": number,
    "frequency_penalty": number,
    "logit_bias": biases,
    "seed": integer,
    "max_tokens": integer,
    "min_tokens": integer,
    "stop": texts,
    "stop_token_ids": integers,
    "ignore_eos": boolean,
    "n": integer,
}
"""The fields of a body that decide the tokens, by the names of `SamplingOptions`. Those that OpenAI does not have are
named as vLLM names them."""

SPECULATION: Mapping[str, Reader] = {
    "enabled": boolean,
    "verifier": text,
    "drafters": texts,
    "max_nodes": integer,
    "max_depth": integer,
    "tree_shape": text,
    "draft_length": text,
    "roots": text,
    "aggressiveness": number,
    "decision_threshold": number,
    "verifier_options": numbers,
    "selector": text,
    "selector_options": numbers,
    "drafters_at_work": integer,
}
"""The fields of `body.outrider`, by the names of `SpeculationOptions`."""

NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "stream": (False,),
    "echo": (False,),
    "logprobs": (False,),
    "store": (False,),
    "best_of": (1,),
    "suffix": ("",),
    "response_format": ({"type": "text"},),
}
"""Fields that are taken only with a value that asks for nothing."""

LABELS = ("user", "metadata")
"""Fields that have no effect on an output anywhere."""


def sampling_of(body: JsonObject) -> SamplingOptions:
    """What decides the tokens.

    Raises:
        BadRecord: A value is of another kind.
    """
    values = {
        name: read(f"body.{name}", body[name]) for name, read in SAMPLING.items() if name in body
    }
    if "max_completion_tokens" in body:
        most = integer("body.max_completion_tokens", body["max_completion_tokens"])
        if values.setdefault("max_tokens", most) != most:
            raise BadRecord(
                "invalid_field",
                "body.max_tokens and body.max_completion_tokens differ; give one of them",
                "body.max_completion_tokens",
            )
    return SamplingOptions(**values)


def speculation_of(body: JsonObject) -> SpeculationOptions:
    """How to be fast: what `body.outrider` says.

    Raises:
        BadRecord: It is no object, or holds an unknown field or a value of another kind.
    """
    value = body.get("outrider", {})
    if not isinstance(value, dict):
        raise wrong("body.outrider", value, "an object")
    given = {name: entry for name, entry in value.items() if entry is not None}
    refuse_unknown("body.outrider", given, SPECULATION)
    return SpeculationOptions(
        **{name: SPECULATION[name](f"body.outrider.{name}", entry) for name, entry in given.items()}
    )


def prompt_of(body: JsonObject) -> tuple[str | None, tuple[int, ...] | None]:
    """The prompt of a completion: text, or token ids.

    Raises:
        BadRecord: It is missing, of another kind, or holds several prompts.
    """
    match body.get("prompt"):
        case None:
            raise BadRecord("invalid_field", "body.prompt is missing", "body.prompt")
        case str(prompt) | [str(prompt)]:
            return prompt, None
        case [int(), *_] as ids:
            return None, integers("body.prompt", ids)
        case [str() | list(), *_]:
            raise BadRecord(
                "unsupported_field",
                "body.prompt holds several prompts; give each a record of its own",
                "body.prompt",
            )
        case other:
            raise wrong("body.prompt", other, "a string or a list of token ids")


def messages_of(body: JsonObject) -> tuple[Message, ...]:
    """The turns of a conversation.

    Raises:
        BadRecord: They are missing, of another kind, or hold more than role and text.
    """
    match body.get("messages"):
        case [*turns] if turns:
            return tuple(
                _message(f"body.messages[{index}]", turn) for index, turn in enumerate(turns)
            )
        case None:
            raise BadRecord("invalid_field", "body.messages is missing", "body.messages")
        case other:
            raise wrong("body.messages", other, "a list of at least one message")


def refuse_unknown(place: str, given: JsonObject, known: Mapping[str, object]) -> None:
    """Refuses fields beyond the known ones.

    Raises:
        BadRecord: There is one; names it.
    """
    for name in given:
        if name not in known:
            raise BadRecord(
                "unsupported_field", f"{place}.{name} is not supported here", f"{place}.{name}"
            )


def place_of(field: str | None) -> str | None:
    """Where a record has what the client and the service call by this name."""
    if field is None:
        return None
    for prefix, place in (
        ("sampling.", "body."),
        # A name that the contract does not list.
        ("speculation.verifier_name", "body.outrider.verifier"),
        ("speculation.", "body.outrider."),
        ("text", "body.prompt"),
        ("tokens.ids", "body.prompt"),
        ("tokens", "body.prompt"),
        ("chat.messages", "body.messages"),
        ("chat", "body.messages"),
    ):
        if field.startswith(prefix):
            return place + field.removeprefix(prefix)
    return f"body.{field}"


def _message(field: str, turn: object) -> Message:
    """One turn: a role, and a text or parts of text."""
    if not isinstance(turn, dict):
        raise wrong(field, turn, "an object of role and content")
    given = {name: value for name, value in turn.items() if value is not None}
    refuse_unknown(field, given, {"role": None, "content": None})
    content = given.get("content")
    if isinstance(content, list):
        content = "".join(
            _part(f"{field}.content[{index}]", part) for index, part in enumerate(content)
        )
    return Message(text(f"{field}.role", given.get("role")), text(f"{field}.content", content))


def _part(field: str, part: object) -> str:
    """One part of a content: only text."""
    match part:
        case {"type": "text", "text": str(said), **rest} if not rest:
            return said
        case _:
            raise BadRecord(
                "unsupported_field", f"{field} is {shown(part)}; only text is supported", field
            )
