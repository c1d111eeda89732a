"""Dataclasses to messages and back."""

from __future__ import annotations

from dataclasses import fields

import pytest

from outrider.client import wire
from outrider.client.errors import InvalidRequest
from outrider.client.options import (
    DraftLength,
    Message,
    Roots,
    SamplingOptions,
    SpeculationOptions,
    TreeMask,
    Verifier,
)
from outrider.client.results import Admission, Completion, FinishReason, Origin, TextChunk
from outrider.v1 import generation_pb2, sampling_pb2

FULL_SAMPLING = SamplingOptions(
    temperature=0.5,
    top_p=0.25,
    top_k=3,
    min_p=0.125,
    repetition_penalty=1.5,
    presence_penalty=-0.5,
    frequency_penalty=0.75,
    logit_bias={7: -1.5},
    seed=2**64 - 1,
    max_tokens=5,
    min_tokens=2,
    stop=("a", "b"),
    stop_token_ids=(8, 9),
    ignore_eos=True,
    logprobs=0,
    n=2,
)


def test_each_sampling_field_is_sent() -> None:
    """Every option of the contract exists here under its name and reaches the message unchanged."""
    message = wire.sampling_to_proto(FULL_SAMPLING)
    names = {field.name for field in sampling_pb2.SamplingOptions.DESCRIPTOR.fields}
    assert names == {field.name for field in fields(SamplingOptions)}
    for name in names - {"logit_bias", "stop", "stop_token_ids"}:
        assert message.HasField(name)  # type: ignore[arg-type]  # a name from the contract
        assert getattr(FULL_SAMPLING, name) == getattr(message, name)
    assert dict(message.logit_bias) == {7: -1.5}
    assert list(message.stop) == ["a", "b"]
    assert list(message.stop_token_ids) == [8, 9]


def test_nothing_set_sends_nothing() -> None:
    """Empty options are an empty message."""
    assert wire.sampling_to_proto(SamplingOptions()).ByteSize() == 0
    assert wire.speculation_to_proto(SpeculationOptions()).ByteSize() == 0


def test_each_verifier_has_its_value() -> None:
    """Every verifier of the contract can be asked for."""
    asked = {
        wire.speculation_to_proto(SpeculationOptions(verifier=verifier)).verifier
        for verifier in Verifier
    }
    assert set(sampling_pb2.Verifier.values()) - {sampling_pb2.VERIFIER_UNSPECIFIED} == asked


def test_each_speculation_field_is_sent() -> None:
    """Every option of the contract exists here under its name and reaches the message."""
    options = SpeculationOptions(
        enabled=False,
        verifier=Verifier.KSEQ,
        drafters=("a",),
        max_nodes=4,
        max_depth=2,
        tree_shape="2",
        draft_length=DraftLength.DECISION,
        roots=Roots.TARGET,
        tree_mask=TreeMask.BUILT,
        aggressiveness=2.0,
        decision_threshold=0.5,
    )
    message = wire.speculation_to_proto(options)
    assert {field.name for field in fields(SpeculationOptions)} == {
        field.name for field, _ in message.ListFields()
    }


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (SamplingOptions(temperature="hot"), "sampling.temperature"),  # type: ignore[arg-type]
        (SamplingOptions(stop="abc"), "sampling.stop"),  # type: ignore[arg-type]
        (SamplingOptions(stop=("\udc00",)), "sampling.stop"),
        (SamplingOptions(logit_bias={-1: 0.0}), "sampling.logit_bias"),
        (SamplingOptions(stop_token_ids=(2**32,)), "sampling.stop_token_ids"),
        (SamplingOptions(n=-1), "sampling.n"),
    ],
)
def test_misfits_name_the_field(options: SamplingOptions, field: str) -> None:
    """What protobuf would refuse with a bare message is refused with the field's name."""
    with pytest.raises(InvalidRequest, match=field) as caught:
        wire.sampling_to_proto(options)
    assert caught.value.field == field


