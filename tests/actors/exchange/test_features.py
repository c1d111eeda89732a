"""Features on their way to a drafter: what is asked for, what is answered, and numbers that survive the wire."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.actors.exchange.frames import array, plain, some_features

from outrider.actors.exchange import features
from outrider.actors.exchange.features import Features, RejectedNodes, narrowed, widened
from outrider.actors.exchange.feedback_offer import (
    FeedbackRefused,
    offer_for,
    request_from_proto,
    request_to_proto,
)
from outrider.actors.exchange.feedback_request import FeedbackRequest
from outrider.actors.exchange.frames import BadFrame
from outrider.actors.speculation.trees.ragged import starts_of


def answer(request: FeedbackRequest, num_blocks: int = 6) -> tuple[int, ...]:
    """The layers that a target of so many blocks and width 8 gives."""
    offer = offer_for(request, target="t", fingerprint="f", num_blocks=num_blocks, width=8)
    return offer.layers


def test_layers_are_counted_as_boundaries() -> None:
    """0 before the first block, 6 after the last of six and before the norm; the norm is one further."""
    assert answer(FeedbackRequest(layers=(0, 6, "norm", 3))) == (0, 6, 7, 3)


@pytest.mark.parametrize(
    ("request_", "num_blocks", "problem"),
    [
        (FeedbackRequest(layers=(7,)), 6, "layers are 0 to 6 and 'norm', not 7"),
        (FeedbackRequest(layers=("norm",)), 0, "gives no hidden states"),
        (FeedbackRequest(layers=(1,), width=16), 6, "made for hidden states of 16 numbers"),
    ],
)
def test_what_cannot_be_given_is_refused(
    request_: FeedbackRequest, num_blocks: int, problem: str
) -> None:
    """With the reason."""
    with pytest.raises(FeedbackRefused, match=problem):
        answer(request_, num_blocks)


def test_rows_of_tokens_need_no_hidden_states() -> None:
    """Any target has them."""
    assert answer(FeedbackRequest(top_k=4), num_blocks=0) == ()


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"layers": (1, 1)},
        {"layers": (-2,)},
        {"top_k": 65},
        {"top_k": 1, "wants_rejected": True},
    ],
)
def test_a_request_makes_sense(wrong: dict[str, object]) -> None:
    """Or is refused where it is made."""
    with pytest.raises(ValueError, match=r"layer|top_k"):
        FeedbackRequest(**wrong)  # type: ignore[arg-type]  # wrong on purpose


def test_a_request_survives_the_wire() -> None:
    """The norm has a number there."""
    request = FeedbackRequest(layers=("norm", 0, 5), top_k=3, wants_rejected=True, width=8)
    assert request_from_proto(request_to_proto(request, 99)) == request


def test_another_model_or_request_is_another_revision() -> None:
    """So that neither's features are taken for the other's."""

    def revision(fingerprint: str, *layers: int) -> int:
        request = FeedbackRequest(layers=layers)
        return offer_for(
            request, target="t", fingerprint=fingerprint, num_blocks=6, width=8
        ).revision

    assert len({revision("f", 1), revision("g", 1), revision("f", 2), revision("f", 1)}) == 3


def test_bits_are_those_of_bfloat16() -> None:
    """As torch rounds, infinities and the largest numbers included."""
    rng = np.random.default_rng(0)
    some = (rng.standard_normal(4096) * np.exp2(rng.integers(-130, 127, 4096))).astype(np.float32)
    edges = np.array([0.0, -0.0, np.inf, -np.inf, 3.4e38, 1.0 + 2**-8, 1.0 + 3 * 2**-8], np.float32)
    numbers = np.concatenate((some, edges))
    theirs = torch.from_numpy(numbers).to(torch.bfloat16)
    np.testing.assert_array_equal(narrowed(numbers), theirs.view(torch.int16).numpy().view("<u2"))
    np.testing.assert_array_equal(widened(narrowed(numbers)), theirs.float().numpy())
    assert np.isnan(widened(narrowed(np.array([np.nan], np.float32)))).all()


@given(some_features(), st.integers(1, 60))
def test_parts_are_the_whole(whole: Features, most_bytes: int) -> None:
    """However small they are: every position once, in order, with its rows."""
    parts = list(whole.split(most_bytes))
    assert _positions(parts) == _positions([whole])
    states = np.concatenate([part.states_RLD for part in parts])
    np.testing.assert_array_equal(states, whole.states_RLD)


def _positions(parts: list[Features]) -> list[tuple[int, int]]:
    return [
        (int(part.handles_E[entry]), int(part.firsts_E[entry]) + row - int(part.starts_E[entry]))
        for part in parts
        for entry in range(len(part.handles_E))
        for row in range(int(part.starts_E[entry]), int(part.starts_E[entry + 1]))
    ]


def test_bytes_are_as_stated() -> None:
    """Of the docs' table: 36 a frame, 16 an entry, 2 for each number of a state, 6 for each likely token."""
    frame = features.encode(rows_of(3, num_layers=2, width=5, top_k=4))
    assert len(frame) == 36 + 16 + 3 * (2 * 2 * 5 + 6 * 4)
    assert plain(features.decode(frame)) == plain(rows_of(3, num_layers=2, width=5, top_k=4))


