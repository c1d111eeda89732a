"""The engine against plain transformers, and its refusals."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pytest
import torch
from tests.actors.engine.script import CONTEXT, VOCAB_SIZE, PlainLogits, Script, worst_error
from tests.actors.target.state.chaos import Harness, opening, run_chaos, run_plain
from tests.devices import CUDA
from transformers import PreTrainedModel

from outrider.actors.engine.attention import planned_attention
from outrider.actors.engine.graphs import static_inputs
from outrider.actors.engine.kv.added_rows import AddedRows, Words
from outrider.actors.engine.kv.storage import Storage
from outrider.actors.engine.models.transformers_engine import TransformersEngine
from outrider.actors.engine.protocol import Engine, Int64s, Moves, NoFreeSlot, Rows, SlotOverflow
from outrider.actors.speculation.options import Sampling
from outrider.actors.target.state.target_events import Finished

MakeEngine = Callable[..., TransformersEngine]


@pytest.mark.parametrize("seed", [0, 1])
def test_random_trees_equal_plain_forward(
    family: str, seed: int, make_engine: MakeEngine, plain_logits: PlainLogits
) -> None:
    """Logits of mixed chunks and trees, rebased, copied and truncated, are those of each branch alone."""
    assert worst_error(Script(make_engine(family), seed), family, plain_logits) < 1e-5


@pytest.mark.parametrize("device", [CUDA])
def test_random_trees_equal_plain_forward_on_cuda(
    family: str, device: str, make_engine: MakeEngine, plain_logits: PlainLogits
) -> None:
    """On a GPU too, run pass by pass, within what its arithmetic rounds."""
    script = Script(make_engine(family, device=device, cuda_graphs="off"), 3)
    assert worst_error(script, family, plain_logits) < 1e-3


@pytest.mark.parametrize(("way", "module"), [("off", planned_attention), ("on", static_inputs)])
@pytest.mark.parametrize("wrong", ["sibling", "window"])
def test_wrong_mask_is_caught(
    way: str,
    module: ModuleType,
    wrong: str,
    make_engine: MakeEngine,
    plain_logits: PlainLogits,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The comparison with plain transformers notices a single visible sibling, and a window that is not applied."""
    right = module.mask_bits

    def with_siblings(added: AddedRows, rows_Q: Int64s, **sizes: Any) -> Words:
        bits: Words = right(added, rows_Q, **sizes)
        last = added.starts[1:][added.entries_R[rows_Q]] - 1
        first = added.starts[:-1][added.entries_R[rows_Q]]
        of_first: Words = right(added, first, **sizes)
        bits[rows_Q == last] |= of_first[rows_Q == last]
        return bits

    def without_window(added: AddedRows, rows_Q: Int64s, **sizes: Any) -> Words:
        bits: Words = right(added, rows_Q, **sizes | {"window": None})
        return bits

    for family in ["llama"] if wrong == "sibling" else ["qwen2", "mistral"]:
        script = Script(make_engine(family, cuda_graphs=way), 0)
        with monkeypatch.context() as patched:
            wrongly = with_siblings if wrong == "sibling" else without_window
            patched.setattr(module, "mask_bits", wrongly)
            assert worst_error(script, family, plain_logits) > 1e-2


