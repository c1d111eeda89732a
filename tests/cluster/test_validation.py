"""Checks of requests: each wrong value is refused with its code and field, and says what to do."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import grpc
import pytest

from outrider.actors.speculation.options import Speculation, Verifier
from outrider.cluster import validation
from outrider.cluster.status_codes import Refusal
from outrider.cluster.validation import Drafter, Limits, Settled
from outrider.v1 import generation_pb2, sampling_pb2

INVALID = grpc.StatusCode.INVALID_ARGUMENT
RANGE = grpc.StatusCode.OUT_OF_RANGE

LIMITS = Limits(
    model="m",
    vocab_size=100,
    max_context=50,
    eos_token_ids=frozenset({0}),
    verifiers=(Verifier.COUPLED, Verifier.EXACT_MATCH),
    drafters=(
        Drafter(name="a", verifiers=(Verifier.COUPLED,)),
        Drafter(name="b", verifiers=()),
        Drafter(name="alien", verifiers=(), mismatch="its tokenizer is another"),
    ),
    default_max_tokens=16,
    speculation=Speculation(),
    has_tokenizer=True,
    has_chat_template=True,
    max_token_chars=4,
)


def settle(limits: Limits = LIMITS, prompt_length: int = 10, **fields: Any) -> Settled:
    """Settles a request of some fields."""
    request = generation_pb2.GenerateRequest(**fields)
    return validation.settle(request, prompt_length=prompt_length, limits=limits, fresh_seed=77)


def test_an_empty_request_takes_the_defaults() -> None:
    """Absent fields change nothing; the seed is the fresh one; all drafters that fit are used."""
    settled = settle()
    assert settled.sampling.seed == 77
    assert settled.sampling.temperature == 1.0
    assert settled.sampling.top_p == 1.0
    assert settled.sampling.repetition_penalty == 1.0
    assert settled.sampling.max_tokens == 16
    assert settled.sampling.logprobs is None
    assert settled.stop_tokens == {0}
    assert settled.num_sequences == 1
    assert settled.drafters == ("a", "b")
    assert settled.speculation == Speculation()


def test_a_written_zero_is_a_zero() -> None:
    """Temperature 0, seed 0 and 0 log-probabilities are not defaults."""
    settled = settle(sampling={"temperature": 0.0, "seed": 0, "logprobs": 0})
    assert settled.sampling.temperature == 0.0
    assert settled.sampling.seed == 0
    assert settled.sampling.logprobs == 0


def test_the_default_length_is_what_the_context_leaves() -> None:
    """A long prompt shortens the default, and only the default."""
    assert settle(prompt_length=45).sampling.max_tokens == 5


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
    ({"max_tokens": 0}, RANGE, "sampling.max_tokens"),
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


SPECULATION: list[tuple[dict[str, Any], grpc.StatusCode, str]] = [
    ({"enabled": False, "drafters": ["a"]}, INVALID, "speculation.drafters"),
    ({"drafters": ["nobody"]}, grpc.StatusCode.NOT_FOUND, "speculation.drafters[0]"),
    ({"drafters": ["a", "a"]}, INVALID, "speculation.drafters[1]"),
    ({"drafters": ["alien"]}, grpc.StatusCode.FAILED_PRECONDITION, "speculation.drafters[0]"),
    (
        {"verifier": sampling_pb2.VERIFIER_EXACT_MATCH, "drafters": ["a"]},
        INVALID,
        "speculation.drafters[0]",
    ),
    ({"verifier": sampling_pb2.VERIFIER_TRAVERSAL}, INVALID, "speculation.verifier"),
    ({"verifier": 99}, INVALID, "speculation.verifier"),
    ({"max_nodes": 0}, INVALID, "speculation.max_nodes"),
    ({"max_nodes": 257}, INVALID, "speculation.max_nodes"),
    ({"max_depth": 0}, INVALID, "speculation.max_depth"),
    ({"max_depth": 65}, INVALID, "speculation.max_depth"),
    ({"tree_shape": "2,2"}, INVALID, "speculation.tree_shape"),
]


@pytest.mark.parametrize(("options", "code", "field"), SPECULATION)
def test_wrong_speculation_is_refused(
    options: dict[str, Any], code: grpc.StatusCode, field: str
) -> None:
    """Each rule of the contract holds."""
    with pytest.raises(Refusal) as refused:
        settle(speculation=options)
    assert (refused.value.code, refused.value.field) == (code, field)


TREES = replace(LIMITS, verifiers=tuple(Verifier))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"tree_shape": "2,x"}, "write the children of each level"),
        ({"tree_shape": ""}, "write the children of each level"),
        ({"tree_shape": "2,0"}, "at least 1 child"),
        ({"tree_shape": "16,16"}, "has 272 candidates; at most 256"),
        ({"tree_shape": ",".join("1" * 65)}, "at most 128 characters"),
        ({"tree_shape": "2,2", "max_nodes": 5}, "needs 6, and speculation.max_nodes is 5"),
        ({"tree_shape": "1,1", "max_depth": 1}, "needs 2, and speculation.max_depth is 1"),
        ({"tree_shape": "2,2", "verifier": sampling_pb2.VERIFIER_BLOCK}, "'block' verifies chains"),
        (
            {"tree_shape": "2", "verifier": sampling_pb2.VERIFIER_COUPLED},
            "set speculation.verifier",
        ),
    ],
)
def test_wrong_tree_shape_is_refused(options: dict[str, Any], problem: str) -> None:
    """The message says what is wrong with the shape and what would do."""
    options = {"verifier": sampling_pb2.VERIFIER_TRAVERSAL, **options}
    with pytest.raises(Refusal, match=problem) as refused:
        settle(TREES, speculation=options)
    assert (refused.value.code, refused.value.field) == (INVALID, "speculation.tree_shape")


def test_tree_shape_widens_the_defaults() -> None:
    """A shape that is larger than the default limits raises them."""
    options = {"verifier": sampling_pb2.VERIFIER_KSEQ, "tree_shape": "4,2,2"}
    speculation = settle(TREES, speculation=options).speculation
    assert (str(speculation.tree_shape), speculation.max_nodes) == ("4,2,2", 28)
    deep = {**options, "tree_shape": ",".join("1" * 9)}
    assert settle(TREES, speculation=deep).speculation.max_depth == 9


def test_refusals_list_what_there_is() -> None:
    """Known drafters and offered verifiers are named."""
    with pytest.raises(Refusal, match="known drafters: 'a', 'b', 'alien'"):
        settle(speculation={"drafters": ["nobody"]})
    with pytest.raises(Refusal, match="offered: coupled, exact_match"):
        settle(speculation={"verifier": sampling_pb2.VERIFIER_BLOCK})
    with pytest.raises(Refusal, match="known models: 'm'"):
        validation.check_model("other", LIMITS)


def test_drafters_are_taken_as_asked_and_none_without_speculation() -> None:
    """The order of the request stands; plain decoding uses nobody."""
    assert settle(speculation={"drafters": ["b", "a"]}).drafters == ("b", "a")
    assert settle(speculation={"enabled": False}).drafters == ()
    only_b = settle(speculation={"verifier": sampling_pb2.VERIFIER_EXACT_MATCH})
    assert only_b.drafters == ("b",)


RESUME: list[tuple[dict[str, Any], list[int], grpc.StatusCode, str]] = [
    ({}, [1], INVALID, "resume"),
    ({"seed": 1, "n": 2}, [1], INVALID, "resume"),
    ({"seed": 1}, [100], RANGE, "resume.ids[0]"),
    ({"seed": 1, "max_tokens": 2}, [1, 2, 3], INVALID, "resume.ids"),
]


@pytest.mark.parametrize(("options", "ids", "code", "field"), RESUME)
def test_wrong_resumption_is_refused(
    options: dict[str, Any], ids: list[int], code: grpc.StatusCode, field: str
) -> None:
    """Resuming needs a seed, one sequence, and tokens that can have been received."""
    with pytest.raises(Refusal) as refused:
        settle(sampling=options, resume={"ids": ids})
    assert (refused.value.code, refused.value.field) == (code, field)


def test_a_service_without_a_tokenizer_says_so() -> None:
    """Text, chat and stop strings are refused with a way out."""
    bare = replace(LIMITS, has_tokenizer=False, has_chat_template=False)
    chat = generation_pb2.ChatMessages(messages=[generation_pb2.ChatMessage(role="user")])
    for check in (
        lambda: validation.check_text("x", bare),
        lambda: validation.check_chat(chat, bare),
        lambda: settle(bare, sampling={"stop": ["x"]}),
    ):
        with pytest.raises(Refusal, match="tokenizer") as refused:
            check()
        assert refused.value.code is INVALID


def test_a_conversation_must_be_one() -> None:
    """A template is needed, turns, and a speaker for each."""
    no_template = replace(LIMITS, has_chat_template=False)
    turns = generation_pb2.ChatMessages(
        messages=[
            generation_pb2.ChatMessage(role="user", content="hi"),
            generation_pb2.ChatMessage(content="who says this?"),
        ]
    )
    with pytest.raises(Refusal, match="chat needs a chat template"):
        validation.check_chat(turns, no_template)
    with pytest.raises(Refusal, match=r"chat\.messages\[1\]\.role is empty"):
        validation.check_chat(turns, LIMITS)
    with pytest.raises(Refusal, match=r"chat\.messages must hold 1 to"):
        validation.check_chat(generation_pb2.ChatMessages(), LIMITS)


def test_prompts_must_fit() -> None:
    """Empty, too long, and with an id that does not exist."""
    with pytest.raises(Refusal, match=r"tokens\.ids is empty"):
        validation.check_prompt([], LIMITS, "tokens.ids")
    with pytest.raises(Refusal, match="50 tokens long, but the context of 'm' holds 50") as refused:
        validation.check_prompt([1] * 50, LIMITS, "text")
    assert refused.value.code is RANGE
    with pytest.raises(Refusal, match=r"tokens\.ids\[1\] is 100, outside the vocabulary"):
        validation.check_prompt([99, 100], LIMITS, "tokens.ids")
    validation.check_prompt([1] * 49, LIMITS, "text")


def test_hopeless_text_is_refused_before_it_is_tokenised() -> None:
    """A token stands for so many characters at most, so length alone can tell."""
    with pytest.raises(Refusal, match="at least 51 tokens long") as refused:
        validation.check_text("x" * 201, LIMITS)
    assert refused.value.code is RANGE
    validation.check_text("x" * 200, LIMITS)
    validation.check_text("x" * 201, replace(LIMITS, max_token_chars=None))


@pytest.mark.parametrize("name", ["a b", "ä", "x" * 129, "a\n", "a/b"])
def test_wrong_request_ids_are_refused(name: str) -> None:
    """Only what the contract allows."""
    with pytest.raises(Refusal, match="request_id must be"):
        validation.check_request_id(name)


@pytest.mark.parametrize("name", ["", "a", "A.b_c:d-9", "x" * 128])
def test_right_request_ids_pass(name: str) -> None:
    """Everything that the contract allows."""
    validation.check_request_id(name)
