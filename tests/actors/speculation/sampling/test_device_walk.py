"""Draws and walks of many rows at once against the plain ones."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.actors.speculation.one_device import OneDevice
from tests.devices import DEVICES

from outrider.actors.speculation.noise.gumbel import GumbelNoise, key_halves
from outrider.actors.speculation.sampling.draw import draw, margins
from outrider.actors.speculation.sampling.logprobs import logprobs, logprobs_on_device
from outrider.actors.speculation.verify.coupled_draws import walk
from outrider.actors.target.verify.device_walk import at_visited, draw_rows, walk_rows

CPU = torch.device("cpu")

Tree = tuple[list[int], list[int], list[int]]


@st.composite
def trees(draw_from: st.DrawFn) -> Tree:
    """Tokens and parents of a tree's nodes, and what is drawn at its root and nodes; siblings may be equal."""
    count = draw_from(st.integers(0, 12))
    token = st.integers(0, 3)
    tokens = draw_from(st.lists(token, min_size=count, max_size=count))
    parents = [draw_from(st.integers(-1, node - 1)) for node in range(count)]
    drawn = draw_from(st.lists(token, min_size=count + 1, max_size=count + 1))
    return tokens, parents, drawn


@given(st.lists(trees(), min_size=1, max_size=5), st.integers(0, 3))
def test_walks_are_the_walk(forest: list[Tree], spare_steps: int) -> None:
    """Every tree of a forest is walked as it would be alone, equal siblings and ends included."""
    num_rows = sum(len(drawn) for _, _, drawn in forest)
    drawn_R: list[int] = []
    parents_R: list[int] = []
    tokens_R: list[int] = []
    roots: list[int] = []
    for tokens, parents, drawn in forest:
        start = len(drawn_R)
        roots.append(start)
        drawn_R += drawn
        parents_R += [num_rows, *(start + 1 + parent for parent in parents)]
        tokens_R += [-1, *tokens]
    steps = 1 + max(_depth(parents) for _, parents, _ in forest) + spare_steps
    visited_BT = walk_rows(
        torch.tensor(drawn_R),
        torch.tensor(parents_R),
        torch.tensor(tokens_R),
        torch.tensor(roots),
        steps,
    )
    assert visited_BT.shape == (len(forest), steps)
    for start, (tokens, parents, drawn), visited in zip(
        roots, forest, visited_BT.tolist(), strict=True
    ):
        expected = walk(tokens, parents, lambda node: drawn[node + 1], 100)  # noqa: B023
        rows = [row for row in visited if row < num_rows]
        assert tuple(row - start - 1 for row in rows[1:]) == expected.path
        assert tuple(drawn_R[row] for row in rows) == expected.tokens
        assert visited[len(rows) :] == [num_rows] * (steps - len(rows))


def test_walks_stay_on_their_device() -> None:
    """Nothing is made on the host on the way."""
    numbers = torch.empty(3, dtype=torch.int64, device="meta")
    with OneDevice():  # type: ignore[no-untyped-call]  # of torch
        visited_BT = walk_rows(numbers, numbers, numbers, numbers[:2], 4)
    assert visited_BT.device.type == "meta"
    assert visited_BT.shape == (2, 4)


def _depth(parents: list[int]) -> int:
    depths = [0]
    for parent in parents:
        depths.append(depths[parent + 1] + 1)
    return max(depths)


@pytest.mark.parametrize("device", DEVICES)
def test_draws_are_the_draws(device: str) -> None:
    """Tokens and margins are those of the plain functions: ties, exclusions and rows without noise included."""
    generator = torch.Generator().manual_seed(5)
    for case in range(100):
        num_rows, width = 7, 1 if case == 0 else 17
        scores_RV = torch.randint(-3, 3, (num_rows, width), generator=generator).float()
        if case % 3 == 0:
            scores_RV = torch.randn((num_rows, width), generator=generator)
        scores_RV[torch.rand((num_rows, width), generator=generator) < 0.2] = -torch.inf
        if case % 5 == 0:
            scores_RV[2] = -torch.inf
        noise_DV = torch.randn((4, width), generator=generator)
        noise_DV[3] = 0.0
        noise_R = torch.randint(0, 4, (num_rows,), generator=generator)
        for noisy in (False, True):
            drawn = draw_rows(
                scores_RV.to(device), noise_DV.to(device) if noisy else None, noise_R.to(device)
            )
            full_RV = noise_DV[noise_R] if noisy else None
            assert torch.equal(drawn.tokens_R.cpu(), draw(scores_RV, full_RV))
            if width > 1:
                assert torch.equal(drawn.margins_R.cpu(), margins(scores_RV, full_RV))


@pytest.mark.parametrize("device", DEVICES)
def test_noise_of_keys_is_the_noise(device: str) -> None:
    """Bit for bit what a CPU computes for the same seeds and positions."""
    seeds, positions = [0, 7, 2**64 - 1, 7], [0, 5, 123456, 6]
    expected_MV = GumbelNoise(1000, CPU).rows_many(seeds, positions)
    halves = torch.tensor(key_halves(seeds, positions), dtype=torch.int32, device=device)
    actual_MV = GumbelNoise(1000, torch.device(device)).of_keys(halves.view(2, -1))
    assert torch.equal(actual_MV.cpu().view(torch.int32), expected_MV.view(torch.int32)), (
        "not the same bits"
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("k", [0, 1, 4, 99])
def test_logprobs_are_the_logprobs(k: int, device: str) -> None:
    """Order among equals included."""
    generator = torch.Generator().manual_seed(k)
    logits_NV = torch.randint(-2, 3, (6, 9), generator=generator).float()
    logits_NV[3:] = torch.randn((3, 9), generator=generator)
    ids_N = torch.randint(0, 9, (6,), generator=generator)
    actual, expected = (
        logprobs_on_device(logits_NV.to(device), ids_N.to(device), k),
        logprobs(logits_NV, ids_N, k),
    )
    assert torch.equal(actual.top_ids_NK.cpu(), expected.top_ids_NK)
    torch.testing.assert_close(actual.chosen_N.cpu(), expected.chosen_N)
    torch.testing.assert_close(actual.top_NK.cpu(), expected.top_NK)


def test_values_where_a_walk_has_ended_are_any() -> None:
    """They are read, and not used."""
    values_R = torch.tensor([5, 6, 7])
    assert at_visited(values_R, torch.tensor([[0, 2, 3]])).tolist() == [[5, 7, 7]]
