"""What a draft actor is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from outrider.actors.draft.choice.drafter_registry import DRAFTERS
from outrider.actors.draft.service import draft_server
from outrider.actors.draft.service.draft_server import load_method
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.draft.state.drafter_spec import DrafterSpec, TargetNeed
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.exchange.feedback_request import FeedbackRequest

GOOD = DraftSettings(name="d", incarnation=1, engine=EngineSettings(model="tabular:x"))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_slots", 0),
        ("width", 0),
        ("max_ahead", 0),
        ("prefill_chunk", 0),
    ],
)
def test_wrong_settings_are_named(field: str, value: object) -> None:
    """The error says which field, its value and what is possible."""
    with pytest.raises(ValueError, match=field):
        replace(GOOD, **{field: value})  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            replace(GOOD, method="guessing"),
            "method is 'guessing'; it must be one of autoregressive,.*has to be installed where the drafter runs",
        ),
        (replace(GOOD, engine=None), "engine is absent; the method autoregressive needs"),
        (
            replace(GOOD, method="prompt_lookup", options={"size": 3}),
            "has no option 'size'; it has",
        ),
        (replace(GOOD, method="prompt_lookup", options={"max_nodes": 0}), "max_nodes is 0"),
    ],
)
def test_a_method_that_cannot_be_loaded_says_why(settings: DraftSettings, problem: str) -> None:
    """Before anything is loaded."""
    with pytest.raises(ValueError, match=problem):
        load_method(settings)


def nothing(settings: DraftSettings) -> Any:
    """Builds no drafter."""
    return None


def missing(settings: DraftSettings) -> Any:
    """Looks for an option that nobody gave."""
    return settings.options["weights"]


@pytest.mark.parametrize(
    ("build", "problem"),
    [
        (nothing, "method odd built None, which is no LoadedDrafter"),
        (
            missing,
            r"method odd cannot be built: KeyError: 'weights' \(.*test_settings.py, line \d+\)",
        ),
    ],
)
def test_a_method_that_builds_nothing_says_which_and_where(
    monkeypatch: pytest.MonkeyPatch, build: Callable[[DraftSettings], Any], problem: str
) -> None:
    """It is code of another package, and what it raised may be a word."""
    spec = DrafterSpec(name="odd", build=build, summary="of no use")
    monkeypatch.setattr(draft_server, "DRAFTERS", {"odd": spec})
    with pytest.raises(ValueError, match=problem):
        load_method(replace(GOOD, method="odd", engine=None))


@pytest.mark.parametrize(
    ("needs", "feedback", "problem"),
    [
        ({TargetNeed.HIDDEN_STATES}, None, "does not ask for hidden_states"),
        (set(), FeedbackRequest(top_k=2), "asks for top_rows, and its needs are tokens"),
        ({TargetNeed.HIDDEN_STATES}, FeedbackRequest(layers=(1,)), "lacks take_features"),
    ],
)
def test_a_method_asks_for_what_it_says_and_reads_it(
    needs: set[TargetNeed], feedback: FeedbackRequest | None, problem: str
) -> None:
    """Otherwise it is refused by name."""
    described = replace(DRAFTERS["prompt_lookup"], needs=frozenset({TargetNeed.TOKENS, *needs}))
    loaded = described.build(replace(GOOD, method="prompt_lookup"))
    with pytest.raises(ValueError, match=f"prompt_lookup.*{problem}"):
        described.check_feedback(replace(loaded, feedback=feedback))


def test_prompt_lookup_needs_no_model() -> None:
    """A method without a model is complete without an engine."""
    assert replace(GOOD, method="prompt_lookup", engine=None).engine is None
