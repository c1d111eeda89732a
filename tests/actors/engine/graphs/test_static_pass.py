"""Passes of fixed shapes, eagerly and replayed, against plain transformers."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from tests.actors.engine.graphs.tape import TapeRecorder
from tests.actors.engine.script import VOCAB_SIZE, PlainLogits, Script, worst_error
from tests.devices import CUDA
from transformers import AttentionInterface, PreTrainedModel

from outrider.actors.engine.attention.attention import UnsupportedModel
from outrider.actors.engine.attention.attention_hook import ATTENTION_NAME, RUNNING, tree_attention
from outrider.actors.engine.attention.pass_cache import PassCache
from outrider.actors.engine.checkpoint.cache_argument import cache_argument
from outrider.actors.engine.checkpoint.model_facts import text_config
from outrider.actors.engine.graphs import static_shape
from outrider.actors.engine.graphs.cuda_graph import EagerRecorder, Run
from outrider.actors.engine.graphs.recording_policy import Policy
from outrider.actors.engine.graphs.static_attention import static_attention
from outrider.actors.engine.graphs.static_inputs import StaticLayout
from outrider.actors.engine.graphs.static_pass import StaticPasses
from outrider.actors.engine.graphs.static_shape import StaticShape
from outrider.actors.engine.kv.storage import PlaneShape, Storage
from outrider.actors.engine.models import transformers_engine
from outrider.actors.engine.models.transformers_engine import TransformersEngine
from outrider.actors.engine.protocol import Moves, Rows

MakeEngine = Callable[..., TransformersEngine]


def static_of(engine: TransformersEngine) -> StaticPasses:
    """The recorded passes of an engine that has them."""
    assert engine.static_passes is not None
    return engine.static_passes


@pytest.fixture
def taped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines record on tapes."""
    monkeypatch.setattr(transformers_engine, "recorder_for", lambda _: TapeRecorder())


