"""The files of a folder that a model's weights are read from: those that transformers takes, whatever else lies beside them."""

from __future__ import annotations

import json
from pathlib import Path

from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME


def weight_files(folder: Path | None) -> list[Path]:
    """The safetensors files, ascending; none: the weights are in files of another kind, or not there.

    Args:
        folder: Where they lie; None: there is none.
    """
    if folder is None:
        return []
    if (whole := folder / SAFE_WEIGHTS_NAME).is_file():
        return [whole]
    try:
        index = json.loads((folder / SAFE_WEIGHTS_INDEX_NAME).read_text())
        return sorted({folder / name for name in index["weight_map"].values()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # Loading tells more.
        return []
