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

PROMPT_PARTS = (0.25, 1.0, 1.0)
"""Parts of a chunk of a prompt that are timed, one after the other; the first tells soon where the whole takes long."""

WARM_UP_S = 0.5
"""No further turn after this time, and in the first no further size: a large model is not kept from starting."""

PROMPT_S = 0.1
"""No further part of a chunk after this time: a whole one after a quarter that took less takes some `WARM_UP_S` at most."""

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


def time_prompt_row(engine: Engine, clock: Callable[[], float], rows: int) -> float:
    """Seconds of one row of a prompt that is run in chunks of so many: far less than of a row in a small pass over a tree.

    Args:
        engine: The target model; a slot must be free.
        clock: Seconds; monotone.
        rows: Of a chunk; as many as fit are timed, and fewer where that takes long.
    """
    slot = engine.acquire()
    most = min(rows, engine.max_scratch, engine.spec.max_context - 1)
    row_s = math.inf
    began = clock()
    for part in PROMPT_PARTS:
        count = max(1, int(part * most))
        started = clock()
        chunk = Rows(slot=slot, tokens=[0] * count, parents=range(-1, count - 1), logits="last")
        engine.forward([chunk]).wait()
        wait_for(engine.spec.device)
        row_s = min(row_s, (clock() - started) / count)
        engine.truncate(slot, 0)
        if clock() - began > PROMPT_S:
            break
    engine.release(slot)
    return row_s


def _bush(rows: int) -> list[int]:
    """Parents of a tree like those that are verified: a root, and nodes with two children each."""
    return [-1, *((node - 1) // 2 for node in range(1, rows))]