def test_random_trees_equal_plain_forward(
    family: str,
    make_engine: MakeEngine,
    plain_logits: PlainLogits,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Padding, masks made on the device, rows read in place or gathered: logits are those of each branch alone.

    Several lengths are shown; one alone, as long as any text here, in `test_replayed_passes_equal_plain_forward`.
    """
    monkeypatch.setattr(static_shape, "LEAST_SHOWN", 8)
    engine = make_engine(family, cuda_graphs="on")
    assert worst_error(Script(engine, 0), family, plain_logits) < 1e-5
    shapes = static_of(engine).recorded
    assert len({shape.shown for shape in shapes}) > 1
    assert {shape.by_slot for shape in shapes} == {False, True}


@pytest.mark.usefixtures("taped")
def test_replayed_passes_equal_plain_forward(
    family: str, make_engine: MakeEngine, plain_logits: PlainLogits
) -> None:
    """A pass recorded for one batch serves all of its shape; nothing of it is left in Python."""
    engine = make_engine(family, cuda_graphs="on")
    assert worst_error(Script(engine, 1), family, plain_logits) < 1e-5
    shapes = static_of(engine).recorded
    assert len(shapes) < 20
    assert {shape.by_slot for shape in shapes} == {False, True}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_close(
    dtype: torch.dtype, make_engine: MakeEngine, plain_logits: PlainLogits
) -> None:
    """As on views in these types."""
    engine = make_engine("llama", cuda_graphs="on", dtype=dtype)
    plain = make_engine("llama", dtype=dtype)
    error = worst_error(Script(engine, 3), "llama", plain_logits)
    assert error < 2.0 * worst_error(Script(plain, 3), "llama", plain_logits)


@pytest.mark.parametrize("family_on_device", ["llama", "mistral", "gpt_neox", "gpt2", "gpt_oss"])
@pytest.mark.parametrize("device", [CUDA])
def test_graphs_equal_plain_forward(
    family_on_device: str, device: str, make_engine: MakeEngine, plain_logits: PlainLogits
) -> None:
    """On a GPU graphs are captured, and their logits are right within what its arithmetic rounds."""
    engine = make_engine(family_on_device, device=device)
    script = Script(engine, 0)
    assert worst_error(script, family_on_device, plain_logits, num_steps=60) < 1e-3
    if family_on_device != "gpt_oss":
        assert len(static_of(engine).recorded) > 3


def small_passes(engine: TransformersEngine, sizes: list[int]) -> list[torch.Tensor]:
    """Logits of bushes of some sizes below a short text, which leave nothing behind."""
    slot = engine.acquire()
    engine.forward([Rows(slot=slot, tokens=[3, 4], parents=[-1, 0], logits="none")])
    engine.rebase(Moves.one(slot, [0, 1]))
    found = []
    for size in sizes:
        rows = Rows(slot=slot, tokens=[size + row for row in range(size)], parents=[-1] * size)
        found.append(engine.forward([rows]).values_RV)
        engine.truncate(slot, 2)
    engine.release(slot)
    return found


class Counted(EagerRecorder):
    """A recorder that may fail."""

    def __init__(self, fails: Callable[[], bool] = lambda: False) -> None:
        self.num_recordings = 0
        self._fails = fails

    def record(self, run: Run) -> Run:
        """See `graphs.Recorder`."""
        if self._fails():
            raise RuntimeError("operation not permitted when stream is capturing")
        self.num_recordings += 1
        return run


def sizes_of(passes: StaticPasses) -> set[tuple[int, int]]:
    """Rows of recorded shapes, and of their longest session."""
    return {(shape.rows, shape.longest) for shape in passes.recorded}


def test_a_shape_is_recorded_once_it_has_wasted_what_that_costs(make_engine: MakeEngine) -> None:
    """Passes that nothing holds get one that serves all trees; much later, one of their own."""
    engine = make_engine("llama")
    passes = engine.record_with(Counted(), Policy(price=4.0, most=9))
    small_passes(engine, [12])
    assert not passes.recorded
    small_passes(engine, [12, 12, 12, 12])
    assert sizes_of(passes) == {(48, 48)}
    small_passes(engine, [9, 20, 12])
    assert (16, 16) not in sizes_of(passes)
    small_passes(engine, [12] * 50)
    assert sizes_of(passes) >= {(48, 48), (16, 16)}
    replayed: list[int] = []
    passes.recorded = {
        shape: lambda run=run, shape=shape: replayed.append(shape.rows) or run()  # type: ignore[misc, func-returns-value]
        for shape, run in passes.recorded.items()
    }
    expected = small_passes(make_engine("llama"), [13])
    torch.testing.assert_close(small_passes(engine, [13]), expected, atol=1e-5, rtol=0)
    assert replayed[-1] == 16


def test_a_pass_with_a_recording_says_so(make_engine: MakeEngine) -> None:
    """Nobody learns from it what passes take."""
    engine = make_engine("llama")
    engine.record_with(Counted(), Policy(price=0.0))
    slot = engine.acquire()
    rows = Rows(slot=slot, tokens=[3, 4], parents=[-1, -1])
    assert engine.forward([rows]).recording_s > 0.0
    engine.truncate(slot, 0)
    assert engine.forward([rows]).recording_s == 0.0


def test_usual_passes_are_recorded_beforehand(family: str, make_engine: MakeEngine) -> None:
    """Trees of up to 23 nodes in one to all slots, and texts of any length, make no request wait for a recording."""
    engine = make_engine(family)
    passes = engine.record_with(TapeRecorder(), Policy())
    engine.record_usual()
    usual = set(passes.recorded)
    assert usual
    expected = small_passes(make_engine(family), [1, 3, 8, 17, 24])
    found = small_passes(engine, [1, 3, 8, 17, 24])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    replayed: list[StaticShape] = []
    passes.recorded = {
        shape: lambda run=run, shape=shape: replayed.append(shape) or run()  # type: ignore[misc, func-returns-value]
        for shape, run in passes.recorded.items()
    }
    slots = [engine.acquire() for _ in range(engine.num_slots)]
    for count in range(1, len(slots) + 1):
        for longest in (1, 2, 9):
            engine.forward(
                [
                    Rows(slot=slot, tokens=[5] * longest, parents=range(-1, longest - 1))
                    for slot in slots[:count]
                ]
            )
            for slot in slots[:count]:
                engine.truncate(slot, 0)
            assert len(replayed) == 1, "it was replayed"
            replayed.clear()
    assert set(passes.recorded) == usual


def test_the_number_of_recordings_is_bounded(make_engine: MakeEngine) -> None:
    """What comes later takes a recorded shape that holds it, or is run by itself."""
    engine, recorder = make_engine("llama"), Counted()
    passes = engine.record_with(recorder, Policy(price=0.0, most=2))
    sizes = [4, 9, 1, 16, 3, 20]
    expected = small_passes(make_engine("llama"), sizes)
    torch.testing.assert_close(small_passes(engine, sizes), expected, atol=1e-5, rtol=0)
    assert len(passes.recorded) == recorder.num_recordings == 2


def test_what_cannot_be_recorded_is_run_by_itself(make_engine: MakeEngine) -> None:
    """A failed recording ends recording, not the service; what was recorded before stays."""
    engine = make_engine("llama")
    recorder = Counted(fails=lambda: recorder.num_recordings == 1)
    passes = engine.record_with(recorder, Policy(price=0.0))
    sizes = [4, 9, 4, 9]
    expected = small_passes(make_engine("llama"), sizes)
    torch.testing.assert_close(small_passes(engine, sizes), expected, atol=1e-5, rtol=0)
    assert len(passes.recorded) == 1


def test_asked_for_graphs_must_work(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `cuda_graphs: on` a model that cannot be recorded is refused when it is loaded, with what to do."""
    monkeypatch.setattr(transformers_engine, "recorder_for", lambda _: Counted(fails=lambda: True))
    with pytest.raises(UnsupportedModel, match=r"not permitted.*set cuda_graphs to auto or off"):
        make_engine("llama", cuda_graphs="on", direct_forward=False)
    monkeypatch.setattr(transformers_engine, "recorder_for", lambda _: Counted())
    assert len(static_of(make_engine("llama", cuda_graphs="on")).recorded) > 0


def test_large_passes_are_not_recorded(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompt chunks are run at their own size."""
    monkeypatch.setattr(static_shape, "ROWS", (1, 2, 4))
    engine = make_engine("llama", cuda_graphs="on")
    recorded = len(static_of(engine).recorded)
    expected = small_passes(make_engine("llama"), [5, 20])
    torch.testing.assert_close(small_passes(engine, [5, 20]), expected, atol=1e-5, rtol=0)
    assert {shape.rows for shape in static_of(engine).recorded} <= {1, 2, 4}
    assert len(static_of(engine).recorded) <= recorded + 1


def test_a_slot_is_clean_for_the_next_session(make_engine: MakeEngine) -> None:
    """What is no number in the rows that a session left behind does not reach the session that comes after it."""
    engine = make_engine("llama", cuda_graphs="on")
    (expected,) = small_passes(engine, [4])
    slot = engine.acquire()
    storage: Storage = engine.storage
    with torch.inference_mode():
        for plane in [*storage.keys, *storage.values]:
            plane[slot].fill_(torch.nan)
    engine.release(slot)
    (after,) = small_passes(engine, [4])
    torch.testing.assert_close(after, expected, atol=1e-5, rtol=0)


@pytest.mark.usefixtures("taped")
def test_results_outlive_the_next_pass(make_engine: MakeEngine) -> None:
    """A replay overwrites its memory; what was handed out before stays."""
    engine = make_engine("llama", cuda_graphs="on")
    found = small_passes(engine, [4, 3])
    expected = small_passes(make_engine("llama", cuda_graphs="off"), [4, 3])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("by_slot", [False, True])
def test_all_tensors_of_a_pass_are_on_the_device(
    family: str, by_slot: bool, plain_model: Callable[[str], PreTrainedModel]
) -> None:
    """No tensor of the host takes part, and no value is asked for; torch's device without data refuses both."""
    if family == "gpt_oss":
        pytest.skip("torch has no dataless form of its experts in float32")
    nowhere = torch.device("meta")
    model = copy.deepcopy(plain_model(family)).to(nowhere)  # type: ignore[arg-type]
    AttentionInterface.register(ATTENTION_NAME, tree_attention)
    model.set_attn_implementation(ATTENTION_NAME)
    config = text_config(model.config)
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    plane = PlaneShape(num_heads=heads, head_dim=dim)
    storage = Storage(
        [(plane, plane)] * 2, num_slots=4, capacity=120, dtype=torch.float32, device=nowhere
    )
    shape = StaticShape(rows=8, entries=2, longest=4, shown=120, by_slot=by_slot)
    windows = [None, 7]
    buffer = torch.empty(500, dtype=torch.int64, device=nowhere)
    inputs = StaticLayout(storage, windows=windows, max_scratch=24).views(buffer, shape)
    cache = PassCache(storage, inputs.written_R)
    attend = static_attention(storage, inputs)
    RUNNING.windows = windows
    RUNNING.cache, RUNNING.attend = cache, attend
    try:
        with torch.inference_mode():
            output = model(
                input_ids=inputs.tokens_R[None],
                position_ids=inputs.positions_R[None],
                use_cache=True,
                logits_to_keep=inputs.wanted_R,
                **{cache_argument(model) or "cache": cache},
            )
    finally:
        RUNNING.cache = RUNNING.attend = None
    assert output.logits.device == nowhere
    assert output.logits.shape == (1, 8, VOCAB_SIZE)
