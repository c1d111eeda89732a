"""Hidden states of a pass: the layers and rows that were asked for, of every engine that has some."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from tests.actors.engine.graphs.tape import TapeRecorder
from tests.actors.engine.graphs.test_static_pass import static_of
from transformers import PreTrainedModel

from outrider.actors.engine.graphs.cuda_graph import EagerRecorder, GraphRecorder
from outrider.actors.engine.models import transformers_engine
from outrider.actors.engine.models.transformers_engine import TransformersEngine
from outrider.actors.engine.protocol import Batch, Engine, Logits, Rows, Taps
from outrider.actors.engine.tables.tabular_engine import NUM_BLOCKS, TabularEngine, random_table

TEXT = [5, 9, 2, 40, 17, 3]

WAYS = [("llama", True), ("llama", False), ("qwen3", True), ("gpt2", True), ("gpt_neox", True)]
"""Families, and whether the weights are run where their shape allows it."""


def tapped(engine: Engine, batch: Batch, layers: tuple[int, ...], rows: list[int]) -> Logits:
    """What a pass gives when these are asked for."""
    batch.taps = Taps(layers=layers, rows_K=np.array(rows))
    return engine.forward(batch)


@pytest.mark.parametrize(("family", "direct"), WAYS)
def test_states_are_those_of_the_model(
    family: str,
    direct: bool,
    make_engine: Callable[..., TransformersEngine],
    plain_model: Callable[[str], PreTrainedModel],
) -> None:
    """The input of each block, what the last one gives, and what the head is given; of tree rows, too."""
    engine = make_engine(family, direct_forward=direct)
    num_blocks = engine.spec.num_blocks
    slot = engine.acquire()
    # The text's end as a tree: its last token beside another one.
    rows = Rows(
        slot=slot,
        tokens=[*TEXT[:-1], 8, TEXT[-1]],
        parents=[*range(-1, len(TEXT) - 2), len(TEXT) - 2, len(TEXT) - 2],
    )
    places = [0, 2, 4, 6]
    found = tapped(engine, Batch.of([rows]), tuple(range(num_blocks + 2)), places)

    model = plain_model(family)
    with torch.inference_mode():
        said = model(torch.tensor([TEXT]), output_hidden_states=True)
    states = found.hidden_KLD
    assert states is not None
    assert states.shape == (len(places), num_blocks + 2, engine.spec.width)
    of_text = [0, 2, 4, 5]
    for layer in range(num_blocks):
        want = said.hidden_states[layer][0, of_text]
        torch.testing.assert_close(states[:, layer], want, atol=1e-5, rtol=1e-5)
    head = model.get_output_embeddings()  # type: ignore[no-untyped-call]  # untyped in transformers
    with torch.inference_mode():
        logits = head(states[:, num_blocks + 1])
    torch.testing.assert_close(logits, said.logits[0, of_text], atol=1e-4, rtol=1e-4)
    # The last block's own output is no normalised state, and no input of the block.
    for other in (num_blocks - 1, num_blocks + 1):
        assert not torch.allclose(states[:, num_blocks], states[:, other], atol=1e-3)


@pytest.mark.parametrize("recorder", [EagerRecorder, TapeRecorder])
@pytest.mark.parametrize(("family", "direct"), WAYS)
def test_recorded_passes_keep_states_too(
    family: str,
    direct: bool,
    recorder: type[GraphRecorder],
    make_engine: Callable[..., TransformersEngine],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of other rows in each pass, padded or not, and after passes that nobody asked: as those of passes that are run by themselves."""
    monkeypatch.setattr(transformers_engine, "recorder_for", lambda _: recorder())
    plain = make_engine(family, direct_forward=direct)
    recorded = make_engine(family, direct_forward=direct, cuda_graphs="on")
    layers = (0, 1, plain.spec.num_blocks, plain.spec.num_blocks + 1)
    slots = [(engine, engine.acquire()) for engine in (plain, recorded)]
    for size, places in ((3, [0, 2]), (4, [3]), (3, [1]), (1, [0]), (4, [0, 1, 2, 3])):
        found = []
        for engine, slot in slots:
            batch = Batch.of([Rows(slot=slot, tokens=TEXT[:size], parents=[*range(-1, size - 1)])])
            found.append(tapped(engine, batch, layers, places))
            engine.truncate(slot, 0)
        one, other = found
        assert one.hidden_KLD is not None
        assert other.hidden_KLD is not None
        torch.testing.assert_close(other.hidden_KLD, one.hidden_KLD, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(other.values_RV, one.values_RV, atol=1e-4, rtol=1e-4)
    assert len(static_of(recorded).recorded) > 0


def test_kept_states_outlive_the_next_pass(
    make_engine: Callable[..., TransformersEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repetition overwrites its memory; what was handed out stays."""
    monkeypatch.setattr(transformers_engine, "recorder_for", lambda _: TapeRecorder())
    engine = make_engine("llama", cuda_graphs="on")
    slot = engine.acquire()
    states = []
    for tokens in ([1, 2], [3, 4]):
        batch = Batch.of([Rows(slot=slot, tokens=tokens, parents=[-1, 0])])
        found = tapped(engine, batch, (1,), [0, 1]).hidden_KLD
        assert found is not None
        states.append((found, found.clone()))
        engine.truncate(slot, 0)
    assert torch.equal(*states[0])
    assert not torch.equal(states[0][0], states[1][0])


def test_asking_changes_no_logits(make_engine: Callable[..., TransformersEngine]) -> None:
    """Bit for bit."""
    plain, asked = make_engine("llama"), make_engine("llama")
    rows = Rows(slot=plain.acquire(), tokens=TEXT, parents=[*range(-1, len(TEXT) - 1)])
    asked.acquire()
    logits = tapped(asked, Batch.of([rows]), (0, 2), [1, 3])
    assert torch.equal(plain.forward([rows]).values_RV, logits.values_RV)


def test_a_table_shows_which_layer_and_row_was_taken() -> None:
    """b after b blocks, the next token's law after the norm."""
    table = random_table(7, 2, seed=1)
    engine = TabularEngine(table)
    first, second = engine.acquire(), engine.acquire()
    batch = Batch.of(
        [
            Rows(slot=first, tokens=[1, 2, 3], parents=[-1, 0, 1], logits="none"),
            Rows(slot=second, tokens=[4, 5], parents=[-1, 0]),
        ]
    )
    found = tapped(engine, batch, (0, 3, NUM_BLOCKS + 1), [1, 2, 4])
    states = found.hidden_KLD
    assert states is not None
    assert states[:, 0].eq(0).all()
    assert states[:, 1].eq(3).all()
    laws = torch.from_numpy(table.log_probs.astype(np.float32))
    expected = [laws[1, 2], laws[2, 3], laws[4, 5]]
    torch.testing.assert_close(states[:, 2], torch.stack(expected))
    torch.testing.assert_close(states[2, 2], found.of(1)[1])


def test_nothing_is_kept_unasked(make_engine: Callable[..., TransformersEngine]) -> None:
    """Neither by models nor by tables."""
    for engine in (make_engine("llama"), TabularEngine(random_table(7, 1, seed=1))):
        rows = Rows(slot=engine.acquire(), tokens=[1], parents=[-1])
        assert engine.forward([rows]).hidden_KLD is None
