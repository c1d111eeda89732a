"""The sampling transforms against a plain float64 reference, and the promise that a row's company does not matter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.actors.speculation.one_device import OneDevice
from tests.actors.speculation.options import reference
from torch import Tensor

from outrider.actors.speculation.options import Sampling
from outrider.actors.speculation.sampling.transforms import (
    SamplingTransform,
    is_greedy,
    is_plain,
)

CPU = torch.device("cpu")
VOCAB = 9
EOS = (0, 4)
PLAIN = Sampling(seed=1, max_tokens=99)
INF = float("inf")
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""No test may fail because the machine is busy."""


def transform(
    sampling: Sampling, prompt: Sequence[int] = (), *, vocab_size: int = VOCAB
) -> SamplingTransform:
    """The transform of a new session."""
    return SamplingTransform(
        sampling, vocab_size=vocab_size, prompt=prompt, eos_token_ids=EOS, device=CPU
    )


def scores(sampling: Sampling, logits: Sequence[float], *, num_output: int = 0) -> list[float]:
    """The scores of a single row at the start of a session."""
    made = transform(sampling, vocab_size=len(logits))
    values: list[float] = made.apply(torch.tensor([logits]), [()], [num_output])[0].tolist()
    return values


TOKENS = st.lists(st.integers(0, VOCAB - 1), max_size=6)
LOGIT = st.one_of(
    st.integers(-16, 16).map(lambda v: v / 2), st.floats(-20, 20, width=32), st.just(-INF)
)
LOGITS = st.lists(
    st.lists(LOGIT, min_size=VOCAB, max_size=VOCAB).filter(lambda row: max(row) > -INF),
    min_size=1,
    max_size=4,
)
SAMPLINGS = st.builds(
    Sampling,
    seed=st.just(1),
    max_tokens=st.just(99),
    temperature=st.sampled_from([1.0, 0.0, 0.05, 0.1, 0.7, 1.9]),
    top_p=st.sampled_from([1.0, 0.99, 0.6, 0.2, 1e-4]),
    top_k=st.sampled_from([0, 1, 2, 5, 50]),
    min_p=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.8]),
    presence_penalty=st.sampled_from([0.0, 0.6, -2.0]),
    frequency_penalty=st.sampled_from([0.0, 0.2]),
    logit_bias=st.dictionaries(
        st.integers(0, VOCAB - 1), st.sampled_from([-100.0, -1.5, 4.0]), max_size=3
    ),
    min_tokens=st.sampled_from([0, 3]),
    stop_token_ids=st.sampled_from([(), (2,), (2, 7)]),
    ignore_eos=st.booleans(),
)


@settings(UNHURRIED, max_examples=300)
@given(sampling=SAMPLINGS, logits=LOGITS, prompt=TOKENS, committed=TOKENS, path=TOKENS)
def test_scores_are_those_of_the_reference(
    sampling: Sampling,
    logits: list[list[float]],
    prompt: list[int],
    committed: list[int],
    path: list[int],
) -> None:
    """Every combination of options: scores within rounding, and the filters' choice where rounding allows one."""
    output = [*committed, *path]
    logits_NV = torch.tensor(logits, dtype=torch.float32)
    num_output_N = [len(output)] * len(logits)
    before = logits_NV.clone()

    def apply(options: Sampling) -> Tensor:
        session = transform(options, prompt)
        session.commit(committed)
        return session.apply(logits_NV, [path] * len(logits), num_output_N)

    unfiltered_NV = apply(replace(sampling, top_k=0, top_p=1.0, min_p=0.0))
    filtered_NV = apply(sampling)
    assert torch.equal(logits_NV, before)
    for row in range(len(logits)):
        exact = reference.scores_before_filters(
            np.array(logits[row]), sampling, prompt, output, EOS
        )
        unfiltered = unfiltered_NV[row].numpy().astype(np.float64)
        if not np.isfinite(exact).any():
            assert not np.isfinite(unfiltered).any()
            continue
        # Only differences between scores matter; low temperatures shift the greatest to 0.
        shift = exact.max() - unfiltered.max()
        if sampling.temperature == 0 or sampling.temperature >= 0.1:
            assert abs(shift) < 1e-3
        # Three units in the last place of the greatest number that float32 had to hold.
        rounding = (
            3.0 * np.finfo(np.float32).eps * np.abs(unfiltered[np.isfinite(unfiltered)]).max()
        )
        np.testing.assert_allclose(unfiltered + shift, exact, rtol=3e-6, atol=3e-5 + rounding)
        filtered = filtered_NV[row].numpy()
        if sampling.temperature == 0:
            assert np.array_equal(filtered, unfiltered_NV[row].numpy())
            continue
        kept_ids = np.flatnonzero(np.isfinite(filtered))
        assert (filtered[kept_ids] == unfiltered_NV[row].numpy()[kept_ids]).all()
        least, most = reference.kept_counts(unfiltered, sampling, slack=1e-6)
        assert max(1, least) <= len(kept_ids) <= most
        assert sorted(reference.order_of(unfiltered)[: len(kept_ids)]) == kept_ids.tolist()


