"""Names of requests."""

from __future__ import annotations

import pytest

from outrider.cluster.validation.client_names import check_request_id
from outrider.cluster.validation.status_codes import Refusal


@pytest.mark.parametrize("name", ["a b", "ä", "x" * 129, "a\n", "a/b"])
def test_wrong_request_ids_are_refused(name: str) -> None:
    """Only what the contract allows."""
    with pytest.raises(Refusal, match="request_id must be"):
        check_request_id(name)


@pytest.mark.parametrize("name", ["", "a", "A.b_c:d-9", "x" * 128])
def test_right_request_ids_pass(name: str) -> None:
    """Everything that the contract allows."""
    check_request_id(name)
