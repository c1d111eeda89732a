"""The name under which a model takes its keys and values: transformers renamed it in 5.24, and will drop the old one."""

from __future__ import annotations

import inspect

from transformers import PreTrainedModel

NAMES = ("cache", "past_key_values")
"""The newer first."""


def cache_argument(model: PreTrainedModel) -> str | None:
    """The argument of the model's forward that is its cache of keys and values; None: it takes none."""
    known = inspect.signature(model.forward).parameters
    return next((name for name in NAMES if name in known), None)