@settings(UNHURRIED, max_examples=200)
@given(
    sampling=SAMPLINGS,
    logits=LOGITS,
    prompt=TOKENS,
    committed=TOKENS,
    paths=st.lists(TOKENS, min_size=4, max_size=4),
)
def test_a_row_in_a_tree_has_the_bits_of_plain_decoding(
    sampling: Sampling,
    logits: list[list[float]],
    prompt: list[int],
    committed: list[int],
    paths: list[list[int]],
) -> None:
    """Candidates on the path count as committed, and neither other rows nor their number change a bit."""
    session = transform(sampling, prompt)
    session.commit(committed)
    num_output_N = [len(committed) + len(path) for path in paths]
    logits_NV = torch.tensor(logits, dtype=torch.float32)
    num = len(logits)
    together = session.apply(logits_NV, paths[:num], num_output_N[:num])
    for row in range(num):
        plain = transform(sampling, prompt)
        for token_id in [*committed, *paths[row]]:
            plain.commit([token_id])
        alone = plain.apply(logits_NV[row : row + 1], [()], [num_output_N[row]])
        assert torch.equal(alone[0], together[row])


@pytest.mark.parametrize("vocab_size", [4096, 5001])
@pytest.mark.parametrize(
    "sampling",
    [
        replace(PLAIN, temperature=0.7),
        replace(PLAIN, temperature=0.01),
        replace(PLAIN, top_p=0.9),
        replace(PLAIN, temperature=1.3, top_k=300, top_p=0.95, min_p=0.001),
        replace(PLAIN, repetition_penalty=1.2, frequency_penalty=0.1, top_p=0.5),
    ],
)
def test_wide_rows_have_the_same_bits_alone_and_in_a_batch(
    sampling: Sampling, vocab_size: int
) -> None:
    """At widths where arithmetic is vectorised, split over threads, and rows start at odd addresses."""
    logits_NV = torch.randn(33, vocab_size, generator=torch.Generator().manual_seed(4)) * 4
    session = transform(sampling, range(50), vocab_size=vocab_size)
    paths = [[row, row % 3] for row in range(33)]
    together = session.apply(logits_NV, paths, [2] * 33)
    for row in range(33):
        alone = session.apply(logits_NV[row : row + 1].clone(), [paths[row]], [2])
        assert torch.equal(alone[0], together[row])


def test_options_at_their_defaults_do_nothing_at_all() -> None:
    """Not even a copy: temperature 1 is the model's own distribution."""
    logits_NV = torch.randn(3, VOCAB)
    session = transform(PLAIN)
    session.commit([1, 2])
    assert session.apply(logits_NV, [(), (1,), (1,)], [2, 3, 3]) is logits_NV


def test_bias_moves_and_excludes() -> None:
    """-100 excludes altogether, however great the logit."""
    biased = replace(PLAIN, logit_bias={0: -100.0, 1: 2.5, 2: -99.0})
    assert scores(biased, [1e6, 1.0, 1.0, 1.0]) == [-INF, 3.5, -98.0, 1.0]


def test_stop_tokens_wait_for_min_tokens() -> None:
    """End-of-text (ids 0 and 4) and the request's own stop tokens; end-of-text is free when ignored."""
    waiting = replace(PLAIN, min_tokens=2, stop_token_ids=(1,))
    zeros = [0.0] * 5
    assert scores(waiting, zeros, num_output=1) == [-INF, -INF, 0.0, 0.0, -INF]
    assert scores(waiting, zeros, num_output=2) == zeros
    assert scores(replace(waiting, ignore_eos=True), zeros) == [0.0, -INF, 0.0, 0.0, 0.0]


def test_rows_of_one_tree_wait_each_by_its_own_depth() -> None:
    """A deep row may stop where a shallow one may not."""
    session = transform(replace(PLAIN, min_tokens=2, stop_token_ids=(1,)), vocab_size=3)
    result = session.apply(torch.zeros(3, 3), [(), (2,), (2, 2)], [0, 1, 2])
    assert torch.isfinite(result).tolist() == [
        [False, False, True],
        [False, False, True],
        [True, True, True],
    ]


