"""One line of the output: made of what the service said, and read again. Pure.

The shape is that of OpenAI's batches. A failed record has `error` set in any case, and `response` too if the service was
asked; statistics of ours are in `response.body.outrider`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from outrider.client.batch.body import place_of
from outrider.client.batch.record import BatchRecord, Entry, Rejection, Url
from outrider.client.connection.errors import (
    AlreadyRunning,
    Cancelled,
    DeadlineExceeded,
    InvalidRequest,
    ModelExchanged,
    NotFound,
    OutriderError,
    Overloaded,
    ServiceError,
    Unauthorized,
    Unavailable,
)
from outrider.client.measuring.figures import total_stats
from outrider.client.messages.results import FinishReason, Generation, Output, SpeculationStats

LINE_BEGINS = b'{"id": "batch_req_'
"""Every line begins so: a torn last line is told from a file of somebody else's."""

STATUS_BY_ERROR: dict[type[OutriderError], tuple[int, str]] = {
    InvalidRequest: (400, "invalid_request"),
    Unauthorized: (401, "unauthorized"),
    NotFound: (404, "not_found"),
    AlreadyRunning: (409, "already_running"),
    ModelExchanged: (412, "model_exchanged"),
    Overloaded: (429, "overloaded"),
    Cancelled: (499, "cancelled"),
    ServiceError: (500, "service_error"),
    Unavailable: (503, "unavailable"),
    DeadlineExceeded: (504, "timeout"),
}
"""HTTP status and code of each error of the client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a line of the output says."""

    id: str
    custom_id: str | None
    error_code: str | None
    """None if the record succeeded."""

    category: str = ""
    model: str = ""
    fingerprint: str = ""
    """Of the model."""

    texts: tuple[str, ...] = ()
    """One for each choice."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    stats: SpeculationStats = field(default_factory=SpeculationStats)
    """Of all choices together."""


def success(record: BatchRecord, generation: Generation, *, created: int) -> bytes:
    """The line of a record that succeeded.

    Args:
        record: What was asked.
        generation: What came.
        created: Unix time, seconds.
    """
    is_chat = record.url is Url.CHAT
    prompt_tokens = generation.admission.prompt_tokens
    completed = [output.completion for output in generation.outputs]
    completion_tokens = sum(completion.usage.completion_tokens for completion in completed)
    kind = "chatcmpl" if is_chat else "cmpl"
    body = {
        "id": f"{kind}-{generation.admission.request_id}",
        "object": "chat.completion" if is_chat else "text_completion",
        "created": created,
        "model": generation.admission.model,
        "system_fingerprint": generation.admission.model_fingerprint or None,
        "choices": [_choice(record, output) for output in generation.outputs],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
            "prompt_tokens_details": {"cached_tokens": completed[0].usage.cached_tokens},
        },
        "outrider": {
            **_label(record),
            "seed": generation.admission.seed,
            "queue_s": max(completion.timing.queue_s for completion in completed),
            "first_token_s": min(completion.timing.first_token_s for completion in completed),
            "total_s": max(completion.timing.total_s for completion in completed),
            "speculation": asdict(
                total_stats([completion.speculation for completion in completed])
            ),
        },
    }
    return _line(record, _response(200, generation.admission.request_id, body), None)


def failure(record: BatchRecord, error: OutriderError) -> bytes:
    """The line of a record that the service refused, or could not do."""
    status, code = next(
        (entry for kind, entry in STATUS_BY_ERROR.items() if isinstance(error, kind)),
        (500, "service_error"),
    )
    body = {
        "error": {
            "message": error.message,
            "type": code,
            "param": place_of(error.field),
            "code": code,
        },
        "outrider": _label(record),
    }
    return _line(
        record,
        _response(status, error.request_id, body),
        {"code": code, "message": error.message},
    )


def rejection(entry: Rejection) -> bytes:
    """The line of a record that was never sent."""
    problem = entry.problem
    return _line(entry, None, {"code": problem.code, "message": problem.message})


def read(raw: bytes) -> Answer:
    """What a whole line of the output says.

    Raises:
        ValueError: It is no line of ours.
    """
    try:
        value = json.loads(raw)
        error, response = value["error"], value["response"]
        body = response["body"] if response is not None else {}
        ours = body.get("outrider", {})
        if error is not None:
            return Answer(
                id=value["id"],
                custom_id=value["custom_id"],
                error_code=error["code"],
                category=ours.get("category", ""),
            )
        return Answer(
            id=value["id"],
            custom_id=value["custom_id"],
            error_code=None,
            category=ours.get("category", ""),
            model=body["model"],
            fingerprint=body["system_fingerprint"] or "",
            texts=tuple(_text(choice) for choice in body["choices"]),
            prompt_tokens=body["usage"]["prompt_tokens"],
            completion_tokens=body["usage"]["completion_tokens"],
            stats=_stats(ours["speculation"]),
        )
    except (KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise ValueError(f"it has another shape: {type(problem).__name__} {problem}") from None


def _line(entry: Entry, response: object, error: object) -> bytes:
    """One line. ASCII, so that nothing in a text can look like the end of a line."""
    value = {
        "id": entry.id,
        "custom_id": entry.custom_id,
        "response": response,
        "error": error,
    }
    return json.dumps(value).encode() + b"\n"


def _response(status: int, request_id: str | None, body: object) -> dict[str, object]:
    return {"status_code": status, "request_id": request_id or "", "body": body}


def _label(record: BatchRecord) -> dict[str, object]:
    return {"category": record.category} if record.category else {}


def _choice(record: BatchRecord, output: Output) -> dict[str, object]:
    """One sequence, as a choice."""
    said: dict[str, object]
    if record.url is Url.CHAT:
        said = {"message": {"role": "assistant", "content": output.text, "refusal": None}}
    else:
        said = {"text": output.text}
    is_length = output.completion.finish_reason is FinishReason.LENGTH
    return {
        "index": output.index,
        **said,
        "logprobs": None,
        "finish_reason": "length" if is_length else "stop",
        "stop_reason": _stop_reason(record, output),
    }


def _stop_reason(record: BatchRecord, output: Output) -> str | int | None:
    """The stop string or the stop token that ended a sequence, as vLLM tells it; None at the end of text."""
    completion = output.completion
    match completion.finish_reason:
        case FinishReason.STOP_STRING:
            return completion.stop
        case FinishReason.STOP_TOKEN if completion.stop in map(str, record.sampling.stop_token_ids):
            return int(completion.stop)
        case _:
            return None


def _text(choice: dict[str, Any]) -> str:
    said = choice["message"]["content"] if "message" in choice else choice["text"]
    return str(said)


def _stats(value: dict[str, Any]) -> SpeculationStats:
    """Statistics as they were written; lists were tuples."""
    known: dict[str, Any] = {
        name: tuple(entry) if isinstance(entry, list) else entry for name, entry in value.items()
    }
    return SpeculationStats(**known)
