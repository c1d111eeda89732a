"""Checkpoints of other projects at a real target worker, through bytes: told by their folders, loaded by their methods, and no text changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.actors.draft import reference_nets as plain
from tests.actors.draft.reference_nets import BLOCKS, LAYERS, VOCAB, WIDTH
from tests.actors.pair.pair import Pair, texts_alone

from outrider.actors.draft.choice.drafter_registry import loading_method
from outrider.actors.draft.service.draft_server import load_method
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.tables.tabular_engine import random_table
from outrider.actors.speculation.options import Sampling, Speculation

TARGET = random_table(VOCAB, 1, seed=9, concentration=0.2)
ONE: dict[str, Any] = {**LAYERS, "num_hidden_layers": 1}

Written = Callable[[Path], Path]


def medusa(folder: Path) -> Path:
    """Three heads."""
    draw = plain.numbers(1)
    weights = {f"{head}.0.linear.weight": draw(WIDTH, WIDTH) for head in range(3)}
    weights |= {f"{head}.0.linear.bias": draw(WIDTH) for head in range(3)}
    weights |= {f"{head}.1.weight": draw(VOCAB, WIDTH) for head in range(3)}
    return plain.write(folder, {"medusa_num_heads": 3}, weights, "medusa_lm_head.pt")


def mlp(folder: Path) -> Path:
    """Three stages."""
    draw = plain.numbers(2)
    weights = {f"speculator.proj.{n}.weight": draw(WIDTH, WIDTH) for n in range(3)}
    for kind, shape in (("emb", (VOCAB, WIDTH)), ("head", (VOCAB, WIDTH)), ("ln", (WIDTH,))):
        weights |= {f"speculator.{kind}.{n}.weight": draw(*shape) for n in range(3)}
    weights |= {f"speculator.ln.{n}.bias": draw(WIDTH) for n in range(3)}
    config = {"model_type": "mlp_speculator", "emb_dim": WIDTH, "inner_dim": 0, "n_predict": 3}
    return plain.write(folder, {**config, "vocab_size": VOCAB}, weights)


def dflash(folder: Path, **changes: object) -> Path:
    """A block of four."""
    own = {"target_layer_ids": [0, 2], "mask_token_id": 23, "block_size": 4, **changes}
    weights = plain.block_weights(plain.numbers(3), layers=1, taps=2)
    return plain.write(folder, {**ONE, "dflash_config": own}, weights)


def dspark(folder: Path) -> Path:
    """A block of six that says nothing; its Markov head has the target's law."""
    weights = plain.block_weights(plain.numbers(4), layers=1, taps=2)
    law = torch.from_numpy(np.asarray(TARGET.log_probs, np.float32).reshape(VOCAB, VOCAB))
    weights |= {
        "lm_head.weight": torch.zeros(VOCAB, WIDTH),
        "markov_head.markov_w1.weight": torch.eye(VOCAB),
        "markov_head.markov_w2.weight": law.T.contiguous(),
    }
    config = {
        "speculators_model_type": "dspark",
        "transformer_layer_config": ONE,
        "block_size": 6,
        "mask_token_id": 23,
        "aux_hidden_state_layer_ids": [1, BLOCKS],
        "sample_from_anchor": False,
        "markov_rank": VOCAB,
        "enable_confidence_head": False,
    }
    return plain.write(folder, config, weights)


def eagle3(folder: Path) -> Path:
    """Of some tokens, reading layers that its files do not name."""
    draw, ids = plain.numbers(5), [1, 2, 5, 8, 13, 21]
    weights = {
        **plain.layer_weights(draw, "midlayer", reads=2, norms=False),
        "midlayer.hidden_norm.weight": draw(WIDTH),
        "fc.weight": draw(WIDTH, 3 * WIDTH),
        "norm.weight": draw(WIDTH),
        "lm_head.weight": draw(len(ids), WIDTH),
        "d2t": plain.offsets(ids),
        "t2d": plain.members(ids),
    }
    config = {**ONE, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": len(ids)}
    config["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": [0, 2, 3]}
    return plain.write(folder, config, weights, "pytorch_model.bin")


def mtp(folder: Path) -> Path:
    """One module."""
    draw, prefix = plain.numbers(6), "mtp_layers.0"
    weights = plain.layer_weights(draw, prefix)
    for norm in ("hidden_layernorm", "token_layernorm", "final_layernorm"):
        weights[f"{prefix}.{norm}.weight"] = draw(WIDTH)
    weights[f"{prefix}.input_proj.weight"] = draw(WIDTH, 2 * WIDTH)
    layers = {**LAYERS, "num_hidden_layers": BLOCKS}
    config = {"speculators_model_type": "mtp", "transformer_layer_config": layers}
    return plain.write(folder, config, weights)


NAMED = [(eagle3, "hidden_reuse"), (mtp, "hidden_reuse")]
"""Methods that read these files where the configuration names them."""


@pytest.mark.parametrize(
    ("written", "named"),
    [*((one, "") for one in (medusa, mlp, dflash, dspark, eagle3, mtp)), *NAMED],
)
def test_the_text_is_that_of_plain_decoding(tmp_path: Path, written: Written, named: str) -> None:
    """Whatever a checkpoint foresees, at either temperature; what knows the law has it accepted."""
    target, _, _ = plain.target_folder(tmp_path / "t")
    folder = written(tmp_path / "d")
    method = named or loading_method(str(folder))
    assert method is not None
    loaded = load_method(
        DraftSettings(
            name="d",
            incarnation=1,
            method=method,
            options={"target": str(target)},
            engine=EngineSettings(model=str(folder), num_slots=2),
        )
    )
    samplings = [Sampling(seed=3, max_tokens=60, temperature=one) for one in (0.0, 0.8)]
    prompt = [3, 1, 4, 1, 5]
    pair = Pair(TARGET, TARGET, feedback=loaded.feedback, method=(loaded.sessions, loaded.drafter))
    for session, sampling in enumerate(samplings):
        pair.open(session, sampling, Speculation(), prompt)
    pair.run()
    assert [*pair.texts.values()] == texts_alone(TARGET, samplings, prompt)
    assert not [one for one in pair.ended if "Refused" in type(one).__name__]
    for session, rounds in pair.commits.items():
        assert pair.stats(session).proposed > 20
        if written is dspark:
            assert np.mean([len(one) for one in rounds]) > 3.0
