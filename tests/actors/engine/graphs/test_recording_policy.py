"""Which shapes are recorded while the service runs."""

from __future__ import annotations

import random

import pytest

from outrider.actors.engine.graphs.recording_policy import BY_ITSELF, RECORDING, Policy, Thrift
from outrider.actors.engine.graphs.static_shape import Need, StaticShape, shape_of, usual_shapes

SHARE = 1e-5
"""Of a row of a slot in the weights, as of an 8 B model."""

CAPACITY = 4096


def shape_for(rows: int, shown: int = 300) -> StaticShape:
    """Of one session."""
    need = Need(rows=rows, sessions=1, longest=rows, slots=1, shown=shown)
    shape = shape_of(need, num_slots=4, capacity=CAPACITY)
    assert shape is not None
    return shape


def test_it_costs_little_more_than_to_know_what_comes() -> None:
    """Waste and recordings of one shape: at most twice the less of both, and a pass, however many there are."""
    thrift_of = [(64, 24), (64, None), (2, 1), (256, None)]
    for held_rows, own_rows in thrift_of:
        own = shape_for(own_rows or held_rows)
        held = None if own_rows is None else shape_for(held_rows)
        taken = BY_ITSELF * own.cost(SHARE) if held is None else held.cost(SHARE)
        waste = taken - own.cost(SHARE)
        for count in (1, 5, 30, 500):
            thrift, spent = Thrift(RECORDING, row_share=SHARE), 0.0
            for _ in range(count):
                spent += waste
                if thrift.pays(own, held):
                    spent += RECORDING
                    break
            assert spent <= 2.0 * min(count * waste, RECORDING) + waste


def test_what_is_told_kernel_by_kernel_is_recorded_soon() -> None:
    """After about as many passes as it takes, and what a larger recording serves much later."""

    def passes(shape: StaticShape, held: StaticShape | None) -> int:
        thrift = Thrift(RECORDING, row_share=SHARE)
        return next(number for number in range(1, 10_000) if thrift.pays(shape, held))

    alone = passes(shape_for(16), None)
    assert 5 <= alone <= RECORDING
    assert passes(shape_for(16), shape_for(64)) > 5 * alone
    assert passes(shape_for(16), shape_for(16, shown=4000)) > 5 * alone


def test_the_cheapest_that_holds_is_taken() -> None:
    """Of the usual shapes, for any pass."""
    thrift, rng = Thrift(RECORDING, row_share=SHARE), random.Random(0)
    usual = usual_shapes(num_slots=16, capacity=CAPACITY)
    for _ in range(300):
        sessions = rng.randint(1, 16)
        longest = rng.randint(1, 40)
        need = Need(
            rows=rng.randint(longest + sessions - 1, longest * sessions),
            sessions=sessions,
            longest=longest,
            slots=rng.randint(sessions, 16),
            shown=rng.randint(1, CAPACITY),
        )
        found = thrift.cheapest(usual, need)
        holding = [shape for shape in usual if shape.holds(need)]
        assert (found is None) == (not holding)
        if found is not None:
            assert found in holding
            assert found.cost(SHARE) == min(shape.cost(SHARE) for shape in holding)


@pytest.mark.parametrize("price", [0.0, 1e-3, RECORDING])
def test_the_first_recording_serves_others_unless_it_is_dear(price: float) -> None:
    """Where recording costs nothing, each shape has its own."""
    shape = shape_for(3)
    first = Thrift(price, row_share=SHARE).first(shape, CAPACITY)
    assert (first == shape) == (price < RECORDING)
    assert first.holds(Need(rows=3, sessions=1, longest=3, slots=1, shown=256))


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("on", (0.0, True, True)),
        ("off", (0.0, False, False)),
        ("auto", (RECORDING, True, False)),
    ],
)
def test_policies_of_settings(mode: str, expected: tuple[float, bool, bool]) -> None:
    """`cuda_graphs`."""
    policy = Policy.of(mode)
    price, records, strict = expected
    assert (policy.most > 0, policy.strict) == (records, strict)
    assert not records or policy.price == price
