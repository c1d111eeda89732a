"""The best tokens are those of `topk`."""

from __future__ import annotations

import pytest
import torch

from outrider.actors.draft.trees.scoring import FEW, best_tokens_


@pytest.mark.parametrize("count", [1, 4, FEW, FEW + 1, 40])
@pytest.mark.parametrize("num_rows", [0, 1, 5])
def test_scores_and_ids_are_those_of_topk(num_rows: int, count: int) -> None:
    """Best first, also of rows that lie apart in memory."""
    scores = torch.randn(num_rows, 80, generator=torch.Generator().manual_seed(1))
    for view in (scores[:, :40], scores[:, 40:], scores[:, ::2]):
        expected = view.topk(count)
        best, ids = best_tokens_(view.clone(memory_format=torch.preserve_format), count)
        assert torch.equal(best, expected.values)
        assert torch.equal(ids, expected.indices)


def test_equal_scores_give_different_tokens() -> None:
    """Also where every token is as bad as one that is excluded."""
    for count in (3, FEW, 20):
        _, ids = best_tokens_(torch.full((2, 20), -1e9), count)
        assert all(len(set(row)) == count for row in ids.tolist())
