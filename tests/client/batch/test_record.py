"""Lines of the input: what they ask for, and what is refused."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
from tests.client.batch.lines import chat, completion, encode

from outrider.client.batch.body import SPECULATION, place_of
from outrider.client.batch.record import MAX_SEED, BatchRecord, Rejection, Url, parse, seed_of
from outrider.client.messages.request_options import Message, SpeculationOptions, Verifier

HUGE = 10**400
"""A number that JSON can say, and no float or field can hold."""


def record_of(value: object, **options: Any) -> BatchRecord:
    """The record that a line is."""
    entry = parse(3, encode(value), **options)
    assert isinstance(entry, BatchRecord), entry
    return entry


def rejection_of(value: object) -> Rejection:
    """Why a line is refused."""
    entry = parse(3, value if isinstance(value, bytes) else encode(value))
    assert isinstance(entry, Rejection), entry
    return entry


def test_every_sampling_option_arrives() -> None:
    """What the body says is what is sent."""
    options = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 4,
        "min_p": 0.1,
        "repetition_penalty": 1.1,
        "presence_penalty": 1,
        "frequency_penalty": -1.5,
        "seed": 7,
        "max_tokens": 9,
        "min_tokens": 2,
        "ignore_eos": True,
        "n": 2,
    }
    record = record_of(
        completion("a", **options, stop="x", stop_token_ids=[4, 5], logit_bias={"42": -100})
    )
    assert record.url is Url.COMPLETIONS
    assert {name: getattr(record.sampling, name) for name in options} == options
    assert record.sampling.stop == ("x",)
    assert record.sampling.stop_token_ids == (4, 5)
    assert record.sampling.logit_bias == {42: -100}
    assert record_of(completion("a", stop=["x", "y"])).sampling.stop == ("x", "y")


def test_chat_messages() -> None:
    """Roles and texts arrive; parts of text are joined; `max_completion_tokens` is `max_tokens`."""
    parts = [{"type": "text", "text": "Wo ist "}, {"type": "text", "text": "der Bahnhof?"}]
    messages = [
        {"role": "system", "content": "kurz", "name": None},
        {"role": "user", "content": parts},
    ]
    record = record_of(chat("a", messages=messages, max_tokens=None, max_completion_tokens=5))
    assert record.messages == (Message("system", "kurz"), Message("user", "Wo ist der Bahnhof?"))
    assert record.prompt is None
    assert record.sampling.max_tokens == 5


def test_prompts() -> None:
    """A text, a list of one text, or token ids."""
    assert record_of(completion("a", "once")).prompt == "once"
    assert record_of(completion("a", ["once"])).prompt == "once"
    assert record_of(completion("a", [1, 2])).tokens == (1, 2)


def test_speculation() -> None:
    """`body.outrider` says how to be fast."""
    ours = {
        "enabled": True,
        "verifier": "block",
        "drafters": ["small"],
        "max_depth": 3,
        "roots": None,
    }
    speculation = record_of(completion("a", outrider=ours)).speculation
    assert speculation.enabled
    assert speculation.verifier == Verifier.BLOCK
    assert speculation.drafters == ("small",)
    assert speculation.max_depth == 3
    assert speculation.roots is None


def test_everything_of_speculation_can_be_asked_for() -> None:
    """A record can say what any other request can; names and numbers are an object."""
    assert set(SPECULATION) == {field.name for field in fields(SpeculationOptions)}
    ours = {
        "verifier": "typical",
        "verifier_options": {"epsilon": 0.2, "delta": 1},
        "selector": "ucb",
        "selector_options": {"prior": 0},
        "drafters_at_work": 2,
    }
    speculation = record_of(completion("a", outrider=ours)).speculation
    assert speculation.verifier_options == {"epsilon": 0.2, "delta": 1}
    assert (speculation.selector, speculation.selector_options) == ("ucb", {"prior": 0})
    assert speculation.drafters_at_work == 2
    entry = parse(3, encode(completion("a", outrider={"selector_options": {"prior": "x"}})))
    assert isinstance(entry, Rejection)
    assert entry.problem.field == "body.outrider.selector_options.prior"


@pytest.mark.parametrize(
    ("field", "place"),
    [
        ("sampling.top_p", "body.top_p"),
        ("speculation.verifier_options", "body.outrider.verifier_options"),
        ("speculation.verifier_name", "body.outrider.verifier"),
        ("tokens[3]", "body.prompt[3]"),
        ("tokens.ids[3]", "body.prompt[3]"),
        ("text", "body.prompt"),
        ("chat", "body.messages"),
        ("chat.messages[2].role", "body.messages[2].role"),
        (None, None),
    ],
)
def test_a_fault_is_told_where_the_record_has_it(field: str | None, place: str | None) -> None:
    """Whatever the service calls it."""
    assert place_of(field) == place


def test_neutral_values_are_taken() -> None:
    """A field without effect here is taken with the value that asks for nothing, and so are null and labels."""
    record_of(
        completion(
            "a",
            stream=False,
            echo=False,
            best_of=1,
            suffix=None,
            logprobs=None,
            tools=None,
            user="me",
            response_format={"type": "text"},
        )
    )


@pytest.mark.parametrize(
    "field",
    [
        {"tools": []},
        {"stream": True},
        {"logprobs": 0},
        {"logprobs": True},
        {"echo": True},
        {"best_of": 2},
        {"best_of": True},
        {"response_format": {"type": "json_object"}},
        {"temprature": 1},
        {"outrider": {"verifyer": "block"}},
        {"extra_body": {"top_k": 1}},
        {"prompt": ["one", "two"]},
        {"prompt": [[1, 2]]},
    ],
)
def test_unsupported_fields_are_refused_by_name(field: dict[str, Any]) -> None:
    """Nothing that was asked for is ignored."""
    rejection = rejection_of(
        completion("a", **field) if "prompt" not in field else completion("a", field["prompt"])
    )
    assert rejection.problem.code == "unsupported_field"
    assert rejection.custom_id == "a"
    assert f"body.{next(iter(field))}" in str(rejection.problem.field)
    assert rejection.problem.message.startswith("line 3: ")


@pytest.mark.parametrize(
    "field",
    [
        {"temperature": "0.5"},
        {"temperature": True},
        {"max_tokens": 1.5},
        {"max_tokens": -1},
        {"seed": -1},
        {"seed": 2**64},
        {"n": "2"},
        {"stop": [1]},
        {"stop_token_ids": 4},
        {"logit_bias": {"x": 1}},
        {"logit_bias": {"1": "2"}},
        {"logit_bias": {"1": 2, "01": 3}},
        {"ignore_eos": 1},
        {"outrider": []},
        {"outrider": {"draft_length": "magic"}},
        {"outrider": {"max_depth": "3"}},
        {"model": 5},
        {"metadata": 5},
        {"metadata": {"category": 5}},
        {"max_completion_tokens": 5},
        {"temperature": HUGE},
        {"max_tokens": HUGE},
        {"seed": -HUGE},
        {"n": HUGE},
        {"stop_token_ids": [1, HUGE]},
        {"logit_bias": {"9" * 5000: 1}},
        {"logit_bias": {"1": HUGE}},
        {"outrider": {"aggressiveness": HUGE}},
        {"outrider": {"max_nodes": HUGE}},
    ],
)
def test_values_of_another_kind_are_refused_by_name(field: dict[str, Any]) -> None:
    """Before anything is sent."""
    rejection = rejection_of(completion("a", **field))
    assert rejection.problem.code == "invalid_field"
    assert next(iter(field)) in rejection.problem.message
    assert len(rejection.problem.message) < 200, "a line, whatever the value"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"custom_id": None}, "missing_custom_id"),
        ({"custom_id": 7}, "missing_custom_id"),
        ({"custom_id": ""}, "missing_custom_id"),
        ({"url": "/v1/embeddings"}, "unknown_url"),
        ({"url": None}, "unknown_url"),
        ({"method": "GET"}, "invalid_method"),
        ({"body": "hi"}, "invalid_field"),
        ({"body": {"model": "demo"}}, "invalid_field"),
        ({"body": {"messages": "hi"}, "url": "/v1/chat/completions"}, "invalid_field"),
        ({"body": {"messages": []}, "url": "/v1/chat/completions"}, "invalid_field"),
        ({"body": {"messages": ["hi"]}, "url": "/v1/chat/completions"}, "invalid_field"),
        ({"priority": 1}, "unsupported_field"),
    ],
)
def test_records_of_another_shape_are_refused(change: dict[str, Any], code: str) -> None:
    """With a code for each cause."""
    assert rejection_of(completion("a") | change).problem.code == code


@pytest.mark.parametrize(
    "raw",
    [
        b"{",
        b'{"custom_id": "a"',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"custom_id": "a", "custom_id": "b"}',
        b'{"custom_id": "a", "x": NaN}',
        b'{"custom_id": ' + b"9" * 5000 + b"}",
        b'{"custom_id": "a", "x": -' + b"9" * 5000 + b"}",
    ],
)
def test_lines_that_are_no_json(raw: bytes) -> None:
    """They have an answer without a custom_id."""
    rejection = rejection_of(raw)
    assert rejection.problem.code == "invalid_json"
    assert rejection.custom_id is None


def test_prompt_and_messages_together_are_refused() -> None:
    """One of them would be ignored."""
    assert rejection_of(chat("a", prompt="hi")).problem.field == "body.prompt"
    assert rejection_of(completion("a", messages=[])).problem.field == "body.messages"


def test_seed_follows_from_the_name() -> None:
    """A record without a seed has always the same one, and another record another."""
    seeds = [record_of(completion(f"r{number}")).sampling.seed for number in range(100)]
    assert seeds == [seed_of(f"r{number}") for number in range(100)]
    assert len(set(seeds)) == 100
    assert all(seed is not None and 0 <= seed < MAX_SEED for seed in seeds)
    assert seed_of("r0") == 1245160904294446


def test_id_follows_from_the_record() -> None:
    """The same record has the same id wherever it stands and however it is spelled; another has another."""
    one = completion("a", temperature=0.5)
    same = json.dumps(dict(reversed(one.items())), indent=1).replace("\n", "").encode()
    assert parse(9, same).id == record_of(one).id
    assert record_of(completion("a", temperature=0.6)).id != record_of(one).id
    assert record_of(completion("b", temperature=0.5)).id != record_of(one).id
    assert record_of(one, model="other").id != record_of(one).id


def test_model_of_a_record_that_names_none() -> None:
    """Is the command's."""
    value = completion("a")
    del value["body"]["model"]
    assert record_of(value).model == ""
    assert record_of(value, model="small").model == "small"
    assert record_of(completion("a"), model="small").model == "demo"


@pytest.mark.parametrize(
    ("value", "category"),
    [
        (completion("a"), ""),
        (completion("a", metadata={"category": "code", "x": "y"}), "code"),
        (completion("a", metadata={}) | {"metadata": {"category": "prose"}}, "prose"),
        (completion("a") | {"metadata": "sums"}, "sums"),
    ],
)
def test_category(value: object, category: str) -> None:
    """Of the body's metadata, or the record's own."""
    assert record_of(value).category == category
