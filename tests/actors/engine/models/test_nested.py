"""The engine with exits beside plain forwards of the model cut off behind each exit."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from tests.actors.engine.script import CONTEXT, VOCAB_SIZE, Script
from transformers import LlamaConfig, LlamaForCausalLM

from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.models.transformers_engine import TransformersEngine
from outrider.actors.engine.nested.load_nested import nested_of
from outrider.actors.engine.nested.nested_engine import NestedEngine
from outrider.actors.engine.protocol import Moves, Rows

EXITS = (1, 2, 4)
THRESHOLD = 0.2


def model_of(layers: int) -> LlamaForCausalLM:
    """A small random model cut off behind so many layers."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=EXITS[-1],
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        initializer_range=0.2,
        bos_token_id=1,
        eos_token_id=None,
        pad_token_id=None,
    )
    model = LlamaForCausalLM(config)
    del model.model.layers[layers:]
    model.config.num_hidden_layers = layers
    model.train(False)
    return model


def nested(threshold: float = THRESHOLD, **settings: object) -> NestedEngine:
    """An engine with exits and little room."""
    given = EngineSettings(model="tiny", num_slots=4, max_scratch=24, **settings)  # type: ignore[arg-type]
    engine = TransformersEngine(model_of(EXITS[-1]), given, name="tiny", fingerprint="none")
    return nested_of(engine, given, exits=EXITS, threshold=threshold)


@torch.no_grad()
def laws(texts: Sequence[Sequence[int]]) -> torch.Tensor:
    """Logits after each text at each exit. Shape (exits, texts, V)."""
    longest = max(map(len, texts))
    ids = torch.tensor([[*text, *[0] * (longest - len(text))] for text in texts])
    last = torch.tensor([len(text) - 1 for text in texts])
    return torch.stack(
        [model_of(n)(input_ids=ids, use_cache=False).logits[range(len(texts)), last] for n in EXITS]
    )


def expected_exits(laws_ENV: torch.Tensor, threshold: float) -> torch.Tensor:
    """The first exit whose likeliest token has more than the threshold, else the last."""
    sure_EN = laws_ENV.softmax(-1).amax(-1) > threshold
    sure_EN[-1] = True
    return sure_EN.int().argmax(0)


@pytest.mark.parametrize("way", ["off", "on"])
@pytest.mark.parametrize("seed", [0, 1])
def test_every_row_leaves_at_the_first_exit_that_is_sure_with_that_exits_law(
    seed: int, way: str
) -> None:
    """Over chunks and trees, committed, dropped, copied and truncated at random: the logits are those of the cut-off model on the text
    alone, so nothing is missing in the layers that earlier rows were not run in."""
    engine = nested(cuda_graphs=way)
    script = Script(engine, seed)
    used = set()
    for _ in range(40):
        logits, texts = script.grow()
        if texts:
            laws_ENV = laws(texts)
            exits = expected_exits(laws_ENV, THRESHOLD)
            assert engine.exits_R.tolist() == exits.tolist()
            wanted = laws_ENV[exits, range(len(texts))]
            torch.testing.assert_close(logits, wanted, rtol=0.0, atol=1e-5)
            used |= set(exits.tolist())
        script.rearrange()
        script.check_counts()
    assert used == {0, 1, 2}, "every exit was used"


def test_threshold_and_limit_are_the_sizes_of_the_model() -> None:
    """Threshold 0: the first exit always; 1: the deepest that the slot may use, which may change between passes."""
    text = [3, 1, 4, 1, 5]
    laws_EV = laws([text])[:, 0]
    for threshold, limits in ((0.0, (2,)), (1.0, (0, 2, 1, 2))):
        engine = nested(threshold)
        slot = engine.acquire()
        engine.forward([Rows(slot=slot, tokens=text[:-1], parents=range(-1, 3), logits="none")])
        engine.rebase(Moves.one(slot, range(4)))
        for limit in limits:
            engine.limit(slot, limit)
            logits = engine.forward([Rows(slot=slot, tokens=text[-1:], parents=[-1])])
            exit_ = 0 if threshold == 0.0 else limit
            torch.testing.assert_close(logits.values_RV[0], laws_EV[exit_], rtol=0.0, atol=1e-5)
            engine.rebase(Moves.one(slot, (), ()))


def test_a_prompt_is_run_no_deeper_than_its_session_goes() -> None:
    """Layers behind the first exit see a text when something below it needs them, and then once."""
    engine = nested(1.0)
    slot = engine.acquire()
    engine.limit(slot, 0)
    engine.forward([Rows(slot=slot, tokens=[2] * 20, parents=range(-1, 19), logits="last")])
    assert engine.rows_run == [20, 0, 0]
    engine.rebase(Moves.one(slot, range(20)))
    engine.limit(slot, 1)
    engine.forward([Rows(slot=slot, tokens=[5, 6], parents=[-1, -1])])
    assert engine.rows_run == [2, 22, 0]
    engine.forward([Rows(slot=slot, tokens=[7], parents=[1])])
    assert engine.rows_run == [1, 1, 0]


def test_what_was_drawn_does_not_choose_the_exit() -> None:
    """An exit is chosen by the law before a token, whatever is drawn from it: neither siblings nor children change one."""
    engine = nested()
    prompt = [9, 8, 7, 6]
    exits = []
    for siblings in ([11], [11, 12, 13], [13, 12, 11]):
        slot = engine.acquire()
        engine.forward([Rows(slot=slot, tokens=prompt, parents=range(-1, 3), logits="last")])
        root = engine.exits_R.tolist()
        engine.rebase(Moves.one(slot, range(4)))
        engine.forward([Rows(slot=slot, tokens=siblings, parents=[-1] * len(siblings))])
        exits.append((root, int(engine.exits_R[siblings.index(11)])))
        engine.release(slot)
    assert exits[0] == exits[1] == exits[2]


@pytest.mark.parametrize("exits", [(), (0, 2), (2, 2), (3, 1), (1, 5)])
def test_exits_that_a_model_does_not_have_are_refused(exits: tuple[int, ...]) -> None:
    """With a message that says which it could have, or where they should stand."""
    given = EngineSettings(model="tiny", num_slots=1, max_scratch=24)
    engine = TransformersEngine(model_of(4), given, name="tiny", fingerprint="none")
    with pytest.raises(ValueError, match="exits"):
        nested_of(engine, given, exits=exits)
