"""Options on the wire and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.actors.exchange.option_fields import listed
from outrider.actors.exchange.request_options_wire import (
    sampling_from_proto,
    sampling_to_proto,
    speculation_from_proto,
    speculation_to_proto,
)
from outrider.actors.exchange.verifier_wire import ask_for, asked_for, offer_of, offered_by
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.speculation.trees.level_shapes import LevelShape
from outrider.v1 import sampling_pb2, target_pb2

floats = st.floats(-2.0, 2.0, width=32)


@given(
    st.builds(
        Sampling,
        seed=st.integers(0, 2**64 - 1),
        max_tokens=st.integers(1, 2**31),
        temperature=st.floats(0.0, 100.0, width=32),
        top_p=st.floats(0.125, 1.0, width=32),
        top_k=st.integers(0, 2**31),
        min_p=st.floats(0.0, 1.0, width=32),
        repetition_penalty=st.floats(0.125, 10.0, width=32),
        presence_penalty=floats,
        frequency_penalty=floats,
        logit_bias=st.dictionaries(st.integers(0, 2**31), floats, max_size=5),
        min_tokens=st.integers(0, 100),
        stop_token_ids=st.lists(st.integers(0, 2**31), max_size=4).map(tuple),
        ignore_eos=st.booleans(),
        logprobs=st.none() | st.integers(0, 20),
    )
)
def test_sampling_round_trip(sampling: Sampling) -> None:
    """What the coordinator settles is what target and drafters see."""
    wire = sampling_pb2.SamplingOptions.FromString(sampling_to_proto(sampling).SerializeToString())
    assert sampling_from_proto(wire) == sampling


def test_zero_is_not_absent() -> None:
    """Temperature 0 is greedy; no temperature is the default."""
    wire = sampling_pb2.SamplingOptions(seed=1, max_tokens=1, temperature=0.0)
    assert sampling_from_proto(wire).temperature == 0.0
    wire.ClearField("temperature")
    assert sampling_from_proto(wire).temperature == 1.0


@pytest.mark.parametrize("field", ["seed", "max_tokens"])
def test_settled_fields_must_be_there(field: str) -> None:
    """A session without them is a mistake of the coordinator."""
    wire = sampling_pb2.SamplingOptions(seed=1, max_tokens=1)
    wire.ClearField(field)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=field):
        sampling_from_proto(wire)


def test_every_verifier_has_a_number_or_travels_by_name() -> None:
    """What is asked for is what is read."""
    for verifier in (*VERIFIERS, "of_another_package"):
        options = sampling_pb2.SpeculationOptions()
        ask_for(verifier, options)
        assert asked_for(options) == verifier
        assert bool(options.verifier) != bool(options.verifier_name)
    assert asked_for(sampling_pb2.SpeculationOptions()) == ""
    assert set(listed(sampling_pb2.SpeculationOptions(), "verifier")) <= set(VERIFIERS)
    with pytest.raises(ValueError, match="999"):
        asked_for(sampling_pb2.SpeculationOptions(verifier=999))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="leave one out"):
        asked_for(
            sampling_pb2.SpeculationOptions(
                verifier=sampling_pb2.VERIFIER_COUPLED, verifier_name="block"
            )
        )


def test_an_offer_is_read_as_it_was_made() -> None:
    """By number where there is one; numbers of later versions are passed over."""
    offered = [*VERIFIERS, "of_another_package"]
    fields = offer_of(offered)

    assert set(offered_by(target_pb2.Hello(**fields))) == set(offered)
    assert fields["verifier_names"] == ["typical", "of_another_package"]
    later = target_pb2.Hello(verifiers=[1, 999])  # type: ignore[list-item]
    assert offered_by(later) == ("coupled",)


def test_speculation_round_trip() -> None:
    """Off is off, and absent fields take the defaults."""
    off = Speculation(enabled=False, verifier="block", max_nodes=1, max_depth=2)
    assert speculation_from_proto(speculation_to_proto(off)) == off
    shaped = Speculation(verifier="traversal", tree_shape=LevelShape((4, 2, 2)))
    assert speculation_from_proto(speculation_to_proto(shaped)) == shaped
    assert speculation_from_proto(sampling_pb2.SpeculationOptions()) == Speculation()
