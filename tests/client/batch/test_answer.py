"""Lines of the output: written, and read again."""

from __future__ import annotations

import json

import pytest
from tests.client.batch.lines import completion, encode

from outrider.client import (
    Admission,
    Completion,
    FinishReason,
    Generation,
    Output,
    OutriderError,
    SpeculationStats,
    Timing,
    Usage,
)
from outrider.client.batch import answer
from outrider.client.batch.record import BatchRecord, parse
from outrider.client.connection.errors import ERROR_BY_CODE

STATS = SpeculationStats(
    rounds=3,
    plain_passes=1,
    verified=9,
    accepted=4,
    reached_by_depth=(3, 2),
    accepted_by_depth=(3, 1),
    mean_tokens_per_pass=2.0,
    near_ties=1,
)


def record_of(**body: object) -> BatchRecord:
    """A record."""
    entry = parse(1, encode(completion("a", **body)))
    assert isinstance(entry, BatchRecord)
    return entry


def generation(reason: FinishReason, stop: str = "", *, count: int = 1) -> Generation:
    """What a service could say."""
    outputs = tuple(
        Output(
            index=index,
            text=f"é\u2028{index}\n",
            tokens=(),
            completion=Completion(
                index=index,
                finish_reason=reason,
                stop=stop,
                usage=Usage(prompt_tokens=5, completion_tokens=8, cached_tokens=2),
                speculation=STATS,
                timing=Timing(queue_s=0.1, first_token_s=0.2, total_s=0.5 + index),
            ),
        )
        for index in range(count)
    )
    admission = Admission(
        request_id="r-1", model="demo", seed=7, prompt_tokens=5, model_fingerprint="f00d"
    )
    return Generation(admission=admission, outputs=outputs)


def line_of(record: BatchRecord, made: Generation) -> bytes:
    """The line of a success."""
    return answer.success(record, made, created=1)


def test_what_is_written_is_read() -> None:
    """Texts of any characters, counts over all choices, statistics of both."""
    record = record_of(n=2, metadata={"category": "code"})
    raw = line_of(record, generation(FinishReason.LENGTH, count=2))
    assert raw.startswith(answer.LINE_BEGINS)
    assert raw.count(b"\n") == 1
    found = answer.read(raw)
    assert (found.id, found.custom_id, found.error_code) == (record.id, "a", None)
    assert (found.category, found.model, found.fingerprint) == ("code", "demo", "f00d")
    assert found.texts == ("é\u20280\n", "é\u20281\n")
    assert (found.prompt_tokens, found.completion_tokens) == (5, 16)
    assert (found.stats.accepted, found.stats.rounds, found.stats.near_ties) == (8, 6, 2)
    assert found.stats.accepted_by_depth == (6, 2)
    assert found.stats.mean_tokens_per_pass == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("reason", "stop", "finish", "stop_reason"),
    [
        (FinishReason.LENGTH, "", "length", None),
        (FinishReason.STOP_STRING, "END", "stop", "END"),
        (FinishReason.STOP_TOKEN, "4", "stop", 4),
        (FinishReason.STOP_TOKEN, "0", "stop", None),
    ],
)
def test_why_a_choice_ended(
    reason: FinishReason, stop: str, finish: str, stop_reason: object
) -> None:
    """In OpenAI's words, with the cause as vLLM gives it."""
    raw = line_of(record_of(stop="END", stop_token_ids=[4]), generation(reason, stop))
    choice = json.loads(raw)["response"]["body"]["choices"][0]
    assert (choice["finish_reason"], choice["stop_reason"]) == (finish, stop_reason)


@pytest.mark.parametrize("kind", sorted(set(ERROR_BY_CODE.values()), key=str))
def test_every_error_has_a_status_and_a_code(kind: type[OutriderError]) -> None:
    """A failed record says why in both places where readers look."""
    line = json.loads(answer.failure(record_of(), kind("so it is", request_id="r-1")))
    status, code = answer.STATUS_BY_ERROR[kind]
    assert line["error"] == {"code": code, "message": "so it is"}
    assert line["response"]["status_code"] == status >= 400
    assert line["response"]["body"]["error"]["message"] == "so it is"
    assert answer.read(json.dumps(line).encode()).error_code == code


@pytest.mark.parametrize(
    "raw", [b"", b"1", b"{}", b'{"id": 1}', b'{"error": null, "response": {}}']
)
def test_lines_of_others_are_not_read(raw: bytes) -> None:
    """They are a `ValueError`, whatever they are."""
    with pytest.raises(ValueError, match=r"another shape|Expecting value"):
        answer.read(raw)
