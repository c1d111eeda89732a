"""The arguments of a model's forward that tree attention needs.

The one for keys and values was renamed in transformers 5.24, which will drop the old name.
"""

from __future__ import annotations

import inspect

from transformers import PreTrainedModel

from outrider.actors.engine.attention.attention import UnsupportedModel

NAMES = ("cache", "past_key_values")
"""The newer first."""


def cache_argument(model: PreTrainedModel | type[PreTrainedModel]) -> str | None:
    """The argument of the model's forward that is its cache of keys and values; None: it takes none."""
    known = inspect.signature(model.forward).parameters
    return next((name for name in NAMES if name in known), None)


def check_arguments(model: PreTrainedModel | type[PreTrainedModel], *, title: str) -> None:
    """Refuses a model, or a class of models, that cannot be told positions or takes no cache.

    Args:
        model: The model, or its class.
        title: What errors call it.

    Raises:
        UnsupportedModel: It is one.
    """
    missing = {"position_ids"} - set(inspect.signature(model.forward).parameters)
    if cache_argument(model) is None:
        missing.add("cache of keys and values")
    if missing:
        raise UnsupportedModel(
            f"{title} takes no {' and no '.join(sorted(missing))}; "
            "tree attention needs explicit positions and a cache"
        )
