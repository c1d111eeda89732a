"""DFlash and DSpark checkpoints of other projects: what is drafted from them is what their papers' equations say."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from structlog.testing import capture_logs
from tests.actors.draft import reference_nets as plain
from tests.actors.draft.reference_nets import BLOCKS, LAYERS, VOCAB, WIDTH, Tensors
from torch import Tensor
from transformers import Qwen3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from outrider.actors.draft.block.block_engine import BlockEngine
from outrider.actors.draft.block.block_file import load_block_net
from outrider.actors.draft.block.block_net import BlockNet
from outrider.actors.draft.choice.drafter_registry import loading_method
from outrider.actors.draft.on_states.net_folder import NetFolderError, folder_digest
from outrider.actors.engine.protocol import Batch, ModelSpec, Moves

BLOCK, LENGTH, ANCHOR, MASK = 4, 7, 5, 23
DRAFTED = [1, 2, 5, 8, 13, 21]

DSPARK: dict[str, Any] = {
    "architectures": ["Qwen3DSparkModel"],
    **LAYERS,
    "num_hidden_layers": 2,
    "layer_types": ["full_attention"] * 2,
    "num_target_layers": BLOCKS,
    "target_layer_ids": [-1, 1, 2],
    "block_size": BLOCK,
    "mask_token_id": MASK,
    "num_anchors": 8,
    "markov_rank": 5,
    "markov_head_type": "vanilla",
    "enable_confidence_head": True,
    "confidence_head_with_markov": True,
}


def layers_of(number: int, **changes: object) -> dict[str, Any]:
    """The configuration of so many layers."""
    return {**LAYERS, "num_hidden_layers": number, **changes}


def features(taps: int) -> Tensor:
    """States of a target."""
    return plain.numbers(7)(LENGTH, taps, WIDTH, size=1.0)


def drafted(net: BlockNet, states: Tensor, after: list[int]) -> Tensor:
    """Logits after the newest token, and after each of a chain behind it, as the service's engine tells them."""
    spec = ModelSpec(
        name="x",
        vocab_size=VOCAB,
        max_context=64,
        eos_token_ids=(),
        fingerprint="x",
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    engine = BlockEngine(net, spec, num_slots=1, max_scratch=32)
    slot = engine.acquire()
    engine.tell(slot, 0, states.numpy())
    tokens = [0] * LENGTH + [ANCHOR]

    def rows(of: list[int], first: int, wanted: int) -> Tensor:
        count = len(of)
        batch = Batch(
            slots_E=np.array([slot]),
            starts_E=np.array([0, count]),
            tokens_R=np.array(of),
            parents_R=np.arange(first, first + count),
            wanted_E=np.array([wanted]),
        )
        return engine.forward(batch).values_RV

    newest = rows(tokens, -1, 1)
    engine.rebase(Moves.one(slot, range(len(tokens))))
    return torch.cat((newest, rows(after, -1, 2)))


def same(found: Tensor, expected: Tensor) -> None:
    """To five digits."""
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def states_of(net: BlockNet, given: Tensor) -> Tensor:
    """h of the block behind the given states."""
    context = net.keys_values(given, torch.arange(LENGTH))[:, None]
    tokens = torch.tensor([[ANCHOR] + [0] * (BLOCK - 1)])
    told = torch.tensor([[True] + [False] * (BLOCK - 1)])
    seen = torch.arange(LENGTH)[None] >= LENGTH - net.config.window
    return net.states(tokens, told, torch.tensor([LENGTH]), context, seen)[0]


def spread(values: Tensor) -> Tensor:
    """Logits of the drafted ids among those of all."""
    every = torch.full((*values.shape[:-1], VOCAB), -torch.inf)
    every[..., DRAFTED] = values
    return every


@pytest.mark.parametrize("place", ["top", "inside", "alone"])
def test_dflash_as_its_project_writes_it(tmp_path: Path, place: str) -> None:
    """Outputs of blocks are counted, slot 0 predicts nothing, and the block's width stands in either place.

    Or all stands at the top, as vLLM reads it, too.
    """
    target, embedding, head = plain.target_folder(tmp_path / "t")
    weights = plain.block_weights(plain.numbers(1), layers=2, taps=2, biases=True)
    own: dict[str, Any] = {"target_layer_ids": [0, 2], "mask_token_id": MASK}
    config = {"architectures": ["DFlashDraftModel"], **layers_of(2, attention_bias=True)}
    (own if place == "inside" else config)["block_size"] = BLOCK
    config |= own if place == "alone" else {"dflash_config": own}
    folder = plain.write(tmp_path / "d", config, weights)
    assert loading_method(str(folder)) == "dspark"
    net = load_block_net(folder, target=str(target))
    assert net.config.taps == (1, 3)
    assert net.config.eos_token_ids == (3,)
    given = features(2)
    states = plain.block_states(
        weights, embedding, given, ANCHOR, block=BLOCK, mask_id=MASK, layers=2
    )
    same(states_of(net, given), states)
    # Tokens at positions behind the newest: slot k predicts what stands at its own position.
    same(drafted(net, given, [9, 4]), (states @ head.T)[1:4])


def test_dflash_whose_files_name_no_layers_reads_the_usual_ones(tmp_path: Path) -> None:
    """Evenly from the first block's output to the fourth from the end, for the target's number of blocks."""
    target, _, _ = plain.target_folder(tmp_path / "t", num_hidden_layers=36)
    weights = plain.block_weights(plain.numbers(1), layers=5, taps=5)
    config = {**layers_of(5), "block_size": BLOCK, "num_target_layers": 36}
    config["dflash_config"] = {"mask_token_id": MASK}
    folder = plain.write(tmp_path / "d", config, weights)
    with capture_logs() as logs:
        net = load_block_net(folder, target=str(target))
    assert net.config.taps == (2, 10, 18, 26, 34)
    assert any("after [2, 10, 18, 26, 34] blocks" in log.get("what", "") for log in logs)


def library(kind: str, layers: dict[str, Any], **changes: object) -> dict[str, Any]:
    """A configuration of the library's."""
    return {
        "speculators_model_type": kind,
        "speculators_version": "0.9.0",
        "transformer_layer_config": layers,
        "draft_vocab_size": VOCAB,
        "block_size": BLOCK,
        "mask_token_id": MASK,
        "aux_hidden_state_layer_ids": [1, BLOCKS],
        **changes,
    }


def test_dflash_of_the_library_with_few_tokens_and_windows(tmp_path: Path) -> None:
    """Inputs of blocks are counted; a head of some tokens; windows, in which a slot sees none of the later ones."""
    target, embedding, _ = plain.target_folder(tmp_path / "t")
    draw = plain.numbers(2)
    weights = plain.block_weights(draw, layers=1, taps=2)
    weights |= {"lm_head.weight": draw(len(DRAFTED), WIDTH), "verifier_norm.weight": draw(WIDTH)}
    weights |= {"d2t": plain.offsets(DRAFTED), "t2d": plain.members(DRAFTED)}
    layers = layers_of(1, layer_types=["sliding_attention"], sliding_window=3)
    config = library("dflash", layers, draft_vocab_size=len(DRAFTED))
    net = load_block_net(plain.write(tmp_path / "d", config, weights), target=str(target))
    assert net.config.taps == (1, BLOCKS)
    given = features(2)
    states = plain.block_states(
        weights,
        embedding,
        given,
        ANCHOR,
        block=BLOCK,
        mask_id=MASK,
        layers=1,
        causal=True,
        window=3,
    )
    same(states_of(net, given), states)
    same(drafted(net, given, [9, 4]), spread((states @ weights["lm_head.weight"].T)[1:4]))


FULL, SLIDING = "full_attention", "sliding_attention"


@pytest.mark.parametrize(
    ("layer_types", "own", "window", "causal"),
    [
        ([SLIDING, FULL], {}, None, [True, False]),
        ([FULL, SLIDING], {"causal": False}, None, [False, False]),
        ([SLIDING, SLIDING], {}, 3, [True, True]),
        ([SLIDING, SLIDING], {"is_causal": False}, 3, [False, False]),
        ([FULL, FULL], {"use_swa": True, "swa_window_size": 3, "causal": False}, 3, [False, False]),
        (None, {"use_swa": True}, 3, [False, False]),
        ([FULL, FULL], {"causal": True}, None, [True, True]),
        ([FULL, FULL], {"use_swa": False, "swa_window_size": 3}, None, [False, False]),
    ],
)
def test_what_slots_of_dflash_see(
    tmp_path: Path,
    layer_types: list[str] | None,
    own: dict[str, Any],
    window: int | None,
    causal: list[bool],
) -> None:
    """By the kinds of layers, as in z-lab's files for Qwen3.6 and Gemma 4, or by fields of ModelOpt's and MiMo's, which vLLM reads so."""
    target, embedding, head = plain.target_folder(tmp_path / "t")
    weights = plain.block_weights(plain.numbers(8), layers=2, taps=2)
    size = 3 if window else 2_048
    config = {**layers_of(2, layer_types=layer_types, sliding_window=size), "block_size": BLOCK}
    config["dflash_config"] = {"target_layer_ids": [0, 2], "mask_token_id": MASK, **own}
    with capture_logs() as logs:
        net = load_block_net(plain.write(tmp_path / "d", config, weights), target=str(target))
    assert not logs
    given = features(2)
    states = plain.block_states(
        weights,
        embedding,
        given,
        ANCHOR,
        block=BLOCK,
        mask_id=MASK,
        layers=2,
        causal=causal,
        window=window,
    )
    same(states_of(net, given), states)
    same(drafted(net, given, [9, 4]), (states @ head.T)[1:4])


def heads_of(draw: plain.Heads, rows: int, *, gated: bool = False) -> Tensors:
    """A Markov head and a confidence head of rank 5."""
    found = {
        "markov_head.markov_w1.weight": draw(VOCAB, 5),
        "markov_head.markov_w2.weight": draw(rows, 5),
        "confidence_head.proj.weight": draw(1, WIDTH + 5),
        "confidence_head.proj.bias": draw(1),
    }
    if gated:
        found |= {
            "markov_head.gate_proj.weight": draw(5, WIDTH + 5),
            "markov_head.gate_proj.bias": draw(5),
        }
    return found


def markov(weights: Tensors, states: Tensor, tokens: list[int]) -> tuple[Tensor, Tensor]:
    """What the token before adds to logits, and the confidence in them (DSpark)."""
    known = weights["markov_head.markov_w1.weight"][tokens]
    both = torch.cat((states, known), dim=-1)
    confidence = both @ weights["confidence_head.proj.weight"][0]
    if "markov_head.gate_proj.weight" in weights:
        gate = both @ weights["markov_head.gate_proj.weight"].T
        known = known * (gate + weights["markov_head.gate_proj.bias"]).sigmoid()
    bias = known @ weights["markov_head.markov_w2.weight"].T
    return bias, (confidence + weights["confidence_head.proj.bias"]).sigmoid()


@pytest.mark.parametrize("kind", ["vanilla", "gated"])
def test_dspark_of_deepspec(tmp_path: Path, kind: str) -> None:
    """Embedding and head are its own, -1 is the embedding's output, and every slot predicts the token behind its place."""
    draw = plain.numbers(3)
    embedding, head = draw(VOCAB, WIDTH), draw(VOCAB, WIDTH)
    weights = plain.block_weights(draw, layers=2, taps=3)
    weights |= heads_of(draw, VOCAB, gated=kind == "gated")
    weights |= {"embed_tokens.weight": embedding, "lm_head.weight": head}
    folder = plain.write(tmp_path / "d", {**DSPARK, "markov_head_type": kind}, weights)
    net = load_block_net(folder)
    assert net.config.taps == (0, 2, 3)
    given = features(3)
    states = plain.block_states(
        weights, embedding, given, ANCHOR, block=BLOCK, mask_id=MASK, layers=2
    )
    bias, confidence = markov(weights, states[0:3], [ANCHOR, 9, 4])
    same(drafted(net, given, [9, 4]), (states @ head.T)[0:3] + bias)
    found = net.confidence(states[0:3], torch.tensor([ANCHOR, 9, 4]))
    assert found is not None
    same(found.sigmoid(), confidence)


def test_dflash_of_deepspec_is_dspark_without_heads(tmp_path: Path) -> None:
    """Rank 0, and no confidence."""
    draw = plain.numbers(4)
    weights = plain.block_weights(draw, layers=2, taps=3)
    weights |= {"embed_tokens.weight": draw(VOCAB, WIDTH), "lm_head.weight": draw(VOCAB, WIDTH)}
    changed = {**DSPARK, "markov_rank": 0, "enable_confidence_head": False}
    net = load_block_net(plain.write(tmp_path / "d", changed, weights))
    assert (net.markov_head, net.confidence_head) == (None, None)


@pytest.mark.parametrize("from_anchor", [True, False])
def test_dspark_of_the_library(tmp_path: Path, from_anchor: bool) -> None:
    """Either layout, few tokens, and positions that turn as YaRN's do."""
    rope = {
        "rope_type": "yarn",
        "rope_theta": 10_000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    layers = layers_of(1, rope_parameters=rope)
    del layers["rope_theta"]
    speeds, gain = ROPE_INIT_FUNCTIONS["yarn"](
        Qwen3Config(**{**layers, "max_position_embeddings": 256}), torch.device("cpu")
    )
    target, embedding, _ = plain.target_folder(tmp_path / "t")
    draw = plain.numbers(5)
    weights = plain.block_weights(draw, layers=1, taps=2) | heads_of(draw, len(DRAFTED))
    weights |= {"lm_head.weight": draw(len(DRAFTED), WIDTH), "d2t": plain.offsets(DRAFTED)}
    config = library(
        "dspark",
        layers,
        draft_vocab_size=len(DRAFTED),
        markov_rank=5,
        sample_from_anchor=from_anchor,
    )
    net = load_block_net(plain.write(tmp_path / "d", config, weights), target=str(target))
    given = features(2)
    states = plain.block_states(
        weights,
        embedding,
        given,
        ANCHOR,
        block=BLOCK,
        mask_id=MASK,
        layers=1,
        speeds=speeds.double(),
        gain=gain,
    )
    used = states[0:3] if from_anchor else states[1:4]
    bias, _ = markov(weights, used, [ANCHOR, 9, 4])
    expected = spread(used @ weights["lm_head.weight"].T + bias)
    same(drafted(net, given, [9, 4]), expected)


@pytest.mark.parametrize(
    ("kind", "tokens", "first_slot"),
    [
        ("dspark", BLOCK, 0),
        ("dspark", BLOCK - 1, 1),
        ("dspark", BLOCK - 2, 0),
        ("dspark", None, 0),
        ("dflash", BLOCK, 0),
        ("dflash", None, 1),
    ],
)
def test_slots_of_the_library_by_how_many_tokens_are_proposed(
    tmp_path: Path, kind: str, tokens: int | None, first_slot: int
) -> None:
    """Where `sample_from_anchor` is not said; as many as there are slots, or one less. Anything else says nothing."""
    target, _, _ = plain.target_folder(tmp_path / "t")
    weights = plain.block_weights(plain.numbers(2), layers=1, taps=2)
    heads = {"markov_rank": 0, "enable_confidence_head": False}
    config = library(kind, layers_of(1), **heads)
    if tokens is not None:
        config["speculators_config"] = {"proposal_methods": [{"speculative_tokens": tokens}]}
    with capture_logs() as logs:
        net = load_block_net(plain.write(tmp_path / "d", config, weights), target=str(target))
    assert net.config.first_slot == first_slot
    assert [log["what"].split(",")[0] for log in logs] == [
        f"sample_from_anchor: {'false' if first_slot else 'true'}"
    ]


def test_scales_and_caps_of_later_files(tmp_path: Path) -> None:
    """Embeddings are scaled first; logits are multiplied and then capped."""
    target, embedding, head = plain.target_folder(tmp_path / "t")
    weights = plain.block_weights(plain.numbers(6), layers=1, taps=1)
    config = {**layers_of(1), "block_size": BLOCK, "input_embedding_scale": 3.0}
    config |= {"output_multiplier": 0.5, "final_logit_softcapping": 2.0}
    config["dflash_config"] = {"target_layer_ids": [1], "mask_token_id": MASK}
    net = load_block_net(plain.write(tmp_path / "d", config, weights), target=str(target))
    given = features(1)
    states = plain.block_states(
        weights, 3.0 * embedding, given, ANCHOR, block=BLOCK, mask_id=MASK, layers=1
    )
    logits = 2.0 * (0.5 * (states @ head.T) / 2.0).tanh()
    same(drafted(net, given, [9]), logits[1:3])


def test_dspark_of_specforge_whose_files_name_no_layers(tmp_path: Path) -> None:
    """Read at the layers of DFlash, which is noted."""
    target, _, _ = plain.target_folder(tmp_path / "t", num_hidden_layers=36)
    weights = plain.block_weights(plain.numbers(1), layers=2, taps=2)
    config = {"architectures": ["DSparkDraftModel"], **layers_of(2), "block_size": BLOCK}
    config["dflash_config"] = {"mask_token_id": MASK, "markov_rank": 0}
    folder = plain.write(tmp_path / "d", config, weights)
    with capture_logs() as logs:
        net = load_block_net(folder, target=str(target))
    assert net.config.taps == (2, 34)
    assert any("after [2, 34] blocks" in log.get("what", "") for log in logs)


def test_logits_are_scaled_as_vllm_scales_them(tmp_path: Path) -> None:
    """By a field beside `dflash_config`."""
    target, embedding, head = plain.target_folder(tmp_path / "t")
    weights = plain.block_weights(plain.numbers(6), layers=1, taps=1)
    config = {**layers_of(1), "block_size": BLOCK, "logit_scale": 0.25}
    config["dflash_config"] = {"target_layer_ids": [1], "mask_token_id": MASK}
    net = load_block_net(plain.write(tmp_path / "d", config, weights), target=str(target))
    given = features(1)
    states = plain.block_states(
        weights, embedding, given, ANCHOR, block=BLOCK, mask_id=MASK, layers=1
    )
    same(drafted(net, given, [9]), 0.25 * (states @ head.T)[1:3])


@pytest.mark.parametrize("is_table", [False, True])
@pytest.mark.parametrize("kind", ["project", "library"])
def test_a_row_of_the_mask_that_lies_beside_the_weights(
    tmp_path: Path, kind: str, is_table: bool
) -> None:
    """In `mask_embedding.pt`, alone or in a table, as MiMo's files have it: slots hold it in place of the embedding's row."""
    target, embedding, head = plain.target_folder(tmp_path / "t")
    draw = plain.numbers(6)
    weights, row = plain.block_weights(draw, layers=1, taps=2), draw(1, WIDTH)
    own = {"target_layer_ids": [0, BLOCKS - 1], "mask_token_id": MASK}
    config = {**layers_of(1), "block_size": BLOCK, "dflash_config": own}
    if kind == "library":
        config = library("dflash", layers_of(1))
    folder = plain.write(tmp_path / "d", config, weights)
    before = folder_digest(folder)
    stored = {"mask_token_id": MASK, "embedding": row[0]} if is_table else row
    torch.save(stored, folder / "mask_embedding.pt")
    assert folder_digest(folder) != before
    net = load_block_net(folder, target=str(target))
    given, rows = features(2), embedding.clone()
    rows[MASK] = row[0]
    states = plain.block_states(weights, rows, given, ANCHOR, block=BLOCK, mask_id=MASK, layers=1)
    same(drafted(net, given, [9, 4]), (states @ head.T)[1:4])


def test_a_row_of_the_mask_of_another_width_is_refused(tmp_path: Path) -> None:
    """By name."""
    target, _, _ = plain.target_folder(tmp_path / "t")
    weights = plain.block_weights(plain.numbers(6), layers=1, taps=2)
    folder = plain.write(tmp_path / "d", library("dflash", layers_of(1)), weights)
    torch.save(torch.zeros(3), folder / "mask_embedding.pt")
    with pytest.raises(NetFolderError, match=r"mask_embedding is \(3,\); \(24,\) is needed"):
        load_block_net(folder, target=str(target))


@pytest.mark.parametrize("kind", ["dflash", "library", "dspark"])
def test_blocks_of_another_width_than_the_target(tmp_path: Path, kind: str) -> None:
    """`target_hidden_size`, with an embedding and a head of their own."""
    target, _, _ = plain.target_folder(tmp_path / "t", hidden_size=10)
    draw = plain.numbers(6)
    weights = plain.block_weights(draw, layers=1, taps=2)
    weights["fc.weight"] = draw(WIDTH, 2 * 10)
    tables = {f"{name}.weight": draw(VOCAB, WIDTH) for name in ("embed_tokens", "lm_head")}
    own: dict[str, Any] = {"target_layer_ids": [0, BLOCKS - 1], "mask_token_id": MASK}
    config = {**layers_of(1), "block_size": BLOCK, "target_hidden_size": 10, "dflash_config": own}
    if kind == "library":
        config = library("dflash", layers_of(1), target_hidden_size=10)
    if kind == "dspark":
        own |= {"projector_type": "dspark", "markov_rank": 0}
    folder = plain.write(tmp_path / "d", config, weights | tables)
    net = load_block_net(folder, target=str(target))
    assert net.config.request.width == 10
    given = plain.numbers(7)(LENGTH, 2, 10, size=1.0)
    states = plain.block_states(
        weights,
        tables["embed_tokens.weight"],
        given,
        ANCHOR,
        block=BLOCK,
        mask_id=MASK,
        layers=1,
    )
    expected = states @ tables["lm_head.weight"].T
    same(drafted(net, given, [9, 4]), expected[:3] if kind == "dspark" else expected[1:4])


@pytest.mark.parametrize("kind", ["dflash", "library"])
def test_blocks_for_targets_of_gemma_have_its_function(tmp_path: Path, kind: str) -> None:
    """Of the gated product."""
    target, embedding, head = plain.target_folder(tmp_path / "t")
    weights = plain.block_weights(plain.numbers(6), layers=1, taps=2)
    layers = layers_of(1, hidden_act="gelu_pytorch_tanh")
    own = {"target_layer_ids": [0, BLOCKS - 1], "mask_token_id": MASK}
    config = {**layers, "block_size": BLOCK, "dflash_config": own}
    if kind == "library":
        config = library("dflash", layers)
    net = load_block_net(plain.write(tmp_path / "d", config, weights), target=str(target))
    given = features(2)
    states = plain.block_states(
        weights,
        embedding,
        given,
        ANCHOR,
        block=BLOCK,
        mask_id=MASK,
        layers=1,
        function=partial(F.gelu, approximate="tanh"),
    )
    same(drafted(net, given, [9, 4]), (states @ head.T)[1:4])


@pytest.mark.parametrize("place", ["inside", "beside", "both"])
def test_dspark_of_specforge(tmp_path: Path, place: str) -> None:
    """Its heads' fields stand in `dflash_config`, or in older files beside it; embedding and head are the target's; slots are DeepSpec's.

    Its script for SGLang writes them in both places, and DeepSpec's name of the net; others for vLLM name the layers once more, too.
    """
    target, embedding, head = plain.target_folder(tmp_path / "t")
    draw = plain.numbers(5)
    weights = plain.block_weights(draw, layers=2, taps=3) | heads_of(draw, VOCAB)
    names = ("target_layer_ids", "mask_token_id")
    own: dict[str, Any] = {name: DSPARK[name] for name in names}
    heads = {name: value for name, value in DSPARK.items() if "markov" in name or "conf" in name}
    config = {"architectures": ["DSparkDraftModel"], **layers_of(2), "block_size": BLOCK}
    if place != "beside":
        own |= {"projector_type": "dspark", "confidence_head_alpha": 1.0, **heads}
        config["target_layer_ids"] = None
    if place != "inside":
        config |= heads
    if place == "both":
        config["architectures"] = ["Qwen3DSparkModel"]
        config["dspark_target_layer_ids"] = DSPARK["target_layer_ids"]
    folder = plain.write(tmp_path / "d", {**config, "dflash_config": own}, weights)
    net = load_block_net(folder, target=str(target))
    assert net.config.taps == (0, 2, 3)
    given = features(3)
    states = plain.block_states(
        weights, embedding, given, ANCHOR, block=BLOCK, mask_id=MASK, layers=2
    )
    bias, confidence = markov(weights, states[0:3], [ANCHOR, 9, 4])
    same(drafted(net, given, [9, 4]), (states @ head.T)[0:3] + bias)
    found = net.confidence(states[0:3], torch.tensor([ANCHOR, 9, 4]))
    assert found is not None
    same(found.sigmoid(), confidence)


@pytest.mark.parametrize(
    ("spelt", "field"),
    [
        ({"markov_head.": "logit_head.markov_head.", "confidence_head.": "logit_head.confidence_head."}, "enable_confidence_head"),
        ({"markov_head.": "", "confidence_head.proj.": "confidence_proj."}, "use_confidence_head"),
    ],
)  # fmt: skip
def test_other_names_of_the_same_heads(tmp_path: Path, spelt: dict[str, str], field: str) -> None:
    """Those of SpecForge's first files, and ModelOpt's."""
    target, embedding, head = plain.target_folder(tmp_path / "t")
    draw = plain.numbers(5)
    backbone, heads = plain.block_weights(draw, layers=1, taps=1), heads_of(draw, VOCAB, gated=True)
    stored = dict(backbone)
    for name, value in heads.items():
        ours = next(one for one in spelt if name.startswith(one))
        stored[spelt[ours] + name.removeprefix(ours)] = value
    own: dict[str, Any] = {"target_layer_ids": [1], "mask_token_id": MASK, field: True}
    own |= {"projector_type": "dspark", "markov_rank": 5, "markov_head_type": "gated"}
    if field == "enable_confidence_head":
        own["confidence_head_with_markov"] = True
    config = {"architectures": ["DFlashDraftModel"], **layers_of(1), "block_size": BLOCK}
    folder = plain.write(tmp_path / "d", {**config, "dflash_config": own}, stored)
    net = load_block_net(folder, target=str(target))
    given = features(1)
    states = plain.block_states(
        backbone, embedding, given, ANCHOR, block=BLOCK, mask_id=MASK, layers=1
    )
    bias, confidence = markov(heads, states[0:3], [ANCHOR, 9, 4])
    same(drafted(net, given, [9, 4]), (states @ head.T)[0:3] + bias)
    found = net.confidence(states[0:3], torch.tensor([ANCHOR, 9, 4]))
    assert found is not None
    same(found.sigmoid(), confidence)


@pytest.mark.parametrize("kind", ["dflash", "dspark"])
def test_blocks_of_specforge_with_few_tokens(tmp_path: Path, kind: str) -> None:
    """They are no EAGLE-3 nets for that; rows of the target's head stand for the tokens of the table."""
    target, embedding, head = plain.target_folder(tmp_path / "t")
    draw = plain.numbers(6)
    weights = plain.block_weights(draw, layers=1, taps=2)
    weights |= {"d2t": plain.offsets(DRAFTED), "t2d": plain.members(DRAFTED)}
    own: dict[str, Any] = {"target_layer_ids": [0, 2], "mask_token_id": MASK}
    if kind == "dspark":
        own |= {"projector_type": "dspark", "markov_rank": 5, "enable_confidence_head": False}
        heads = heads_of(draw, len(DRAFTED))
        weights |= {name: value for name, value in heads.items() if "markov" in name}
    config = {**layers_of(1), "block_size": BLOCK, "draft_vocab_size": len(DRAFTED)}
    folder = plain.write(tmp_path / "d", {**config, "dflash_config": own}, weights)
    net = load_block_net(folder, target=str(target))
    given = features(2)
    states = plain.block_states(
        weights, embedding, given, ANCHOR, block=BLOCK, mask_id=MASK, layers=1
    )
    logits = states @ head[DRAFTED].T
    if kind == "dspark":
        known = weights["markov_head.markov_w1.weight"][[ANCHOR, 9, 4]]
        logits = logits[0:3] + known @ weights["markov_head.markov_w2.weight"].T
    same(drafted(net, given, [9, 4]), spread(logits[1:4] if kind == "dflash" else logits))


def test_fields_of_a_block_that_nothing_reads_are_listed(tmp_path: Path) -> None:
    """They may say how it was trained, and so what it predicts."""
    target, _, _ = plain.target_folder(tmp_path / "t")
    weights = plain.block_weights(plain.numbers(1), layers=1, taps=2)
    own = {"target_layer_ids": [0, 2], "mask_token_id": MASK, "shift_label": True, "off": False}
    config = {**layers_of(1), "block_size": BLOCK, "dflash_config": own}
    with capture_logs() as logs:
        load_block_net(plain.write(tmp_path / "d", config, weights), target=str(target))
    assert [log["what"] for log in logs] == [
        "that these fields of dflash_config change nothing: shift_label"
    ]
