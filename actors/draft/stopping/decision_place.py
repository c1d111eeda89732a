"""Whether a draft model has a decision model. Without torch: the configuration asks, too."""

from __future__ import annotations

from pathlib import Path

from outrider.actors.engine.checkpoint.model_source import resolve_model
from outrider.actors.speculation.policies import LengthChoice

FILE_NAME = "decision.json"
"""Beside `config.json` of the draft model."""


def folder_of(model: str) -> Path | None:
    """Folder of a draft model that lies on this machine; None: it has none, or lies elsewhere.

    Raises:
        ValueError: There is no such folder.
    """
    source = resolve_model(model)
    return Path(source.location) if source.is_local and not source.is_tabular else None


def lengths_of(model: str) -> tuple[LengthChoice, ...]:
    """Length policies of a draft model; all of them where its folder is not on this machine."""
    try:
        source = resolve_model(model)
    except ValueError:
        return tuple(LengthChoice)
    if source.is_local and (source.is_tabular or not (Path(source.location) / FILE_NAME).is_file()):
        return LengthChoice.FULL, LengthChoice.CONFIDENCE
    return tuple(LengthChoice)
