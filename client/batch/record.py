"""One line of the input: a record to run, or why it cannot be run. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from outrider.client.batch import body as bodies
from outrider.client.batch.body import BadRecord, BodyProblem, JsonObject
from outrider.client.batch.json_line import load
from outrider.client.connection.errors import InvalidRequest
from outrider.client.connection.wanted import shown
from outrider.client.messages.request_options import Message, SamplingOptions, SpeculationOptions
from outrider.client.messages.request_wire import request_to_proto

MAX_SEED = 2**53
"""Derived seeds are below it, so that every JSON reader keeps them whole."""

_RECORD_FIELDS = dict.fromkeys(("custom_id", "method", "url", "body", "metadata"))


class Url(StrEnum):
    """What a record can ask for."""

    COMPLETIONS = "/v1/completions"
    CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord:
    """A request that can be sent."""

    line: int
    """In the input, from 1."""

    id: str
    """Names the answer. Fixed by all that the record says, and by the model it takes where it names none."""

    custom_id: str
    category: str
    url: Url
    model: str
    prompt: str | None
    tokens: tuple[int, ...] | None
    messages: tuple[Message, ...] | None
    sampling: SamplingOptions
    """With a seed in any case."""

    speculation: SpeculationOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A line that is answered without the service."""

    line: int
    id: str
    """Names the answer. Fixed by the line and its number: a line may have no other name."""

    custom_id: str | None
    problem: BodyProblem


Entry = BatchRecord | Rejection


def parse(line: int, raw: bytes, *, model: str = "") -> Entry:
    """What a line of the input asks for.

    Args:
        line: Its number, from 1.
        raw: Its bytes.
        model: Of a record that names none; empty takes the service's first.
    """
    value: object = None
    try:
        value = load(raw)
        return _record(line, value, model)
    except BadRecord as error:
        return reject(line, raw, error.problem, value)
    except RecursionError:
        problem = BodyProblem("invalid_json", "is nested too deeply")
        return reject(line, raw, problem, value)


def reject(line: int, raw: bytes, problem: BodyProblem, value: object) -> Rejection:
    """The answer to a line that cannot be run.

    Args:
        line: Its number.
        raw: Its bytes.
        problem: Why not.
        value: What it holds, as far as that could be read.
    """
    custom_id = value.get("custom_id") if isinstance(value, dict) else None
    return Rejection(
        line=line,
        id=_id_of(str(line).encode(), raw),
        custom_id=custom_id if isinstance(custom_id, str) else None,
        problem=replace(problem, message=f"line {line}: {problem.message}"),
    )


def duplicate(line: int, record_id: str, custom_id: str, lines: Sequence[int]) -> Rejection:
    """The answer to a record whose custom_id others have too.

    Args:
        line: Its number.
        record_id: What its answer would be named.
        custom_id: The name that it shares.
        lines: The numbers of all who share it.
    """
    named = ", ".join(map(str, lines[:5])) + (", ..." if len(lines) > 5 else "")
    return Rejection(
        line=line,
        id=_id_of(str(line).encode(), record_id.encode()),
        custom_id=custom_id,
        problem=BodyProblem(
            "duplicate_custom_id",
            f"line {line}: custom_id {shown(custom_id)} names the records of lines {named}; none of them is run",
            "custom_id",
        ),
    )


def seed_of(custom_id: str) -> int:
    """The seed of a record that names none: the same record has the same text whenever it runs."""
    digest = hashlib.sha256(b"outrider batch seed\0" + custom_id.encode(errors="surrogatepass"))
    return int.from_bytes(digest.digest()[:8]) % MAX_SEED


