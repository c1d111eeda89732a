"""Tables as models: exact, and as strict as real ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.protocol import Engine, Moves, NoFreeSlot, Rows, SlotOverflow
from outrider.actors.engine.tables.tabular_engine import (
    Table,
    TabularEngine,
    load_table,
    random_table,
)

SETTINGS = EngineSettings(model="table", num_slots=2, max_context=64, max_scratch=16)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2), st.integers(0, 10_000))
def test_logits_are_the_tables_after_each_branch(order: int, seed: int) -> None:
    """Whatever was committed, kept or dropped before, a row's logits are the table's for the tokens of its own text."""
    rng = np.random.default_rng(seed)
    table = random_table(7, order, seed=seed)
    engine = TabularEngine(table, SETTINGS)
    slot = engine.acquire()
    text: list[int] = []
    tree: list[tuple[int, list[int]]] = []  # parent and path of tokens of each scratch row
    for _ in range(4):
        tokens, parents, first = [], [], len(tree)
        for row in range(first, first + 4):
            parents.append(int(rng.integers(-1, row)))
            tokens.append(int(rng.integers(7)))
            above = tree[parents[-1]][1] if parents[-1] >= 0 else []
            tree.append((parents[-1], [*above, tokens[-1]]))
        logits = engine.forward([Rows(slot=slot, tokens=tokens, parents=parents)]).of(0)
        expected = np.stack([table.log_probs_after(text + above) for _, above in tree[first:]])
        np.testing.assert_array_equal(expected.astype(np.float32), logits.numpy())
        end = int(rng.integers(len(tree)))
        path: list[int] = []
        node = end
        while node >= 0:
            path.insert(0, node)
            node = tree[node][0]
        kept = [end]
        for row, (parent, _) in enumerate(tree):
            if parent in kept:
                kept.append(row)
        engine.rebase(Moves.one(slot, path, kept[1:]))
        committed = tree[end][1]
        text += committed
        tree = [(kept.index(tree[row][0]) - 1, tree[row][1][len(committed) :]) for row in kept[1:]]
        assert (len(text), len(tree)) == (engine.cached(slot), engine.scratch(slot))


def test_copies_and_truncations_keep_the_text() -> None:
    """A copied or truncated text goes on as the shorter text."""
    table = random_table(5, 2, seed=1)
    engine = TabularEngine(table, SETTINGS)
    a, b = engine.acquire(), engine.acquire()
    engine.forward([Rows(slot=a, tokens=[1, 2, 3], parents=[-1, 0, 1])])
    engine.rebase(Moves.one(a, [0, 1, 2]))
    engine.copy_prefix(a, b, 2)
    engine.truncate(a, 1)
    logits = engine.forward(
        [Rows(slot=a, tokens=[4], parents=[-1]), Rows(slot=b, tokens=[4], parents=[-1])]
    )
    expected = np.stack([table.log_probs_after([1, 4]), table.log_probs_after([1, 2, 4])])
    np.testing.assert_array_equal(expected.astype(np.float32), logits.values_RV.numpy())
    engine.release(b)
    assert engine.acquire() == 1
    assert (engine.cached(1), engine.scratch(1)) == (0, 0)


def test_logits_of_last_and_none() -> None:
    """Only the wanted rows come back."""
    table = random_table(5, 1, seed=1)
    engine = TabularEngine(table, SETTINGS)
    a, b = engine.acquire(), engine.acquire()
    logits = engine.forward(
        [
            Rows(slot=a, tokens=[1, 2], parents=[-1, 0], logits="none"),
            Rows(slot=b, tokens=[3, 4], parents=[-1, 0], logits="last"),
        ]
    )
    assert logits.offsets == (0, 0, 1)
    assert torch.float32 == logits.values_RV.dtype
    np.testing.assert_array_equal(
        table.log_probs_after([4]).astype(np.float32), logits.of(1)[0].numpy()
    )


def test_refusals_are_those_of_a_real_engine() -> None:
    """Overflow, wrong ids and missing slots are refused, and nothing changes."""
    engine: Engine = TabularEngine(random_table(5, 1, seed=1), SETTINGS)
    engine.acquire()
    with pytest.raises(SlotOverflow, match="max_scratch is 16"):
        engine.forward([Rows(slot=0, tokens=[1] * 17, parents=[-1] * 17)])
    with pytest.raises(ValueError, match="token id 5 is outside"):
        engine.forward([Rows(slot=0, tokens=[1, 5], parents=[-1, -1])])
    assert (engine.cached(0), engine.scratch(0)) == (0, 0)
    engine.acquire()
    with pytest.raises(NoFreeSlot):
        engine.acquire()


def test_saved_tables_are_equal(tmp_path: Path) -> None:
    """A table survives its file, and its fingerprint says so; another table's differs."""
    table = random_table(5, 2, seed=1, eos_token_ids=(3,))
    table.save(tmp_path / "table.npz")
    loaded = load_table(tmp_path / "table.npz")
    np.testing.assert_array_equal(table.log_probs, loaded.log_probs)
    assert loaded.eos_token_ids == (3,)
    assert table.fingerprint == loaded.fingerprint
    assert table.fingerprint != random_table(5, 2, seed=2, eos_token_ids=(3,)).fingerprint
    assert table.fingerprint != random_table(5, 2, seed=1).fingerprint


