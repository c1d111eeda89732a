"""Which reading of a block's slots leads, by counts told with loops and by every outcome of a fair coin."""

from __future__ import annotations

import math
import random
from itertools import product

import numpy as np
import pytest

from outrider.actors.draft.block.layout_probe import LEAST, MOST, SURE, Layout, LayoutProbe

PATTERNS = list(product([False, True], repeat=3))
"""Which of three readings foresee a token."""


def plain(rows: list[tuple[bool, ...]], chunks: list[int]) -> tuple[Layout | None, int]:
    """What is found, and after how many chunks; looked at after chunks that bring 64, 128, .. telling tokens together."""
    told: list[tuple[bool, ...]] = []
    looks_at, start = LEAST, 0
    for number, size in enumerate(chunks, 1):
        told += [row for row in rows[start : start + size] if not all(row)]
        start += size
        if len(told) < looks_at:
            continue
        while looks_at <= len(told):
            looks_at *= 2
        hits = tuple(sum(row[k] for row in told) for k in range(3))
        best = hits.index(max(hits))
        is_sure = True
        for other in {0, 1, 2} - {best}:
            won = sum(row[best] and not row[other] for row in told)
            lost = sum(row[other] and not row[best] for row in told)
            is_sure &= won > lost and (won - lost) / math.sqrt(won + lost) >= SURE
        if is_sure or len(told) >= MOST:
            first = best if is_sure and best < 2 else None
            return Layout(first_slot=first, hits=hits, num=len(told)), number
    return None, len(chunks)


@pytest.mark.parametrize("seed", range(60))
def test_it_finds_what_counting_finds(seed: int) -> None:
    """Nets of all kinds, tokens in chunks of all sizes: the same finding after the same chunk."""
    rng = random.Random(seed)
    # Some foresee much, some hardly anything, one reading or another the most.
    weights = [rng.random() ** rng.choice([1, 3, 8]) for _ in PATTERNS]
    rows = rng.choices(PATTERNS, weights, k=2 * MOST)
    chunks: list[int] = []
    while sum(chunks) < len(rows):
        chunks.append(rng.choice([0, 1, 6, 40, 200]))
    expected, after = plain(rows, chunks)
    probe, start, found = LayoutProbe(), 0, None
    for number, size in enumerate(chunks, 1):
        some = np.array(rows[start : start + size], np.bool_).reshape(-1, 3)
        found, start = probe.add(some), start + size
        if found is not None:
            assert number == after
            break
    assert found == expected


def test_every_sum_of_tosses_of_a_fair_coin() -> None:
    """Of equally good readings one leads by chance in one of 10,000 looks at most, however many tokens tell them apart."""
    for tosses in range(1, MOST + 1):
        chance = sum(
            math.comb(tosses, won)
            for won in range(tosses + 1)
            if abs(2 * won - tosses) >= SURE * math.sqrt(tosses)
        )
        assert chance <= 2**tosses / 10_000


def same(*row: bool, times: int) -> np.ndarray:
    """A token that some readings foresee, so many times."""
    return np.tile(np.array(row), (times, 1))


@pytest.mark.parametrize(("row", "first_slot"), [((1, 0, 0), 0), ((0, 1, 0), 1), ((0, 0, 1), None)])
def test_sixty_four_tokens_of_a_good_net_are_enough(
    row: tuple[bool, ...], first_slot: int | None
) -> None:
    """And one fewer are not. A net that is right by the reading that nobody trains is right by none."""
    probe = LayoutProbe()
    foreseen, others = (
        same(*map(bool, row), times=16),
        same(False, False, False, times=LEAST - 17),
    )
    assert probe.add(np.concatenate((foreseen, others))) is None
    found = probe.add(same(False, False, False, times=1))
    if first_slot is None:
        # The last look: nobody leads so far, and it might still be a weak net.
        assert found is not None
        assert found.first_slot is None
    else:
        assert found == Layout(first_slot=first_slot, hits=tuple(16 * k for k in row), num=LEAST)


def test_a_net_that_foresees_nothing_is_told_of_once() -> None:
    """After `MOST` tokens, and not before."""
    probe = LayoutProbe()
    assert probe.add(same(False, False, False, times=MOST - 1)) is None
    found = probe.add(same(False, False, False, times=1))
    assert found == Layout(first_slot=None, hits=(0, 0, 0), num=MOST)


def test_runs_of_one_token_say_nothing() -> None:
    """However many there are."""
    probe = LayoutProbe()
    assert probe.add(same(True, True, True, times=4 * MOST)) is None
    assert probe.add(same(True, False, False, times=LEAST - 1)) is None
    assert probe.add(same(True, False, False, times=1)) == Layout(
        first_slot=0, hits=(LEAST, 0, 0), num=LEAST
    )


def test_what_people_are_told() -> None:
    """What was found, whether it is what was read, and by which figures."""
    right = Layout(first_slot=1, hits=(3, 45, 2), num=64)
    figures = "of 64 known tokens 3 are foreseen with true, 45 with false, 2 one slot further"
    assert right.note(1) == (
        f"each slot predicts the token at its own place, sample_from_anchor: false: {figures}"
    )
    wrong = right.note(0)
    assert wrong.startswith("it was read with sample_from_anchor: true, but each slot predicts")
    assert "read with sample_from_anchor: false from now on" in wrong
    assert figures in wrong
    none = Layout(first_slot=None, hits=(3, 1, 2), num=MOST).note(0)
    assert "stays at sample_from_anchor: true; it is not trained, or for another target" in none
