"""Checks of drafting policies: what is unknown or contradicts is refused with its field and what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import grpc
import pytest
from tests.cluster.validation.cases import LIMITS, settle

from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.options import Speculation
from outrider.actors.speculation.policies import DraftPolicies, LengthChoice, RootPolicy
from outrider.cluster.config.config_service import SpeculationConfig as Configured
from outrider.cluster.validation.limits import KnownDrafter
from outrider.cluster.validation.status_codes import Refusal
from outrider.v1 import sampling_pb2

FULL, CONFIDENCE, DECISION = LengthChoice
LENGTH = sampling_pb2.DRAFT_LENGTH_CONFIDENCE
OFFERED = replace(
    LIMITS,
    verifiers=tuple(VERIFIERS),
    drafters=(
        KnownDrafter(name="full", verifiers=tuple(VERIFIERS), draft_lengths=(FULL,)),
        KnownDrafter(name="able", verifiers=tuple(VERIFIERS), draft_lengths=(FULL, CONFIDENCE)),
    ),
)


def settled(limits: Any = OFFERED, **options: Any) -> Any:
    """A request of some speculation options, settled."""
    return settle(limits, speculation=sampling_pb2.SpeculationOptions(**options))


@pytest.mark.parametrize(
    ("options", "field", "problem"),
    [
        ({"draft_length": 77}, "draft_length", "choose among full, confidence, decision"),
        ({"roots": 77}, "roots", "choose among draft, target"),
        ({"aggressiveness": 2.0}, "aggressiveness", "belongs to the draft length 'confidence'"),
        (
            {"decision_threshold": 0.1},
            "decision_threshold",
            "belongs to the draft length 'decision'",
        ),
        ({"draft_length": LENGTH, "decision_threshold": 0.1}, "decision_threshold", "'confidence'"),
        ({"draft_length": LENGTH, "aggressiveness": 0.0}, "aggressiveness", "(0, 8], got 0"),
        ({"draft_length": LENGTH, "aggressiveness": 9.0}, "aggressiveness", "(0, 8], got 9"),
        ({"draft_length": LENGTH, "aggressiveness": float("nan")}, "aggressiveness", "got nan"),
        ({"enabled": False, "draft_length": LENGTH}, "draft_length", "enabled is false"),
        ({"enabled": False, "roots": sampling_pb2.ROOTS_TARGET}, "roots", "enabled is false"),
        (
            {"draft_length": sampling_pb2.DRAFT_LENGTH_DECISION},
            "draft_length",
            "none of the drafters 'full', 'able' offers; offered: confidence, full",
        ),
        (
            {"draft_length": LENGTH, "drafters": ["full"]},
            "draft_length",
            "none of the drafters 'full' offers",
        ),
        (
            {"draft_length": LENGTH, "drafters": ["able", "full"]},
            "drafters[1]",
            "'full' cannot serve the draft length 'confidence', only full",
        ),
    ],
)
def test_wrong_policies_are_refused(options: dict[str, Any], field: str, problem: str) -> None:
    """With INVALID_ARGUMENT, the field's name, and the choices."""
    with pytest.raises(Refusal) as refused:
        settled(**options)
    assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.value.field == f"speculation.{field}"
    assert problem in refused.value.message


@pytest.mark.parametrize("verifier", list(VERIFIERS))
def test_roots_of_the_target_go_with_growing_trees_only(verifier: str) -> None:
    """A frozen tree must hold nothing but draws from the rows that come with it."""
    options = {"roots": sampling_pb2.ROOTS_TARGET, "verifier_name": verifier}
    if not VERIFIERS[verifier].needs_frozen_tree:
        assert settled(**options).speculation.policies.roots is RootPolicy.TARGET
        return
    with pytest.raises(Refusal, match="would change the text's law") as refused:
        settled(**options)
    assert refused.value.field == "speculation.roots"


def test_drafters_that_do_not_offer_the_length_are_left_out() -> None:
    """Unnamed drafters take part if they can; those that have not said yet may be able."""
    assert settled(draft_length=LENGTH).drafters == ("able",)
    unsaid = replace(
        OFFERED, drafters=(*OFFERED.drafters[:1], KnownDrafter(name="new", verifiers=()))
    )
    assert settled(unsaid, draft_length=LENGTH).drafters == ("new",)


def test_what_is_written_goes_through_and_the_rest_is_as_configured() -> None:
    """Defaults come from the configuration, and give way where they do not fit."""
    configured = Configured(
        draft_length=CONFIDENCE,
        roots=RootPolicy.TARGET,
        aggressiveness=3.0,
    ).policies
    limits = replace(OFFERED, speculation=Speculation(policies=configured))
    assert settled(limits).speculation.policies == configured
    frozen = settled(limits, verifier=sampling_pb2.VERIFIER_KSEQ).speculation.policies
    assert frozen == replace(configured, roots=RootPolicy.DRAFT)
    asked = settled(
        limits,
        draft_length=LENGTH,
        aggressiveness=0.5,
        roots=sampling_pb2.ROOTS_DRAFT,
    )
    assert asked.speculation.policies == DraftPolicies(draft_length=CONFIDENCE, aggressiveness=0.5)


def test_a_service_that_is_off_by_default_may_be_configured_with_policies() -> None:
    """Only what the client wrote contradicts."""
    limits = replace(
        OFFERED,
        speculation=Speculation(enabled=False, policies=DraftPolicies(draft_length=DECISION)),
    )
    assert settled(limits).drafters == ()
