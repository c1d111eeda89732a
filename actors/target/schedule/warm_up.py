"""Timing passes of different sizes when a target starts, so that the cost model knows the shape of their times."""

from __future__ import annotations

import math
from collections.abc import Callable

from outrider.actors.engine.protocol import Engine, Moves, Rows
from outrider.actors.engine.staging import wait_for

WARM_UP_TURNS = 12
"""How often a size is timed, at most."""

WARM_UP_S = 0.5
"""No further turn after this time, and in the first no further size: a large model is not kept from starting."""

TIMED_ROWS = sorted((*(1 << bits for bits in range(18)), *(3 << bits for bits in range(5, 17))))
"""Sizes of passes that are timed, up to the largest: from 64 on two an octave, for a GPU's curve bends where arithmetic begins to take longer than
reading the weights."""

LEAST_SIZES = 4
"""So many sizes are timed whatever they take; what the others take is as if the curve went on straight."""


def time_passes(
    engine: Engine,
    clock: Callable[[], float],
    *,
    most_rows: int,
    context: int = 0,
    most_s: float = WARM_UP_S,
) -> dict[int, float]:
    """Seconds of a pass by number of rows; of the small sizes only, where the others would take too long.

    The largest pass there can be is timed, too: a line drawn on from before a bend promises rows for half their price.

    Args:
        engine: The target model; no slot is taken.
        clock: Seconds; monotone.
        most_rows: Rows of the largest pass there can be.
        context: Tokens before the rows, which attend to them: the dearer, the more rows there are.
        most_s: No further turn after so many seconds, and no further size of the first.
    """
    # A bush of so many rows has as many levels as their number has bits.
    levels = engine.spec.max_context - context
    room = min(engine.max_scratch, (1 << levels) - 1)
    most_rows = min(most_rows, room * engine.num_free)
    slots = [engine.acquire() for _ in range(-(-most_rows // room))]
    for slot in slots:
        for start in range(0, context, engine.max_scratch):
            part = min(engine.max_scratch, context - start)
            engine.forward([Rows(slot=slot, tokens=[0] * part, parents=range(-1, part - 1))])
            engine.rebase(Moves.one(slot, range(part)))
    # Between sizes that are nearly the same the slope would be chance.
    sizes = [rows for rows in TIMED_ROWS if rows < most_rows - most_rows // 8] + [most_rows]
    curve: dict[int, float] = {}
    taken = dict.fromkeys(sizes, 0.0)
    began = clock()
    for turn in range(WARM_UP_TURNS):
        # By turns, so that a slow moment of the machine does not bend the curve; the fastest of a size counts.
        for rows in sizes:
            if len(curve) >= LEAST_SIZES and rows not in curve and clock() - began > most_s:
                break
            if taken[rows] > most_s / len(sizes):
                # Large sizes leave the others their part of the time.
                continue
            parts = (min(room, rows - first) for first in range(0, rows, room))
            batch = [
                Rows(slot=slot, tokens=[0] * part, parents=_bush(part))
                for slot, part in zip(slots, parts, strict=False)
            ]
            started = clock()
            logits = engine.forward(batch)
            logits.wait()
            wait_for(engine.spec.device)
            seconds = clock() - started
            curve[rows] = min(curve.get(rows, math.inf), seconds)
            # Passes that are the first of their kind or recorded may take far longer than others: their sizes are timed again.
            if turn and not logits.recording_s:
                taken[rows] += seconds
            for one in batch:
                engine.truncate(one.slot, context)
        if clock() - began > most_s:
            break
    for slot in slots:
        engine.release(slot)
    return curve


def _bush(rows: int) -> list[int]:
    """Parents of a tree like those that are verified: a root, and nodes with two children each."""
    return [-1, *((node - 1) // 2 for node in range(1, rows))]
