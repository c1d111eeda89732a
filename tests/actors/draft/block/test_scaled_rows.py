"""DFlash and DSpark nets read rows of a target's embedding as that target's own model does, which multiplies them in some families."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from structlog.testing import capture_logs
from tests.actors.draft import reference_nets as plain
from tests.actors.draft.block.test_block_formats import (
    ANCHOR,
    BLOCK,
    MASK,
    features,
    layers_of,
    same,
    states_of,
)
from tests.actors.draft.reference_nets import BLOCKS, VOCAB, WIDTH
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from outrider.actors.draft.block.block_file import load_block_net

KINDS = {"dflash": "DFlashDraftModel", "dspark": "DSparkDraftModel"}


def target_of(folder: Path, family: str) -> tuple[str, Tensor]:
    """A small target of a family, and what its embedding gives for each token."""
    config = AutoConfig.for_model(
        family,
        vocab_size=VOCAB,
        hidden_size=WIDTH,
        num_hidden_layers=BLOCKS,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=12,
        intermediate_size=16,
        pad_token_id=0,
    )
    model = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    model.save_pretrained(folder)
    with torch.no_grad():
        return str(folder), model.get_input_embeddings()(torch.arange(VOCAB)).float()


def files(kind: str, **own: object) -> dict[str, Any]:
    """A configuration of a block drafter."""
    config = {"architectures": [KINDS[kind]], **layers_of(1), "block_size": BLOCK}
    fields = {"target_layer_ids": [1], "mask_token_id": MASK, "markov_rank": 0, **own}
    return {**config, "dflash_config": fields}


@pytest.mark.parametrize(
    ("family", "kind"),
    [("llama", "dflash"), ("gemma", "dflash"), ("gemma2", "dflash"), ("gemma3_text", "dflash"), ("gemma3_text", "dspark")],
)  # fmt: skip
def test_rows_are_those_that_the_targets_model_looks_up(
    tmp_path: Path, family: str, kind: str
) -> None:
    """As the projects' code calls its embedding; it is noted where they are multiplied."""
    target, rows = target_of(tmp_path / "t", family)
    weights = plain.block_weights(plain.numbers(6), layers=1, taps=1)
    folder = plain.write(tmp_path / "d", files(kind), weights)
    with capture_logs() as logs:
        net = load_block_net(folder, target=target)
    given = features(1)
    expected = plain.block_states(weights, rows, given, ANCHOR, block=BLOCK, mask_id=MASK, layers=1)
    same(states_of(net, given), expected)
    noted = [log for log in logs if "multiplied by 4.899" in log.get("what", "")]
    assert len(noted) == (0 if family == "llama" else 1)


@pytest.mark.parametrize("how", ["said", "own"])
def test_files_that_say_it_are_taken_at_their_word(tmp_path: Path, how: str) -> None:
    """With a scale, or with an embedding of their own."""
    target, rows = target_of(tmp_path / "t", "gemma3_text")
    draw = plain.numbers(6)
    weights = plain.block_weights(draw, layers=1, taps=1)
    table = rows / WIDTH**0.5
    config, stored = files("dflash"), dict(weights)
    if how == "own":
        table = draw(VOCAB, WIDTH)
        stored["embed_tokens.weight"] = table
    else:
        config = files("dflash", input_embedding_scale=2.0)
        table = 2.0 * table
    net = load_block_net(plain.write(tmp_path / "d", config, stored), target=target)
    given = features(1)
    expected = plain.block_states(
        weights, table, given, ANCHOR, block=BLOCK, mask_id=MASK, layers=1
    )
    same(states_of(net, given), expected)