def test_file_that_is_no_table(tmp_path: Path) -> None:
    """Other files are refused by name."""
    for name, content in {"text": b"hello", "empty": b""}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"{name} is not a table of distributions"):
            load_table(tmp_path / name)
    np.savez(tmp_path / "other.npz", rows=np.zeros(3))
    with pytest.raises(ValueError, match=r"other\.npz is not a table"):
        load_table(tmp_path / "other.npz")


def test_a_damaged_table_is_refused(tmp_path: Path) -> None:
    """By name, wherever the damage lies."""
    table = random_table(5, 1, seed=1)
    whole = tmp_path / "whole.npz"
    np.savez_compressed(whole, log_probs=table.log_probs, eos_token_ids=np.array([0]))
    written = whole.read_bytes()
    said = []
    for place in range(len(written)):
        (tmp_path / "damaged.npz").write_bytes(
            written[:place] + bytes([written[place] ^ 0xFF]) + written[place + 1 :]
        )
        try:
            load_table(tmp_path / "damaged.npz")
        except ValueError as error:
            said.append(str(error))
    assert len(said) > len(written) / 2
    assert all("damaged.npz" in one for one in said)
    np.savez(tmp_path / "damaged.npz", log_probs=table.log_probs, eos_token_ids=[np.inf])
    with pytest.raises(ValueError, match=r"damaged\.npz is not a table"):
        load_table(tmp_path / "damaged.npz")


def test_a_table_that_is_no_distribution_is_refused_by_name(tmp_path: Path) -> None:
    """A file of the right form with other numbers."""
    np.savez(tmp_path / "wide.npz", log_probs=np.full((2, 2), np.nan), eos_token_ids=[0])
    with pytest.raises(ValueError, match=r"wide\.npz: probabilities sum to nan"):
        load_table(tmp_path / "wide.npz")


@pytest.mark.parametrize(
    ("log_probs", "message"),
    [
        (np.zeros((2, 3)), "equal axes"),
        (np.zeros(()), "equal axes"),
        (np.zeros((0, 0)), "one token at least"),
        (np.zeros((2, 2, 2, 2)), "1 to 3 equal axes"),
        (np.zeros((2, 2)), "normalise"),
        (np.zeros((2, 2), dtype=np.int64), "float32 or float64"),
    ],
)
def test_what_is_no_table(log_probs: object, message: str) -> None:
    """Arrays that are no distributions are refused."""
    with pytest.raises(ValueError, match=message):
        Table(log_probs=log_probs)  # type: ignore[arg-type]


def test_end_of_text_must_be_a_token() -> None:
    """An end-of-text id outside the vocabulary is refused."""
    with pytest.raises(ValueError, match="eos_token_ids has 5"):
        random_table(5, 0, seed=0, eos_token_ids=(5,))


@pytest.mark.parametrize("concentration", [1e-3, 0.1, 1.0, 100.0])
def test_random_tables_have_the_asked_concentration(concentration: float) -> None:
    """Rows are distributions whose greatest probability falls with the concentration, as a Dirichlet's does."""
    table = random_table(8, 2, seed=0, concentration=concentration)
    probs = np.exp(table.log_probs)
    np.testing.assert_allclose(probs.sum(-1), 1.0, atol=1e-9)
    assert not np.isnan(table.log_probs).any()
    # A symmetric Dirichlet's squared probabilities sum to (c + 1) / (V c + 1) in the mean.
    expected = (concentration + 1) / (8 * concentration + 1)
    assert abs((probs**2).sum(-1).mean() - expected) < 0.06
    equal = random_table(8, 2, seed=0, concentration=concentration)
    np.testing.assert_array_equal(table.log_probs, equal.log_probs)


@pytest.mark.parametrize(("order", "concentration"), [(3, 1.0), (-1, 1.0), (1, 0.0)])
def test_random_table_bounds(order: int, concentration: float) -> None:
    """Orders and concentrations out of bounds are refused."""
    with pytest.raises(ValueError, match=r"it must be 0 to 2|must be positive"):
        random_table(4, order, seed=0, concentration=concentration)