def test_end_of_text_beyond_the_vocabulary_is_ignored() -> None:
    """Some models name more end-of-text tokens than their output layer has."""
    assert scores(replace(PLAIN, min_tokens=1), [0.0, 0.0]) == [-INF, 0.0]


def test_temperature_zero_keeps_the_scores_and_uses_no_noise() -> None:
    """Penalties still count; filters do not matter to the greatest."""
    greedy = replace(PLAIN, temperature=0.0, top_k=1, top_p=0.1, min_p=1.0)
    assert scores(greedy, [1.0, 3.0, 2.0]) == [1.0, 3.0, 2.0]
    assert not transform(greedy).uses_noise
    assert transform(replace(PLAIN, temperature=0.01)).uses_noise


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 1e-44])
def test_tiny_temperatures_are_finite_and_split_ties_evenly(temperature: float) -> None:
    """The greatest score is 0, so equal ones are decided by the noise and not by its rounding."""
    assert scores(replace(PLAIN, temperature=temperature), [40.0, 44.0, 44.0])[1:] == [0.0, 0.0]


@pytest.mark.parametrize("temperature", [1e-6, 0.05, 0.1, 1.0, 100.0])
@pytest.mark.parametrize("penalty", [1e-45, 1e-38, 1e-30])
def test_tiny_repetition_penalties_leave_a_law(penalty: float, temperature: float) -> None:
    """What would be infinite leaves no law: neither its filters nor what drafters draw from would be numbers."""
    sampling = replace(
        PLAIN, repetition_penalty=penalty, presence_penalty=-2.0, temperature=temperature, top_p=0.9
    )
    row = transform(sampling, prompt=(1, 2, 4)).apply(
        torch.tensor([[4.0, 3.0, 2.0, 1.0, -5.0, 0.0, -INF, 7.0, 8.0]]), [()], [0]
    )[0]
    assert row.max().isfinite()
    assert row.softmax(0).sum().item() == pytest.approx(1.0)
    assert row[1] == row.max()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 100.0])
@pytest.mark.parametrize("penalty", [1e-45, 1e-9, 0.01])
def test_tiny_repetition_penalties_split_ties_evenly(penalty: float, temperature: float) -> None:
    """As tiny temperatures do."""
    rewarding = replace(PLAIN, repetition_penalty=penalty, temperature=temperature)
    row_1V = torch.tensor([[4.0, 44.0, 44.0]])
    row = transform(rewarding, (1, 2), vocab_size=3).apply(row_1V, [()], [0])[0].tolist()
    assert row[1:] == [0.0, 0.0]


def test_a_temperature_that_vanishes_in_float32_is_zero() -> None:
    """Dividing by it would give not-a-number."""
    vanishing = replace(PLAIN, temperature=1e-60)
    assert is_greedy(vanishing)
    assert scores(vanishing, [1.0, 2.0]) == [1.0, 2.0]


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (replace(PLAIN, min_p=1.0), [-INF, 1.0, 1.0]),
        (replace(PLAIN, top_k=7), [0.0, 1.0, 1.0]),
        (replace(PLAIN, top_p=1e-7), [-INF, 1.0, -INF]),
        (replace(PLAIN, min_p=0.5), [-INF, 1.0, 1.0]),
        (replace(PLAIN, min_p=0.3), [0.0, 1.0, 1.0]),
        (replace(PLAIN, min_p=0.5, top_k=1), [-INF, 1.0, -INF]),
    ],
)
def test_filters_at_their_ends(sampling: Sampling, expected: list[float]) -> None:
    """Top-k above V keeps all, the smallest top-p keeps one, min-p 1 keeps all of the most probable."""
    assert scores(sampling, [0.0, 1.0, 1.0]) == expected


@pytest.mark.parametrize(
    "plain",
    [
        PLAIN,
        replace(PLAIN, temperature=0.0, top_k=3, top_p=0.5, min_p=0.5),
        replace(PLAIN, temperature=0.1),
        replace(PLAIN, temperature=0.7),
        replace(PLAIN, temperature=1.9, stop_token_ids=(2,)),
    ],
)
@UNHURRIED
@given(logits=LOGITS)
def test_plain_sampling_is_one_division(plain: Sampling, logits: list[list[float]]) -> None:
    """A division gives the bits of the session's own transform wherever `is_plain` says so."""
    assert is_plain(plain)
    logits_NV = torch.tensor(logits, dtype=torch.float32)
    temperature = 1.0 if is_greedy(plain) else plain.temperature
    temperatures_N1 = torch.full((len(logits), 1), temperature)
    own = transform(plain).apply(logits_NV, [()] * len(logits), [0] * len(logits))
    assert torch.equal(logits_NV / temperatures_N1, own)


