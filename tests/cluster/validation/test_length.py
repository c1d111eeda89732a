"""How much output there is room for, and what may be resumed."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from tests.cluster.validation.cases import INVALID, RANGE, settle

from outrider.cluster.validation.status_codes import Refusal


def test_the_default_length_is_what_the_context_leaves() -> None:
    """A long prompt shortens the default, and only the default."""
    assert settle(prompt_length=45).sampling.max_tokens == 5


RESUME: list[tuple[dict[str, Any], list[int], grpc.StatusCode, str]] = [
    ({}, [1], INVALID, "resume"),
    ({"seed": 1, "n": 2}, [1], INVALID, "resume"),
    ({"seed": 1}, [100], RANGE, "resume.ids[0]"),
    ({"seed": 1, "max_tokens": 2}, [1, 2, 3], INVALID, "resume.ids"),
]


@pytest.mark.parametrize(("options", "ids", "code", "field"), RESUME)
def test_wrong_resumption_is_refused(
    options: dict[str, Any], ids: list[int], code: grpc.StatusCode, field: str
) -> None:
    """Resuming needs a seed, one sequence, and tokens that can have been received."""
    with pytest.raises(Refusal) as refused:
        settle(sampling=options, resume={"ids": ids})
    assert (refused.value.code, refused.value.field) == (code, field)
