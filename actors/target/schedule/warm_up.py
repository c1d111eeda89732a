"""Timing passes of different sizes when a target starts, so that the cost model knows the shape of their times."""

from __future__ import annotations

import math
from collections.abc import Callable

from outrider.actors.engine.protocol import Engine, Moves, Rows
from outrider.actors.engine.staging import wait_for

WARM_UP_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Sizes of the passes that are timed: up to the candidates of a full pass, for a GPU's curve bends between 64 rows and 256."""

WARM_UP_TURNS = 12
"""How often all sizes are timed."""

WARM_UP_S = 0.5
"""No further turn after this time, and in the first no further size: a large model is not kept from starting."""

LEAST_SIZES = 4
"""So many sizes are timed whatever they take; what the others take is as if the curve went on straight."""


def time_passes(
    engine: Engine, clock: Callable[[], float], *, context: int = 0, most_s: float = WARM_UP_S
) -> dict[int, float]:
    """Seconds of a pass by number of rows; of the small sizes only, where the others would take too long.

    Args:
        engine: The target model; a slot must be free.
        clock: Seconds; monotone.
        context: Tokens before the rows, which attend to them: the dearer, the more rows there are.
        most_s: No further turn after so many seconds, and no further size of the first.
    """
    slot = engine.acquire()
    for start in range(0, context, engine.max_scratch):
        count = min(engine.max_scratch, context - start)
        engine.forward([Rows(slot=slot, tokens=[0] * count, parents=range(-1, count - 1))])
        engine.rebase(Moves.one(slot, range(count)))
    # A bush of so many rows has as many levels as their number has bits.
    levels = engine.spec.max_context - context
    sizes = [
        rows for rows in WARM_UP_ROWS if rows <= engine.max_scratch and rows.bit_length() <= levels
    ]
    curve: dict[int, float] = {}
    began = clock()
    for _ in range(WARM_UP_TURNS):
        # By turns, so that a slow moment of the machine does not bend the curve; the fastest of a size counts.
        for rows in sizes:
            if len(curve) >= LEAST_SIZES and rows not in curve and clock() - began > most_s:
                break
            batch = [Rows(slot=slot, tokens=[0] * rows, parents=_bush(rows))]
            started = clock()
            engine.forward(batch).wait()
            wait_for(engine.spec.device)
            curve[rows] = min(curve.get(rows, math.inf), clock() - started)
            engine.truncate(slot, context)
        if clock() - began > most_s:
            break
    engine.release(slot)
    return curve


def _bush(rows: int) -> list[int]:
    """Parents of a tree like those that are verified: a root, and nodes with two children each."""
    return [-1, *((node - 1) // 2 for node in range(1, rows))]
