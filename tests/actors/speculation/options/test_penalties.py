"""Penalties: which tokens, how much, and that a path counts as if it had been committed."""

from __future__ import annotations

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outrider.actors.speculation.options import Sampling
from outrider.actors.speculation.sampling.penalties import Penalties

CPU = torch.device("cpu")


def penalties(
    prompt: tuple[int, ...] = (),
    *,
    repetition: float = 1.0,
    presence: float = 0.0,
    frequency: float = 0.0,
) -> Penalties:
    """Penalties of a new session."""
    sampling = Sampling(
        seed=1,
        max_tokens=9,
        repetition_penalty=repetition,
        presence_penalty=presence,
        frequency_penalty=frequency,
    )
    return Penalties(sampling, prompt, CPU)


def test_repetition_pulls_scores_of_prompt_and_output_down_on_both_sides_of_zero() -> None:
    """Positive scores are divided, negative ones multiplied; how often a token occurred is no matter."""
    session = penalties((0, 1, 1), repetition=2.0)
    session.commit([2])
    scores = session.apply(torch.tensor([[3.0, -3.0, 0.5, 5.0, 0.0]]), [()])
    assert scores.tolist() == [[1.5, -6.0, 0.25, 5.0, 0.0]]


def test_presence_counts_once_and_frequency_every_time_in_the_output_only() -> None:
    """The prompt is free."""
    session = penalties((0, 0), presence=1.0, frequency=0.25)
    session.commit([1, 2, 2])
    scores = session.apply(torch.tensor([[5.0, 5.0, 5.0, 5.0]]), [()])
    assert scores.tolist() == [[5.0, 3.75, 3.5, 5.0]]


def test_each_row_counts_its_own_path() -> None:
    """Rows of one tree differ in what came before them."""
    session = penalties(frequency=1.0)
    session.commit([0])
    scores = session.apply(torch.zeros(4, 3), [(), (0,), (1,), (1, 2, 1)])
    assert scores.tolist() == [[-1, 0, 0], [-2, 0, 0], [-1, -1, 0], [-1, -2, -1]]


def test_negative_penalties_encourage() -> None:
    """Presence and frequency may be negative, a repetition penalty below 1 rewards."""
    session = penalties((0,), repetition=0.5, presence=-1.0)
    session.commit([1])
    assert session.apply(torch.tensor([[2.0, -2.0]]), [()]).tolist() == [[4.0, 0.0]]


def test_excluded_tokens_stay_excluded() -> None:
    """No penalty or reward brings -inf back or makes it not a number."""
    for repetition in (0.5, 2.0):
        session = penalties((0,), repetition=repetition, presence=-2.0, frequency=-2.0)
        session.commit([0])
        scores = session.apply(torch.full((1, 2), -torch.inf), [(0, 1)])
        assert scores.tolist() == [[-torch.inf, -torch.inf]]


TOKENS = st.lists(st.integers(0, 6), max_size=8)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    prompt=TOKENS,
    commits=st.lists(TOKENS, max_size=3),
    paths=st.lists(TOKENS, min_size=1, max_size=4),
    repetition=st.sampled_from([1.0, 1.1, 1.37, 0.7]),
    presence=st.sampled_from([0.0, 0.1, -1.3]),
    frequency=st.sampled_from([0.0, 0.7, -0.3]),
)
def test_a_path_counts_bit_for_bit_as_if_it_had_been_committed(
    prompt: list[int],
    commits: list[list[int]],
    paths: list[list[int]],
    repetition: float,
    presence: float,
    frequency: float,
) -> None:
    """Plain decoding commits what a tree only supposes; their scores are equal."""

    def session() -> Penalties:
        made = penalties(
            tuple(prompt), repetition=repetition, presence=presence, frequency=frequency
        )
        for tokens in commits:
            made.commit(tokens)
            made.apply(torch.zeros(1, 7), [()])
        return made

    logits_NV = torch.randn(len(paths), 7, generator=torch.Generator().manual_seed(1)) * 5
    together = session().apply(logits_NV, paths)
    for row, path in enumerate(paths):
        alone = session()
        for token_id in path:
            alone.commit([token_id])
        assert torch.equal(alone.apply(logits_NV[row : row + 1], [()])[0], together[row])