@pytest.mark.parametrize(
    ("change", "plain"),
    [
        ({}, True),
        ({"temperature": 0.0, "top_k": 5}, True),
        ({"temperature": 0.3}, True),
        ({"temperature": 0.05}, False),
        ({"top_k": 5}, False),
        ({"top_p": 0.9}, False),
        ({"min_p": 0.1}, False),
        ({"repetition_penalty": 1.1}, False),
        ({"frequency_penalty": 0.1}, False),
        ({"logit_bias": {1: 1.0}}, False),
        ({"min_tokens": 1}, False),
        ({"stop_token_ids": (1,)}, True),
    ],
)
def test_plain_sampling_is_recognised(change: dict[str, object], plain: bool) -> None:
    """Only the temperature matters, and it can be divided by as it is."""
    assert is_plain(replace(PLAIN, **change)) is plain  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        (replace(PLAIN, logit_bias={0: -100.0, 1: -200.0}), "logit_bias excludes all 2 tokens"),
        (
            replace(PLAIN, logit_bias={1: -100.0}, min_tokens=1),
            "logit_bias excludes every token that does not end the output, and min_tokens is 1",
        ),
        (replace(PLAIN, logit_bias={2: 1.0}), "logit_bias names token id 2; .* 0 to 1"),
        (replace(PLAIN, stop_token_ids=(-1,)), "stop_token_ids names token id -1; .* 0 to 1"),
    ],
)
def test_options_that_leave_nothing_to_draw_are_refused(sampling: Sampling, message: str) -> None:
    """Before any work, naming the field and what to do."""
    with pytest.raises(ValueError, match=message):
        transform(sampling, vocab_size=2)


def test_rows_without_a_path_each_are_refused() -> None:
    """A mismatch is the caller's bug and must not shift penalties to other rows."""
    with pytest.raises(ValueError, match="2 rows of logits with 1 paths and 2 numbers"):
        transform(PLAIN).apply(torch.zeros(2, VOCAB), [()], [0, 0])


def test_options_that_change_nothing_are_no_conflict() -> None:
    """End-of-text just beyond the vocabulary, nothing to wait for, and nothing but stop tokens left, but no wait."""
    assert scores(replace(PLAIN, min_tokens=1), [0.0] * 4) == [-INF, 0.0, 0.0, 0.0]
    waiting = replace(PLAIN, min_tokens=1, ignore_eos=True)
    assert scores(waiting, [1.0, 2.0]) == [1.0, 2.0]
    assert scores(replace(PLAIN, logit_bias={1: -100.0}), [1.0, 2.0]) == [1.0, -INF]
    assert not is_plain(replace(PLAIN, top_k=1))
    assert scores(replace(PLAIN, top_k=1), [1.0, 2.0]) == [-INF, 2.0]


EVERYTHING = replace(
    PLAIN,
    temperature=0.05,
    repetition_penalty=1.3,
    presence_penalty=0.1,
    frequency_penalty=0.7,
    logit_bias={3: 0.3},
    min_tokens=5,
)


@pytest.fixture(params=[torch.float64, torch.bfloat16])
def other_default(request: pytest.FixtureRequest) -> Iterator[None]:
    """Another default type of numbers, as loading a model sets one for a while."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(request.param)
    yield
    torch.set_default_dtype(before)


LOGITS_NV = torch.randn(3, VOCAB, generator=torch.Generator().manual_seed(6)) * 3


def with_everything(device: torch.device, logits_NV: Tensor) -> Tensor:
    """Scores of three rows under options of all kinds but the filters."""
    session = SamplingTransform(
        EVERYTHING, vocab_size=VOCAB, prompt=(1, 2), eos_token_ids=EOS, device=device
    )
    session.commit([2, 5])
    return session.apply(logits_NV.to(device), [(), (1,), (6, 6)], [2, 3, 4])


EXPECTED_NV = with_everything(CPU, LOGITS_NV)


@pytest.mark.usefixtures("other_default")
def test_the_default_type_of_numbers_does_not_matter() -> None:
    """It belongs to the process; the scores are float32 with the same bits."""
    assert torch.equal(with_everything(CPU, LOGITS_NV), EXPECTED_NV)
    assert is_greedy(replace(PLAIN, temperature=1e-60))


def test_all_arithmetic_is_on_the_device_of_the_session() -> None:
    """A number of the host beside numbers of a GPU is waited for, and divided by in another way."""
    with OneDevice():  # type: ignore[no-untyped-call]  # of torch
        scores_NV = with_everything(torch.device("meta"), LOGITS_NV)
    assert scores_NV.device.type == "meta"