def test_resumed_keeps_the_request() -> None:
    """Only the seed and the received tokens change."""
    request = wire.request_to_proto(
        request_id="r",
        model="m",
        prompt=None,
        tokens=None,
        messages=[Message("user", "hi")],
        sampling=SamplingOptions(top_k=3),
        speculation=None,
        resume=(1,),
    )
    again = wire.resumed(request, seed=9, tokens=[1, 2])
    assert list(request.resume.ids) == [1]
    assert list(again.resume.ids) == [1, 2]
    assert again.sampling.seed == 9
    assert again.sampling.top_k == 3
    assert again.chat == request.chat


def test_empty_prompts_are_sent_as_given() -> None:
    """That a prompt is empty is for the service to refuse: it names the kind that was meant."""
    for arguments, kind in (
        ({"prompt": ""}, "text"),
        ({"tokens": ()}, "tokens"),
        ({"messages": ()}, "chat"),
    ):
        given: dict[str, object] = {"prompt": None, "tokens": None, "messages": None, **arguments}
        request = wire.request_to_proto(
            request_id="r",
            model="",
            sampling=None,
            speculation=None,
            resume=(),
            **given,  # type: ignore[arg-type]  # one of each kind in turn
        )
        assert request.WhichOneof("prompt") == kind


def test_events() -> None:
    """Each kind of event, and None for one that this version does not know."""
    admission = generation_pb2.Admission(request_id="r", seed=2**64 - 1, drafters=["a", "b"])
    assert wire.event_from_proto(
        generation_pb2.GenerateResponse(admission=admission), drafters=()
    ) == Admission(request_id="r", model="", seed=2**64 - 1, prompt_tokens=0, drafters=("a", "b"))
    tokens = [
        generation_pb2.Token(id=1, origin=generation_pb2.ORIGIN_DRAFTER, drafter=1, logprob=0.0),
        generation_pb2.Token(id=2, origin=generation_pb2.ORIGIN_DRAFTER, drafter=7),
        generation_pb2.Token(id=3),
    ]
    chunk = wire.event_from_proto(
        generation_pb2.GenerateResponse(
            index=1, chunk=generation_pb2.Chunk(text="x", tokens=tokens)
        ),
        drafters=("a", "b"),
    )
    assert isinstance(chunk, TextChunk)
    assert [token.drafter for token in chunk.tokens] == ["b", "drafter 7", None]
    assert [token.logprob for token in chunk.tokens] == [0.0, None, None]
    assert chunk.tokens[2].origin is Origin.UNKNOWN
    assert wire.event_from_proto(generation_pb2.GenerateResponse(), drafters=()) is None


def test_each_finish_reason_is_known() -> None:
    """Every reason of the contract has its own value here."""
    reasons = set()
    for value in generation_pb2.FinishReason.values():
        event = wire.event_from_proto(
            generation_pb2.GenerateResponse(
                completion=generation_pb2.Completion(finish_reason=value)
            ),
            drafters=(),
        )
        assert isinstance(event, Completion)
        reasons.add(event.finish_reason)
    assert set(FinishReason) == reasons


def test_results_hold_each_field_of_the_contract() -> None:
    """Statistics, timing, usage, models and actors lose no field on the way to the caller."""
    from outrider.client import results

    for message, result in (
        (generation_pb2.SpeculationStats, results.SpeculationStats),
        (generation_pb2.Timing, results.Timing),
        (generation_pb2.Usage, results.Usage),
        (generation_pb2.TargetModel, results.ModelInfo),
        (generation_pb2.DrafterModel, results.DrafterInfo),
        (generation_pb2.ActorStatus, results.ActorInfo),
        (generation_pb2.GetStatusResponse, results.Status),
        (generation_pb2.Admission, results.Admission),
        (generation_pb2.Token, results.Token),
    ):
        assert {field.name for field in message.DESCRIPTOR.fields} == {
            field.name for field in fields(result)
        }
