"""What several kinds of candidates put into a pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from outrider.actors.target.candidates.candidate_store import Chosen

PER_NODE = [one.name for one in fields(Chosen) if one.name.endswith("_N")]


def chosen(entries: Sequence[int], *, tokens: float, first: int) -> Chosen:
    """Candidates of these entries; every number about them tells which it is."""
    arrays: dict[str, Any] = {
        name: np.arange(len(entries)) + first + 100 * place for place, name in enumerate(PER_NODE)
    }
    return Chosen(tokens=tokens, **{**arrays, "entries_N": np.array(entries, np.int64)})


def nodes(some: Chosen) -> list[tuple[float, ...]]:
    """All that is known of each candidate."""
    return list(zip(*(getattr(some, name).tolist() for name in PER_NODE), strict=True))


@pytest.mark.parametrize(
    "entries",
    [[[0, 0, 2], [1, 3, 3]], [[1, 3], [0, 0, 4], [2]], [[], [2, 2, 2], [0, 1, 1]]],
)
def test_entries_stay_together_and_in_order(entries: list[list[int]]) -> None:
    """Whatever kind each is of. The last kind counted the tokens of those before it."""
    parts = [chosen(own, tokens=2.0 + i, first=10 * i) for i, own in enumerate(entries)]
    whole = Chosen.united(parts)
    assert nodes(whole) == sorted(
        (node for part in parts for node in nodes(part)), key=lambda node: node[0]
    )
    assert whole.tokens == 2.0 + len(entries) - 1


def test_one_kind_alone_is_as_it_is_and_none_is_nothing() -> None:
    """With what it was worth; of nothing nothing is expected."""
    none, one = Chosen(tokens=3.0), chosen([0, 1], tokens=4.0, first=0)
    for parts in ([none, one], [one, none]):
        assert Chosen.united(parts) is one
    for empty in (Chosen.united([none, none]), Chosen.united([])):
        assert nodes(empty) == []
        assert (empty.tokens, empty.floor) == (0.0, 0.0)