def _record(line: int, value: object, model: str) -> BatchRecord:
    """The record that a JSON value is."""
    if not isinstance(value, dict):
        raise BadRecord("invalid_record", "is not a JSON object")
    custom_id = value.get("custom_id")
    if not isinstance(custom_id, str) or not custom_id:
        raise BadRecord(
            "missing_custom_id", "custom_id, a string that is not empty, is missing", "custom_id"
        )
    for name in value:
        if name not in _RECORD_FIELDS:
            raise BadRecord("unsupported_field", f"{shown(name)} is no field of a record", name)
    if value.get("method") != "POST":
        raise BadRecord(
            "invalid_method", f"method is {shown(value.get('method'))}, not 'POST'", "method"
        )
    url = _url(value.get("url"))
    body = _body(value.get("body"), url)
    category = _category(value)
    prompt, tokens, messages = None, None, None
    if url is Url.CHAT:
        messages = bodies.messages_of(body)
    else:
        prompt, tokens = bodies.prompt_of(body)
    sampling = bodies.sampling_of(body)
    if sampling.seed is None:
        sampling = replace(sampling, seed=seed_of(custom_id))
    record = BatchRecord(
        line=line,
        id=_id_of(model.encode(), json.dumps(value, sort_keys=True).encode()),
        custom_id=custom_id,
        category=category,
        url=url,
        model=bodies.text("body.model", body.get("model", model)) or model,
        prompt=prompt,
        tokens=tokens,
        messages=messages,
        sampling=sampling,
        speculation=bodies.speculation_of(body),
    )
    _check_wire(record)
    return record


def _url(value: object) -> Url:
    """What is asked for."""
    try:
        return Url(str(value))
    except ValueError:
        raise BadRecord(
            "unknown_url", f"url is {shown(value)}; known are {', '.join(Url)}", "url"
        ) from None


def _body(value: object, url: Url) -> JsonObject:
    """The body without what is null, once it is sure that all of it is understood."""
    if not isinstance(value, dict):
        raise bodies.wrong("body", value, "an object")
    body = {name: entry for name, entry in value.items() if entry is not None}
    if "extra_body" in body:
        raise BadRecord(
            "unsupported_field",
            "body.extra_body is an argument of client libraries; put its fields into the body itself",
            "body.extra_body",
        )
    for name, neutral in bodies.NEUTRAL.items():
        if name in body and not any(
            type(body[name]) is type(entry) and body[name] == entry for entry in neutral
        ):
            raise BadRecord(
                "unsupported_field",
                f"body.{name} is {shown(body[name])}, which is not supported here",
                f"body.{name}",
            )
    known = (*bodies.SAMPLING, *bodies.NEUTRAL, *bodies.LABELS, "max_completion_tokens")
    known += ("model", "messages" if url is Url.CHAT else "prompt", "outrider")
    bodies.refuse_unknown("body", body, dict.fromkeys(known))
    return body


def _category(value: JsonObject) -> str:
    """Under what the record is counted: `category` of its body's metadata, or of its own; empty if there is none."""
    body = value.get("body")
    for place, metadata in (
        ("body.metadata", body.get("metadata") if isinstance(body, dict) else None),
        ("metadata", value.get("metadata")),
    ):
        match metadata:
            case None:
                continue
            case str(category):
                return category
            case dict():
                if metadata.get("category") is not None:
                    return bodies.text(f"{place}.category", metadata["category"])
            case other:
                raise bodies.wrong(place, other, "an object or a string")
    return ""


def _check_wire(record: BatchRecord) -> None:
    """Refuses what cannot be sent as it is: a number beyond its field, an unknown verifier, a prompt too large."""
    try:
        request_to_proto(
            request_id="",
            model=record.model,
            prompt=record.prompt,
            tokens=record.tokens,
            messages=record.messages,
            sampling=record.sampling,
            speculation=record.speculation,
            resume=(),
        )
    except InvalidRequest as error:
        place = bodies.place_of(error.field)
        told, field = error.message, str(error.field)
        said = told.removeprefix(field) if told.startswith(field) else f": {told}"
        raise BadRecord("invalid_field", f"{place}{said}", place) from None


def _id_of(*parts: bytes) -> str:
    """A name of 128 bits that is the same for the same bytes."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8) + part)
    return f"batch_req_{digest.hexdigest()[:32]}"
