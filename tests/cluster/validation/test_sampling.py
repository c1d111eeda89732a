"""Sampling options: each wrong value is refused with its code and field, and says what to do."""

from __future__ import annotations

import math
from typing import Any

import grpc
import pytest
from tests.cluster.validation.cases import INVALID, RANGE, settle

from outrider.cluster.validation.status_codes import Refusal

WRONG: list[tuple[dict[str, Any], grpc.StatusCode, str]] = [
    ({"temperature": -0.1}, INVALID, "sampling.temperature"),
    ({"temperature": math.nan}, INVALID, "sampling.temperature"),
    ({"temperature": math.inf}, INVALID, "sampling.temperature"),
    ({"temperature": 100.5}, INVALID, "sampling.temperature"),
    ({"top_p": 0.0}, INVALID, "sampling.top_p"),
    ({"top_p": 1.5}, INVALID, "sampling.top_p"),
    ({"top_p": math.nan}, INVALID, "sampling.top_p"),
    ({"min_p": -0.5}, INVALID, "sampling.min_p"),
    ({"min_p": 1.5}, INVALID, "sampling.min_p"),
    ({"repetition_penalty": 0.0}, INVALID, "sampling.repetition_penalty"),
    ({"repetition_penalty": 11.0}, INVALID, "sampling.repetition_penalty"),
    ({"presence_penalty": 2.5}, INVALID, "sampling.presence_penalty"),
    ({"frequency_penalty": -math.inf}, INVALID, "sampling.frequency_penalty"),
    ({"logit_bias": {5: math.nan}}, INVALID, "sampling.logit_bias[5]"),
    ({"logit_bias": {5: 101.0}}, INVALID, "sampling.logit_bias[5]"),
    ({"logit_bias": {100: 1.0}}, RANGE, "sampling.logit_bias[100]"),
    ({"logit_bias": dict.fromkeys(range(100), -100.0)}, INVALID, "sampling.logit_bias"),
    ({"logit_bias": dict.fromkeys(range(1025), 0.0)}, INVALID, "sampling.logit_bias"),
    (
        {
            "logit_bias": dict.fromkeys(range(2, 100), -100.0),
            "stop_token_ids": [1],
            "min_tokens": 1,
        },
        INVALID,
        "sampling.logit_bias",
    ),
    ({"max_tokens": 0}, INVALID, "sampling.max_tokens"),
    ({"max_tokens": 41}, RANGE, "sampling.max_tokens"),
    ({"max_tokens": 2**32 - 1}, RANGE, "sampling.max_tokens"),
    ({"min_tokens": 5, "max_tokens": 4}, INVALID, "sampling.min_tokens"),
    ({"stop": [""]}, INVALID, "sampling.stop[0]"),
    ({"stop": ["ok", "x" * 257]}, INVALID, "sampling.stop[1]"),
    ({"stop": ["x"] * 17}, INVALID, "sampling.stop"),
    ({"stop_token_ids": [1] * 65}, INVALID, "sampling.stop_token_ids"),
    ({"stop_token_ids": [1, 100]}, RANGE, "sampling.stop_token_ids[1]"),
    ({"ignore_eos": True, "stop_token_ids": [0]}, INVALID, "sampling.ignore_eos"),
    ({"logprobs": 21}, INVALID, "sampling.logprobs"),
    ({"n": 0}, INVALID, "sampling.n"),
    ({"n": 17}, INVALID, "sampling.n"),
]


@pytest.mark.parametrize(("options", "code", "field"), WRONG)
def test_wrong_sampling_is_refused(
    options: dict[str, Any], code: grpc.StatusCode, field: str
) -> None:
    """Each rule of the contract holds, and the refusal begins with the field."""
    with pytest.raises(Refusal) as refused:
        settle(sampling=options)
    assert (refused.value.code, refused.value.field) == (code, field)
    assert refused.value.message.startswith(field + " ")


def test_the_message_says_the_rule_and_the_value() -> None:
    """As the client wrote it."""
    with pytest.raises(Refusal) as refused:
        settle(sampling={"top_p": 1.5})
    assert refused.value.message == "sampling.top_p must be in (0, 1], got 1.5"
    with pytest.raises(Refusal) as refused:
        settle(sampling={"n": 2**32 - 1})
    assert refused.value.message == "sampling.n must be 1 to 16, got 4294967295"


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.0},
        {"temperature": 100.0},
        {"top_p": 1.0},
        {"min_p": 1.0},
        {"repetition_penalty": 10.0},
        {"presence_penalty": -2.0},
        {"frequency_penalty": 2.0},
        {"max_tokens": 40},
        {"n": 16},
        {"logprobs": 20},
        {"stop": ["x" * 256] * 16},
    ],
)
def test_bounds_belong_to_what_is_allowed(options: dict[str, Any]) -> None:
    """The extreme allowed values pass."""
    settle(sampling=options)
