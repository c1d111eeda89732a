"""After which layers a model has exits, by its `config.json`. Without torch: the configuration asks, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

KEY = "exits"
"""Of `config.json`: numbers of layers, ascending. transformers keeps and ignores it, so the checkpoint is a plain model, too."""


def exits_of(exits: Sequence[int], said: Any, num_layers: int, name: str) -> tuple[int, ...]:
    """The exits of a model.

    Args:
        exits: Those that were chosen; empty: as the checkpoint says.
        said: What that says, None: nothing.
        num_layers: That it has.
        name: Of the model, for the message.

    Raises:
        ValueError: It has no such exits, or none.
    """
    given = exits or said
    if not given:
        raise ValueError(
            f"{name!r} has no {KEY!r} in its config.json: train one with `outrider train sorted`, or set the option {KEY}"
        )
    if not isinstance(given, list | tuple):
        raise ValueError(f"{name!r}: {KEY} is {given!r}; it must be a list of numbers of layers")  # noqa: TRY004 - it is the file that is wrong
    try:
        check_exits(given, num_layers)
    except ValueError as error:
        raise ValueError(f"{name!r}: {error}") from None
    return tuple(given)


def check_exits(exits: Sequence[int], num_layers: int) -> None:
    """Refuses exits that a model does not have.

    Raises:
        ValueError: There are none, they do not ascend, or lie outside the model.
    """
    is_fine = bool(exits) and all(isinstance(one, int) and one > 0 for one in exits)
    if not is_fine or list(exits) != sorted(set(exits)) or exits[-1] > num_layers:
        raise ValueError(
            f"exits is {list(exits)}; they must be ascending numbers of layers, 1 to {num_layers}"
        )
