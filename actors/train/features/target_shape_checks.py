"""What the shape of a target forbids a net that reads its states. Without torch: options are checked before the target is loaded."""

from __future__ import annotations

import numpy as np

from outrider.actors.exchange.feedback_request import Layer


def taps_of(count: int, num_blocks: int) -> tuple[Layer, ...]:
    """So many layers, evenly from the output of the second block to that of the last but two.

    Args:
        count: Layers, at least 1.
        num_blocks: Blocks of the target.

    Raises:
        ValueError: There are not so many from the one to the other: the net would have fewer than was asked for.
    """
    second = min(2, num_blocks - 1)
    last_but_two = max(num_blocks - 2, min(1, num_blocks - 1))
    first, last = sorted((second, last_but_two))
    most = last - first + 1
    if count > most:
        raise ValueError(
            f"taps is {count}; of the target's {num_blocks} blocks layers {first} to {last} are read, so give 1 to {most}"
        )
    return tuple(int(place) for place in np.linspace(first, last, count).round())


def check_heads(num_heads: int, width: int) -> None:
    """Refuses heads of unequal or odd size: they are parts of the target's width, rotated in pairs.

    Args:
        num_heads: Heads, at least 1.
        width: Numbers of a hidden state of the target.

    Raises:
        ValueError: They do not fit.
    """
    if width % (2 * num_heads):
        raise ValueError(
            f"num_heads is {num_heads}; it must divide the target's width {width} into even parts"
        )