@pytest.mark.parametrize(("parents", "positions"), [([1, -1], [8, 7]), ([-1, 0], [7, 9])])
def test_candidates_hang_together(parents: list[int], positions: list[int]) -> None:
    """A parent comes first and lies at the position before."""
    nodes = RejectedNodes(
        tokens_R=array([1, 2]), parents_R=array(parents), positions_R=array(positions)
    )
    frame = features.encode(rows_of(2, num_layers=1, width=1, top_k=0, rejected=nodes))
    with pytest.raises(BadFrame):
        features.decode(frame)


ASKED = FeedbackRequest(layers=(1, "norm"), top_k=4, width=5)


@pytest.mark.parametrize(
    ("count", "num_layers", "width", "top_k"),
    [
        (3, 3, 5, 0),
        (3, 1, 5, 0),
        (3, 2, 6, 0),
        (3, 2, 0, 0),
        (3, 0, 0, 5),
        (3, 0, 0, 0),
        (0, 2, 5, 0),
    ],
)
def test_what_was_not_asked_for_is_refused(
    count: int, num_layers: int, width: int, top_k: int
) -> None:
    """Other layers or numbers than the method has matrices for, and entries of nothing."""
    with pytest.raises(BadFrame):
        features.check_asked(rows_of(count, num_layers=num_layers, width=width, top_k=top_k), ASKED)


def test_what_was_asked_for_is_taken() -> None:
    """States and likely tokens, together and apart; a small vocabulary has fewer of these; candidates where they are wanted."""
    for num_layers, width, top_k in ((2, 5, 4), (2, 5, 0), (0, 0, 4), (0, 0, 2)):
        features.check_asked(rows_of(3, num_layers=num_layers, width=width, top_k=top_k), ASKED)
    nodes = RejectedNodes(tokens_R=array([1]), parents_R=array([-1]), positions_R=array([7]))
    rejected = rows_of(1, num_layers=2, width=9, top_k=0, rejected=nodes)
    features.check_asked(rejected, FeedbackRequest(layers=(1, 2), wants_rejected=True))
    with pytest.raises(BadFrame, match="not drawn"):
        features.check_asked(rejected, FeedbackRequest(layers=(1, 2)))


def rows_of(
    count: int, *, num_layers: int, width: int, top_k: int, rejected: RejectedNodes | None = None
) -> Features:
    """One entry."""
    size = count * num_layers * width
    return Features(
        revision=5,
        handles_E=array([9], np.uint64),
        firsts_E=array([7]),
        starts_E=starts_of(array([count])),
        states_RLD=np.arange(size, dtype=np.uint16).reshape(count, num_layers, width),
        top_tokens_RK=np.arange(count * top_k).reshape(count, top_k),
        top_logprobs_RK=-np.arange(count * top_k, dtype=np.float32).reshape(count, top_k),
        rejected=rejected,
    )
