"""Which drafters a request may use."""

from __future__ import annotations

import pytest
from tests.cluster.validation.cases import LIMITS, settle

from outrider.cluster.validation.client_names import check_model
from outrider.cluster.validation.status_codes import Refusal
from outrider.v1 import sampling_pb2


def test_refusals_list_what_there_is() -> None:
    """Known drafters and offered verifiers are named."""
    with pytest.raises(Refusal, match="known drafters: 'a', 'b', 'alien'"):
        settle(speculation={"drafters": ["nobody"]})
    with pytest.raises(Refusal, match="offered: coupled, exact_match"):
        settle(speculation={"verifier": sampling_pb2.VERIFIER_BLOCK})
    with pytest.raises(Refusal, match="known models: 'm'"):
        check_model("other", LIMITS, known=("m",))


def test_drafters_are_taken_as_asked_and_none_without_speculation() -> None:
    """The order of the request stands; plain decoding uses nobody."""
    assert settle(speculation={"drafters": ["b", "a"]}).drafters == ("b", "a")
    assert settle(speculation={"enabled": False}).drafters == ()
    only_b = settle(speculation={"verifier": sampling_pb2.VERIFIER_EXACT_MATCH})
    assert only_b.drafters == ("b",)
