"""Messages to results."""

from __future__ import annotations

from dataclasses import fields

from outrider.client.messages import results, service_info
from outrider.client.messages.result_wire import event_from_proto
from outrider.client.messages.results import Admission, Completion, FinishReason, Origin, TextChunk
from outrider.v1 import generation_pb2


def test_events() -> None:
    """Each kind of event, and None for one that this version does not know."""
    admission = generation_pb2.Admission(request_id="r", seed=2**64 - 1, drafters=["a", "b"])
    assert event_from_proto(
        generation_pb2.GenerateResponse(admission=admission), drafters=()
    ) == Admission(request_id="r", model="", seed=2**64 - 1, prompt_tokens=0, drafters=("a", "b"))
    tokens = [
        generation_pb2.Token(id=1, origin=generation_pb2.ORIGIN_DRAFTER, drafter=1, logprob=0.0),
        generation_pb2.Token(id=2, origin=generation_pb2.ORIGIN_DRAFTER, drafter=7),
        generation_pb2.Token(id=3),
    ]
    chunk = event_from_proto(
        generation_pb2.GenerateResponse(
            index=1, chunk=generation_pb2.Chunk(text="x", tokens=tokens)
        ),
        drafters=("a", "b"),
    )
    assert isinstance(chunk, TextChunk)
    assert [token.drafter for token in chunk.tokens] == ["b", "drafter 7", None]
    assert [token.logprob for token in chunk.tokens] == [0.0, None, None]
    assert chunk.tokens[2].origin is Origin.UNKNOWN
    assert event_from_proto(generation_pb2.GenerateResponse(), drafters=()) is None


def test_each_finish_reason_is_known() -> None:
    """Every reason of the contract has its own value here."""
    reasons = set()
    for value in generation_pb2.FinishReason.values():
        event = event_from_proto(
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
    for message, result in (
        (generation_pb2.SpeculationStats, results.SpeculationStats),
        (generation_pb2.Timing, results.Timing),
        (generation_pb2.Usage, results.Usage),
        (generation_pb2.TargetModel, service_info.ModelInfo),
        (generation_pb2.DrafterModel, service_info.DrafterInfo),
        (generation_pb2.ActorStatus, service_info.ActorInfo),
        (generation_pb2.GetStatusResponse, service_info.Status),
        (generation_pb2.Admission, results.Admission),
        (generation_pb2.Token, results.Token),
    ):
        told = {field.name for field in message.DESCRIPTOR.fields}
        # Verifiers by number and by name are one field here.
        assert told - {"verifier_names"} == {field.name for field in fields(result)}