def test_unmoved_rows_are_caught(
    make_engine: MakeEngine, plain_logits: PlainLogits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison with plain transformers notices rows that a rebase leaves where they were."""
    script = Script(make_engine("llama"), 0)
    monkeypatch.setattr(Storage, "move", lambda *_: None)
    assert worst_error(script, "llama", plain_logits) > 1e-2


@pytest.mark.parametrize("prompt_length", [3, 40])
def test_greedy_decoding_with_trees_equals_generate(
    family: str,
    prompt_length: int,
    make_engine: MakeEngine,
    plain_model: Callable[[str], PreTrainedModel],
) -> None:
    """Walking random trees, some with the right tokens, gives what `generate` gives, across chunk and window borders."""
    engine, num_new, rng = make_engine(family), 30, random.Random(prompt_length)
    prompt = [rng.randrange(VOCAB_SIZE) for _ in range(prompt_length)]
    generated = plain_model(family).generate(  # type: ignore[operator]
        torch.tensor([prompt]), max_new_tokens=num_new, do_sample=False
    )
    expected = generated[0, prompt_length:].tolist()
    assert len(expected) == num_new

    slot = engine.acquire()
    for start in range(0, prompt_length - 1, 7):
        chunk = prompt[start : min(start + 7, prompt_length - 1)]
        engine.forward(
            [Rows(slot=slot, tokens=chunk, parents=range(-1, len(chunk) - 1), logits="none")]
        )
        engine.rebase(Moves.one(slot, range(len(chunk))))
    output: list[int] = []
    while len(output) < num_new:
        # The root is the last token, not yet run; below it hang guesses.
        tokens, parents = [[*prompt, *output][-1]], [-1]
        depths = [0]
        for row in range(1, rng.randint(2, 10)):
            parent = rng.randrange(row)
            depth = len(output) + depths[parent]
            right = expected[depth] if depth < num_new else 0
            tokens.append(right if rng.random() < 0.6 else rng.randrange(VOCAB_SIZE))
            parents.append(parent)
            depths.append(depths[parent] + 1)
        draws = engine.forward([Rows(slot=slot, tokens=tokens, parents=parents)]).of(0).argmax(-1)
        path = [0]
        while True:
            drawn = int(draws[path[-1]])
            output.append(drawn)
            children = [
                row
                for row, parent in enumerate(parents)
                if parent == path[-1] and tokens[row] == drawn
            ]
            if not children:
                break
            path.append(children[0])
        engine.rebase(Moves.one(slot, path))
    assert expected == output[:num_new]


def test_kept_rows_need_not_run_again(make_engine: MakeEngine, plain_logits: PlainLogits) -> None:
    """A drafter's re-rooting: rows below the committed path stay, renumbered, and children of theirs see them."""
    engine = make_engine("llama")
    slot = engine.acquire()
    engine.forward([Rows(slot=slot, tokens=[5, 6], parents=[-1, 0])])
    engine.rebase(Moves.one(slot, [0, 1]))
    engine.forward([Rows(slot=slot, tokens=[10, 11, 12, 13, 14], parents=[-1, -1, 1, 2, 1])])
    engine.rebase(Moves.one(slot, [1], keep=[2, 3, 4]))
    assert (engine.cached(slot), engine.scratch(slot)) == (3, 3)
    logits = engine.forward([Rows(slot=slot, tokens=[20, 21, 22], parents=[1, 2, -1])])
    expected = plain_logits("llama", [[5, 6, 11, 12, 13, 20], [5, 6, 11, 14, 21], [5, 6, 11, 22]])
    torch.testing.assert_close(logits.of(0), expected, atol=1e-5, rtol=0)


def test_last_and_no_logits(make_engine: MakeEngine, plain_logits: PlainLogits) -> None:
    """Only the wanted rows come back, entry by entry."""
    engine = make_engine("llama")
    a, b, c = (engine.acquire() for _ in range(3))
    logits = engine.forward(
        [
            Rows(slot=a, tokens=[1, 2], parents=[-1, 0], logits="last"),
            Rows(slot=b, tokens=[3, 4], parents=[-1, 0], logits="none"),
            Rows(slot=c, tokens=[5, 6], parents=[-1, -1]),
        ]
    )
    assert logits.offsets == (0, 1, 1, 3)
    expected = plain_logits("llama", [[1, 2], [5], [6]])
    torch.testing.assert_close(logits.values_RV, expected, atol=1e-5, rtol=0)
    assert tuple(logits.of(1).shape) == (0, VOCAB_SIZE)
    only = engine.forward([Rows(slot=a, tokens=[1], parents=[-1], logits="none")])
    assert tuple(only.values_RV.shape) == (0, VOCAB_SIZE)


def test_rows_at_the_end_of_the_context(
    family: str, make_engine: MakeEngine, plain_logits: PlainLogits
) -> None:
    """The last position of the context can be used, with a full tree; the one after it is refused before anything runs."""
    engine = make_engine(family, max_context=20, max_scratch=12)
    slot = engine.acquire()
    prompt = [i % VOCAB_SIZE for i in range(19)]
    for start in (0, 10):
        chunk = prompt[start : start + 10]
        engine.forward([Rows(slot=slot, tokens=chunk, parents=range(-1, len(chunk) - 1))])
        engine.rebase(Moves.one(slot, range(len(chunk))))
    logits = engine.forward([Rows(slot=slot, tokens=range(12), parents=[-1] * 12)])
    expected = plain_logits(family, [[*prompt, token] for token in range(12)])
    torch.testing.assert_close(logits.of(0), expected, atol=1e-5, rtol=0)
    engine.truncate(slot, 19)
    with pytest.raises(SlotOverflow, match="position 20, and max_context is 20"):
        engine.forward([Rows(slot=slot, tokens=[1, 2], parents=[-1, 0])])
    assert (engine.cached(slot), engine.scratch(slot)) == (19, 0)


def _refusals() -> dict[str, tuple[type[Exception], str, Callable[[Engine], object]]]:
    """Calls that are refused on an engine with slot 0 (3 cached, 4 scratch rows) and slot 1 (1 cached row)."""

    def run(**rows: object) -> Callable[[Engine], object]:
        return lambda engine: engine.forward(
            [Rows(slot=1, tokens=[1], parents=[-1]), Rows(**{"slot": 0, **rows})]  # type: ignore[arg-type]
        )

    return {
        "empty batch": (ValueError, "batch is empty", lambda engine: engine.forward([])),
        "empty entry": (ValueError, "at least one token", run(tokens=[], parents=[])),
        "lengths differ": (ValueError, "2 tokens with 1 parents", run(tokens=[1, 2], parents=[-1])),
        "slot twice": (ValueError, "occurs twice", run(slot=1, tokens=[1], parents=[-1])),
        "slot is free": (ValueError, "slot 2 is not taken", run(slot=2, tokens=[1], parents=[-1])),
        "no such slot": (ValueError, "slot 9 is not taken", run(slot=9, tokens=[1], parents=[-1])),
        "token too great": (ValueError, "token id 61 is outside", run(tokens=[61], parents=[-1])),
        "token negative": (ValueError, "token id -1 is outside", run(tokens=[-1], parents=[-1])),
        "parent is itself": (ValueError, "row 4 has parent 4", run(tokens=[1], parents=[4])),
        "parent negative": (ValueError, "row 4 has parent -2", run(tokens=[1], parents=[-2])),
        "too many rows": (
            SlotOverflow,
            "max_scratch is 24",
            run(tokens=[1] * 21, parents=[-1] * 21),
        ),
        "broken path": (
            ValueError,
            "breaks at row 2",
            lambda engine: engine.rebase(Moves.one(0, [0, 2])),
        ),
        "path from nowhere": (
            ValueError,
            "breaks at row 9",
            lambda engine: engine.rebase(Moves.one(0, [9])),
        ),
        "keep off the path": (
            ValueError,
            "row 3 cannot be",
            lambda engine: engine.rebase(Moves.one(0, [0], [3])),
        ),
        "keep is the path": (
            ValueError,
            "row 0 cannot be",
            lambda engine: engine.rebase(Moves.one(0, [0], [0])),
        ),
        "keep not ascending": (
            ValueError,
            "cannot be",
            lambda engine: engine.rebase(Moves.one(0, [], [1, 0])),
        ),
        "keep lacks a parent": (
            ValueError,
            "row 2 cannot",
            lambda engine: engine.rebase(Moves.one(0, [], [2])),
        ),
        "truncate beyond": (ValueError, "it has 3 cached", lambda engine: engine.truncate(0, 4)),
        "truncate negative": (ValueError, "to -1 rows", lambda engine: engine.truncate(0, -1)),
        "copy to taken rows": (
            ValueError,
            "has 1 cached",
            lambda engine: engine.copy_prefix(0, 1, 2),
        ),
        "copy too much": (ValueError, "has 1 cached", lambda engine: engine.copy_prefix(1, 0, 2)),
        "release twice": (ValueError, "slot 2 is not taken", lambda engine: engine.release(2)),
        "keep too much": (
            ValueError,
            "keep 4 rows of slot 0",
            lambda engine: engine.release(0, keep=4),
        ),
        "take what is taken": (
            ValueError,
            "slot 1 is not free",
            lambda engine: engine.acquire(1),
        ),
        "take more than kept": (
            ValueError,
            "slot 2 cannot be taken with 1 rows",
            lambda engine: engine.acquire(2, keep=1),
        ),
    }


@pytest.mark.parametrize("refusal", list(_refusals()))
def test_refusals_change_nothing(
    refusal: str, make_engine: MakeEngine, plain_logits: PlainLogits
) -> None:
    """A refused call says why, and leaves every row as it was."""
    engine = make_engine("llama")
    assert (engine.acquire(), engine.acquire()) == (0, 1)
    engine.forward(
        [
            Rows(slot=0, tokens=[1, 2, 3], parents=[-1, 0, 1]),
            Rows(slot=1, tokens=[4], parents=[-1]),
        ]
    )
    engine.rebase(Moves.one(0, [0, 1, 2]))
    engine.rebase(Moves.one(1, [0]))
    engine.forward([Rows(slot=0, tokens=[7, 8, 9, 10], parents=[-1, 0, 1, -1])])
    error, message, call = _refusals()[refusal]
    with pytest.raises(error, match=message):
        call(engine)
    assert [(engine.cached(slot), engine.scratch(slot)) for slot in (0, 1)] == [(3, 4), (1, 0)]
    assert engine.num_free == 2
    logits = engine.forward(
        [
            Rows(slot=0, tokens=[20, 21], parents=[2, 3]),
            Rows(slot=1, tokens=[22], parents=[-1]),
        ]
    )
    expected = plain_logits("llama", [[1, 2, 3, 7, 8, 9, 20], [1, 2, 3, 10, 21], [4, 22]])
    torch.testing.assert_close(logits.values_RV, expected, atol=1e-5, rtol=0)


def test_failed_pass_leaves_the_slots(
    make_engine: MakeEngine, plain_logits: PlainLogits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that fails in the middle of a pass leaves the rows as they were, and the next pass works."""
    engine = make_engine("llama")
    slot = engine.acquire()
    engine.forward([Rows(slot=slot, tokens=[1, 2], parents=[-1, 0])])
    engine.rebase(Moves.one(slot, [0]))
    with monkeypatch.context() as patch:
        patch.setattr(engine, "llama", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            engine.forward([Rows(slot=slot, tokens=[3, 4], parents=[-1, -1])])
    assert (engine.cached(slot), engine.scratch(slot)) == (1, 0)
    logits = engine.forward([Rows(slot=slot, tokens=[5], parents=[-1])])
    torch.testing.assert_close(logits.of(0), plain_logits("llama", [[1, 5]]), atol=1e-5, rtol=0)


def test_acquire_gives_the_lowest_free_slot_without_rows(make_engine: MakeEngine) -> None:
    """Slots are taken from the lowest, start empty, and run out with an error."""
    engine = make_engine("llama", num_slots=2)
    assert (engine.num_slots, engine.num_free) == (2, 2)
    assert [engine.acquire(), engine.acquire()] == [0, 1]
    with pytest.raises(NoFreeSlot, match="all 2 slots are taken"):
        engine.acquire()
    engine.forward([Rows(slot=0, tokens=[1], parents=[-1])])
    engine.release(0)
    assert engine.acquire() == 0
    assert (engine.cached(0), engine.scratch(0)) == (0, 0)


def test_engines_of_one_process_do_not_meet(
    make_engine: MakeEngine, plain_logits: PlainLogits
) -> None:
    """Two engines of one process keep their own rows, call after call."""
    engines = {family: make_engine(family) for family in ("llama", "gpt2")}
    for engine in engines.values():
        engine.acquire()
        engine.forward([Rows(slot=0, tokens=[1, 2], parents=[-1, 0])])
    for family, engine in engines.items():
        logits = engine.forward([Rows(slot=0, tokens=[3], parents=[1])])
        expected = plain_logits(family, [[1, 2, 3]])
        torch.testing.assert_close(logits.of(0), expected, atol=1e-5, rtol=0)


def test_engines_of_several_threads_do_not_meet(
    make_engine: MakeEngine, plain_logits: PlainLogits
) -> None:
    """Engines that are loaded and run at the same time in threads of their own give what they give alone."""

    def run(seed: int) -> tuple[list[torch.Tensor], list[list[list[int]]]]:
        torch.set_num_threads(1)
        script = Script(make_engine("llama"), seed)
        logits, texts = [], []
        for _ in range(15):
            grown = script.grow()
            logits.append(grown[0])
            texts.append(grown[1])
            script.rearrange()
        return logits, texts

    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(run, range(4)))
    for all_logits, all_texts in runs:
        for logits, texts in zip(all_logits, all_texts, strict=True):
            if texts:
                expected = plain_logits("llama", texts)
                torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)


def test_bfloat16_is_close(make_engine: MakeEngine, plain_logits: PlainLogits) -> None:
    """In bfloat16 the cache and the arithmetic are half as wide, and logits come as float32, near the exact ones."""
    engine = make_engine("llama", dtype=torch.bfloat16)
    slot = engine.acquire()
    engine.forward([Rows(slot=slot, tokens=[1, 2, 3], parents=[-1, 0, 1])])
    engine.rebase(Moves.one(slot, [0, 1, 2]))
    logits = engine.forward([Rows(slot=slot, tokens=[4, 5, 6], parents=[-1, -1, 0])]).of(0)
    expected = plain_logits("llama", [[1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 3, 4, 6]])
    assert (torch.float32, torch.bfloat16) == (logits.dtype, engine.spec.dtype)
    error = (logits - expected).square().mean().sqrt() / expected.std()
    assert 1e-5 < error < 0.05


def test_spec(make_engine: MakeEngine) -> None:
    """The engine says what it holds."""
    spec = make_engine("gpt2").spec
    assert (
        spec.name,
        spec.vocab_size,
        spec.max_context,
        spec.eos_token_ids,
    ) == ("gpt2", VOCAB_SIZE, CONTEXT, ())
    assert (torch.float32, torch.device("cpu")) == (spec.dtype, spec.device)


def test_settings_beyond_the_model_or_the_machine(make_engine: MakeEngine) -> None:
    """More context than the model has, or more rows than the memory holds, is refused with the numbers."""
    with pytest.raises(ValueError, match="max_context is 97, but llama has a context of 96"):
        make_engine("llama", max_context=97)
    with pytest.raises(
        ValueError, match=r"1000000000 slots of 96 \+ 24 rows .* what fits: num_slots up to"
    ):
        make_engine("llama", num_slots=10**9)
    with pytest.raises(ValueError, match="num_slots is 0"):
        make_engine("llama", num_slots=0)


@pytest.mark.parametrize("way", ["off", "on"])
def test_candidates_that_are_no_numbers_cost_their_pass_only(
    way: str, make_engine: MakeEngine
) -> None:
    """A row of NaN makes all others of its tree NaN, and those of later ones if it stays in the slot; texts are those of plain decoding."""
    bad = 5
    sampling = Sampling(seed=3, max_tokens=25, temperature=0.8, logit_bias={bad: -100.0})
    events = [opening(i, sampling, prompt=[1 + i] * (2 + 9 * i)) for i in range(3)]
    plain = run_plain(Harness(make_engine("llama", cuda_graphs=way)), events)
    engine = make_engine("llama", cuda_graphs=way)
    with torch.no_grad():
        engine._model.get_parameter("model.embed_tokens.weight")[bad] = torch.nan
    harness = Harness(engine)
    assert run_chaos(harness, events, random.Random(1)) == plain
    assert harness.worker.state.tally.failed_passes > 0
    assert all(isinstance(harness.end(session), Finished) for session in plain)
