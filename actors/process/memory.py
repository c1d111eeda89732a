"""Garbage collection of a process that has loaded its model and will serve for long.

Python looks for reference cycles each time some hundred containers have been made, and now and then through all there are. A
process with torch and a model has hundreds of thousands that stay to the end; looking through them stops every thread for a tenth of a
second on a slow core. What a round makes - lists of tokens, small records - holds no cycles and is freed without a search.
"""

from __future__ import annotations

import gc

YOUNG_OBJECTS = 20_000
"""Containers made, less those freed, before the young ones are searched; Python's default is 700. A busy drafter makes that many
in some dozens of passes."""


def settle() -> None:
    """Leaves what is there now out of every later search, and searches less often. Called once, when an actor serves."""
    gc.collect()
    gc.freeze()
    _, second, third = gc.get_threshold()
    gc.set_threshold(YOUNG_OBJECTS, second, third)
