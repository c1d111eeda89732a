"""Options and requests to messages."""

from __future__ import annotations

from dataclasses import fields

import pytest

from outrider.client.connection.errors import InvalidRequest
from outrider.client.messages.request_options import (
    DraftLength,
    Message,
    Roots,
    SamplingOptions,
    SpeculationOptions,
    Verifier,
)
from outrider.client.messages.request_wire import (
    request_to_proto,
    resumed,
    sampling_to_proto,
    speculation_to_proto,
)
from outrider.v1 import sampling_pb2

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
    message = sampling_to_proto(FULL_SAMPLING)
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
    assert sampling_to_proto(SamplingOptions()).ByteSize() == 0
    assert speculation_to_proto(SpeculationOptions()).ByteSize() == 0


def test_each_verifier_has_its_value() -> None:
    """Every verifier of the contract can be asked for."""
    asked = {
        speculation_to_proto(SpeculationOptions(verifier=verifier)).verifier
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
        aggressiveness=2.0,
        decision_threshold=0.5,
        verifier_options={"epsilon": 0.5},
        selector="ucb",
        selector_options={"prior": 0.0},
        drafters_at_work=2,
    )
    message = speculation_to_proto(options)
    assert {field.name for field in fields(SpeculationOptions)} == {
        field.name for field, _ in message.ListFields()
    }


def test_a_verifier_beyond_the_list_goes_by_its_name() -> None:
    """Whether there is one the service knows."""
    message = speculation_to_proto(SpeculationOptions(verifier="of_another_package"))
    assert message == sampling_pb2.SpeculationOptions(verifier_name="of_another_package")


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
        sampling_to_proto(options)
    assert caught.value.field == field


def test_resumed_keeps_the_request() -> None:
    """Only the seed, the model that it is pinned to, and the received tokens change."""
    request = request_to_proto(
        request_id="r",
        model="m",
        prompt=None,
        tokens=None,
        messages=[Message("user", "hi")],
        sampling=SamplingOptions(top_k=3),
        speculation=None,
        resume=(1,),
    )
    again = resumed(request, seed=9, model_fingerprint="f", tokens=[1, 2])
    assert list(request.resume.ids) == [1]
    assert list(again.resume.ids) == [1, 2]
    assert (request.model_fingerprint, again.model_fingerprint) == ("", "f")
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
        request = request_to_proto(
            request_id="r",
            model="",
            sampling=None,
            speculation=None,
            resume=(),
            **given,  # type: ignore[arg-type]  # one of each kind in turn
        )
        assert request.WhichOneof("prompt") == kind
