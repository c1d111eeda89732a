"""What a draft actor is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.engine.engine_settings import EngineSettings

GOOD = DraftSettings(name="d", incarnation=1, engine=EngineSettings(model="tabular:x"))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("method", "guessing"),
        ("engine", None),
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


def test_prompt_lookup_needs_no_model() -> None:
    """A method without a model is complete without an engine."""
    assert replace(GOOD, method="prompt_lookup", engine=None).engine is None
