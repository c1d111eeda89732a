"""The file of a decision model, which lies beside the weights of its draft model: JSON, some kilobytes, no code in it.

It names the draft model that it was trained with, by fingerprint: beside another model it is not used.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import structlog

from outrider.actors.draft.stopping.decision_place import FILE_NAME
from outrider.actors.speculation.stop_model import DecisionModel

VERSION = 1
"""Of the file's form."""

DIGITS = 6
"""Significant digits of a weight: more than its training is worth."""

_log = structlog.get_logger(__name__)


def save_decision(folder: Path, model: DecisionModel, *, draft: str, report: object) -> Path:
    """Writes a decision model into the folder of its draft model.

    Args:
        folder: Of the draft model.
        model: The weights.
        draft: Fingerprint of the draft model.
        report: What was measured, for readers; plain JSON.
    """
    path = folder / FILE_NAME
    content = {
        "version": VERSION,
        "source": "decision model of arXiv 2409.10644: ten greatest probabilities and entropy of a row, 11-44-1",
        "draft": draft,
        "report": report,
        "hidden_FH": _rounded(model.hidden_FH),
        "hidden_bias_H": _rounded(model.hidden_bias_H),
        "output_H": _rounded(model.output_H),
        "output_bias": float(f"{model.output_bias:.{DIGITS}g}"),
    }
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(content) + "\n", encoding="utf-8")
    partial.replace(path)
    return path


def read_decision(path: Path) -> tuple[DecisionModel, str]:
    """A decision model and the fingerprint of its draft model.

    Raises:
        ValueError: The file is not such a model; the message says why.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["version"] != VERSION:
            raise ValueError(f"its version is {content['version']}, this program reads {VERSION}")
        model = DecisionModel(
            hidden_FH=np.array(content["hidden_FH"], dtype=np.float32),
            hidden_bias_H=np.array(content["hidden_bias_H"], dtype=np.float32),
            output_H=np.array(content["output_H"], dtype=np.float32),
            output_bias=float(content["output_bias"]),
        )
        return model, str(content["draft"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is not a decision model: {error!r}; write it with `outrider train decision`"
        ) from error


def find_decision(folder: Path | None, fingerprint: str) -> DecisionModel | None:
    """The decision model of a draft model; None if there is none, or only that of another draft model.

    Args:
        folder: Of the draft model; None if it has none.
        fingerprint: Of the draft model.

    Raises:
        ValueError: There is a file, and it cannot be read.
    """
    path = folder / FILE_NAME if folder is not None else None
    if path is None or not path.is_file():
        return None
    model, trained_for = read_decision(path)
    if trained_for != fingerprint:
        _log.warning(
            "the decision model belongs to another draft model; train it again with `outrider train decision`",
            file=str(path),
        )
        return None
    return model


def _rounded(weights: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> object:
    """Nested lists of numbers with few digits."""
    if weights.ndim > 1:
        return [_rounded(row) for row in weights]
    return [float(f"{weight:.{DIGITS}g}") for weight in weights.tolist()]
