"""The packed stream: repeatable, prefix-stable, mixed as asked."""

from __future__ import annotations

import numpy as np
import pytest

from outrider.actors.train.text.packing import Tokens, mix_stream, pack_rows, rows_of_step
from outrider.actors.train.training_errors import DataError


def sources() -> dict[str, list[Tokens]]:
    """Source a has tokens below 100, source b from 100 on."""
    a = [np.full(7, n, dtype=np.uint16) for n in range(40)]
    b = [np.full(3, 100 + n, dtype=np.uint16) for n in range(9)]
    return {"a": a, "b": b}


WEIGHTS = {"a": 3.0, "b": 1.0}


def test_stream_repeats() -> None:
    """The same seed gives the same stream, another seed another."""
    one, two = (mix_stream(sources(), WEIGHTS, 500, seed=1) for _ in range(2))
    assert one.tolist() == two.tolist()
    assert one.tolist() != mix_stream(sources(), WEIGHTS, 500, seed=2).tolist()


def test_longer_stream_begins_with_the_shorter() -> None:
    """A run can be lengthened without changing the past."""
    short, long = (mix_stream(sources(), WEIGHTS, n, seed=1) for n in (300, 900))
    assert short.tolist() == long[:300].tolist()


def test_mixture_holds_in_every_stretch() -> None:
    """Shares follow the weights, not the sizes, from start to end."""
    stream = mix_stream(sources(), WEIGHTS, 2000, seed=0)
    for part in np.split(stream, 10):
        assert 0.65 <= (part < 100).mean() <= 0.85


def test_every_document_comes_before_any_repeats() -> None:
    """An epoch is a permutation."""
    stream = mix_stream({"a": sources()["a"]}, WEIGHTS, 40 * 7, seed=3)
    assert sorted(set(stream.tolist())) == list(range(40))


def test_empty_source_is_an_error() -> None:
    """Nothing to train on is said, with the source's name."""
    with pytest.raises(DataError, match="source b: nothing to train on"):
        mix_stream({"a": sources()["a"], "b": []}, WEIGHTS, 10, seed=0)


def test_rows_of_a_step_do_not_depend_on_other_steps() -> None:
    """Step s reads its own stretch whatever the row length."""
    stream = np.arange(64, dtype=np.uint16)
    assert rows_of_step(stream, 1, 16, 8).tolist() == np.arange(16, 32).reshape(2, 8).tolist()
    assert rows_of_step(stream, 1, 16, 16).tolist() == [list(range(16, 32))]


def test_rows_beyond_the_stream_are_an_error() -> None:
    """A short stream is not silently reused."""
    with pytest.raises(DataError, match="step 4 needs tokens up to 80"):
        rows_of_step(np.zeros(64, dtype=np.uint16), 4, 16, 8)


def test_pack_rows_repeats_a_short_text() -> None:
    """A source with little held-out text still yields a row."""
    rows = pack_rows([np.arange(5, dtype=np.uint16)], 8, 3)
    assert rows.tolist() == [[0, 1, 2, 3, 4, 0, 1, 2]]


def test_pack_rows_keeps_to_the_limit() -> None:
    """At most `limit` rows are cut."""
    assert pack_rows([np.arange(100, dtype=np.uint16)], 8, 3).shape == (3, 8)
