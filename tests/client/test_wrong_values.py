"""Values of the wrong kind, in every place that takes one: an error of ours that names the field, before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from outrider.client import (
    AsyncClient,
    Client,
    InvalidRequest,
    Message,
    RetryPolicy,
    SamplingOptions,
    SpeculationOptions,
    Tls,
)

if TYPE_CHECKING:
    from tests.client.conftest import FakeService

HUGE = 10**400
"""A number that no field can hold, and no float either."""


def sampling(**wrong: Any) -> SamplingOptions:
    """Options as a program without a type checker makes them."""
    return SamplingOptions(**wrong)


def speculation(**wrong: Any) -> SpeculationOptions:
    """The same."""
    return SpeculationOptions(**wrong)


def turn(*wrong: Any) -> Message:
    """The same."""
    return Message(*wrong)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({}, "prompt"),
        ({"prompt": "a", "tokens": [1]}, "tokens"),
        ({"prompt": "\ud800"}, "prompt"),
        ({"tokens": [-1]}, "tokens"),
        ({"prompt": "a", "sampling": sampling(top_k=-1)}, "sampling.top_k"),
        ({"prompt": "a", "sampling": sampling(seed=2**64)}, "sampling.seed"),
        ({"prompt": "a", "sampling": sampling(temperature=True)}, "sampling.temperature"),
        ({"prompt": "a", "sampling": sampling(logit_bias={5: True})}, "sampling.logit_bias"),
        ({"prompt": "a", "speculation": speculation(max_nodes=-1)}, "speculation.max_nodes"),
        ({"prompt": "a" * (5 << 20)}, "prompt"),
        ({"prompt": "a", "timeout_s": 0.0}, "timeout_s"),
        ({"prompt": "a", "timeout_s": float("nan")}, "timeout_s"),
        ({"prompt": "a", "timeout_s": "5"}, "timeout_s"),
        ({"prompt": "a", "timeout_s": HUGE}, "timeout_s"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": b"a"}, "prompt"),
        ({"prompt": "a", "model": None}, "model"),
        ({"prompt": "a", "request_id": 0}, "request_id"),
        ({"prompt": "a", "resume": 5}, "resume"),
        ({"tokens": "12"}, "tokens"),
        ({"tokens": b"12"}, "tokens"),
        ({"tokens": {1, 2}}, "tokens"),
        ({"tokens": {1: 2}}, "tokens"),
        ({"tokens": [1, 10**5000]}, "tokens"),
        ({"messages": "hi"}, "messages"),
        ({"messages": 5}, "messages"),
        ({"messages": [{"role": "user", "content": "a"}]}, "messages[0]"),
        ({"messages": [turn("user", None)]}, "messages[0].content"),
        ({"messages": [turn("user", b"a")]}, "messages[0].content"),
        ({"messages": [turn("user", "a"), turn(None, "a")]}, "messages[1].role"),
        ({"prompt": "a", "sampling": {"temperature": 1}}, "sampling"),
        ({"prompt": "a", "sampling": speculation()}, "sampling"),
        ({"prompt": "a", "speculation": {}}, "speculation"),
        ({"prompt": "a", "speculation": sampling()}, "speculation"),
        ({"prompt": "a", "sampling": sampling(temperature=HUGE)}, "sampling.temperature"),
        ({"prompt": "a", "sampling": sampling(temperature=[1])}, "sampling.temperature"),
        ({"prompt": "a", "sampling": sampling(seed={1: 2})}, "sampling.seed"),
        ({"prompt": "a", "sampling": sampling(logit_bias=[1, 2])}, "sampling.logit_bias"),
        ({"prompt": "a", "sampling": sampling(logit_bias={1: HUGE})}, "sampling.logit_bias"),
        ({"prompt": "a", "sampling": sampling(stop=5)}, "sampling.stop"),
        ({"prompt": "a", "sampling": sampling(stop=[b"a"])}, "sampling.stop"),
        (
            {"prompt": "a", "sampling": sampling(stop_token_ids=b"a")},
            "sampling.stop_token_ids",
        ),
        ({"prompt": "a", "sampling": sampling(ignore_eos="no")}, "sampling.ignore_eos"),
        ({"prompt": "a", "speculation": speculation(verifier=[1])}, "speculation.verifier"),
        (
            {"prompt": "a", "speculation": speculation(draft_length=[1])},
            "speculation.draft_length",
        ),
        (
            {"prompt": "a", "speculation": speculation(drafters={"a": 1})},
            "speculation.drafters",
        ),
        (
            {"prompt": "a", "speculation": speculation(verifier_options=["a"])},
            "speculation.verifier_options",
        ),
    ],
)
def test_what_the_wire_cannot_carry_is_refused_here(
    fake: FakeService, arguments: dict[str, object], field: str
) -> None:
    """Such a request names the field and never leaves."""
    with Client(fake.address) as client, pytest.raises(InvalidRequest) as caught:
        client.stream(**arguments)  # type: ignore[arg-type]  # arguments of every type, on purpose
    assert caught.value.field == field
    assert field in str(caught.value)
    assert fake.requests == []


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"address": None}, "address"),
        ({"address": 5}, "address"),
        ({"address": b"a:1"}, "address"),
        ({"address": ["a:1", 5]}, "address"),
        ({"address": {"a:1": 1}}, "address"),
        ({"address": "a\ud800:1"}, "address"),
        ({"address": "unix:a\0b"}, "address"),
        ({"address": "a:" + "9" * 5000}, "address"),
        ({"token": b"secret"}, "token"),
        ({"token": 5}, "token"),
        ({"tls": "yes"}, "tls"),
        ({"tls": True}, "tls"),
        ({"tls": Tls(ca=5)}, "tls.ca"),  # type: ignore[arg-type]
        ({"tls": Tls(ca="a\0b")}, "tls"),
        ({"tls": Tls(server_name=5)}, "tls.server_name"),  # type: ignore[arg-type]
        ({"retry": "often"}, "retry"),
        ({"retry": 0}, "retry"),
        ({"timeout_s": None}, "timeout_s"),
        ({"timeout_s": True}, "timeout_s"),
        ({"connect_timeout_s": [1]}, "connect_timeout_s"),
    ],
)
def test_clients(kind: Callable[..., object], arguments: dict[str, object], field: str) -> None:
    """Neither is made. A token is not shown."""
    with pytest.raises(InvalidRequest) as caught:
        kind(**arguments)
    assert caught.value.field == field
    assert "secret" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("open_attempts", "3"),
        ("open_attempts", 1.5),
        ("patience_s", None),
        ("max_backoff_s", HUGE),
        ("initial_backoff_s", float("nan")),
    ],
)
def test_retries(field: str, value: Any) -> None:
    """No bound is taken that is none."""
    with pytest.raises(InvalidRequest) as caught:
        RetryPolicy(**{field: value})
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda client: client.abort(5), "request_id"),
        (lambda client: client.abort(None), "request_id"),
        (lambda client: client.abort("a", timeout_s="x"), "timeout_s"),
        (lambda client: client.health(5), "service"),
        (lambda client: client.models(timeout_s="x"), "timeout_s"),
        (lambda client: client.tokenize(5), "text"),
        (lambda client: client.tokenize(b"a"), "text"),
        (lambda client: client.tokenize("a", add_special_tokens="no"), "add_special_tokens"),
        (lambda client: client.detokenize("12"), "ids"),
        (lambda client: client.detokenize(None), "ids"),
        (lambda client: client.detokenize([1], skip_special_tokens="no"), "skip_special_tokens"),
    ],
)
def test_short_calls(fake: FakeService, call: Callable[[Client], object], field: str) -> None:
    """Nobody is asked."""
    with Client(fake.address) as client, pytest.raises(InvalidRequest) as caught:
        call(client)
    assert caught.value.field == field
    assert fake.aborted == []
