"""Records what the library `speculators` writes and what it computes of it, for `test_library`.

`pip install speculators==0.9.0`, then `python -m tests.actors.draft.checkpoints.library.record`. Each file gets the `config.json` that the library has
written, the shapes of its tensors by name, and logits of its own forward pass with the numbers of `filling`.
"""

from __future__ import annotations

import importlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from tests.actors.draft.block.test_block_formats import ANCHOR, BLOCK, LENGTH, MASK
from tests.actors.draft.checkpoints.library.filling import DRAFTED, FOLDER, PAIRS, states, tensor
from tests.actors.draft.eagle.test_eagle_formats import TOKENS
from tests.actors.draft.reference_nets import BLOCKS, LAYERS, VOCAB, WIDTH
from torch import Tensor
from transformers import LlamaConfig, PretrainedConfig, Qwen3Config

FEW = {"draft_vocab_size": len(DRAFTED)}
ALL = {"draft_vocab_size": VOCAB}
EAGLE = {"eagle_aux_hidden_state_layer_ids": [1, BLOCKS]}
SLOTS = {"aux_hidden_state_layer_ids": [1, BLOCKS], "mask_token_id": MASK, "block_size": BLOCK}
WINDOW: dict[str, Any] = {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 0}
NORMS = {"fc_norm": True, "norm_output": True, "norm_before_residual": True}
BARE = {"markov_rank": 0, "enable_confidence_head": False, "confidence_head_with_markov": False}


def layers(
    family: type[PretrainedConfig] = Qwen3Config, number: int = 1, **changes: Any
) -> PretrainedConfig:
    """The configuration of a decoder layer."""
    given = {name: value for name, value in LAYERS.items() if name != "model_type"}
    config = family(**{**given, "num_hidden_layers": number, **changes})
    config._attn_implementation = "eager"
    return config


CASES: dict[str, tuple[str, PretrainedConfig, dict[str, Any]]] = {
    "eagle3-llama": ("eagle3", layers(LlamaConfig), {**FEW, **EAGLE}),
    "eagle3-biases": ("eagle3", layers(LlamaConfig, attention_bias=True), {**ALL, **EAGLE}),
    "eagle3-norms": ("eagle3", layers(), {**FEW, **EAGLE, **NORMS}),
    "eagle3-norm-before": ("eagle3", layers(), {**ALL, **EAGLE, "norm_before_fc": True}),
    "eagle3-window": ("eagle3", layers(**WINDOW), {**ALL, **EAGLE}),
    "eagle3-two-layers": ("eagle3", layers(number=2), {**ALL, **EAGLE}),
    "peagle": ("peagle", layers(), {**FEW, **EAGLE, "mask_token_id": MASK}),
    "dflash": ("dflash", layers(number=2), {**FEW, **SLOTS}),
    "dflash-window": ("dflash", layers(number=2, **WINDOW), {**ALL, **SLOTS}),
    "dflash-both-ways": (
        "dflash",
        layers(**WINDOW),
        {**ALL, **SLOTS, "sliding_window_non_causal": True},
    ),
    "dflash2": (
        "dflash2",
        layers(hidden_size=32),
        {**ALL, **SLOTS, "selector_rank": 4, "selector_top_k": 8},
    ),
    "xpress": ("xpress", layers(), {**ALL, **SLOTS, "xpress_rank": 4}),
    "dspark": ("dspark", layers(number=2), {**FEW, **SLOTS, "markov_rank": 5}),
    "dspark-gated": (
        "dspark",
        layers(),
        {
            **ALL,
            **SLOTS,
            "markov_rank": 5,
            "markov_head_type": "gated",
            "sample_from_anchor": False,
        },
    ),
    "dspark-bare": ("dspark", layers(), {**ALL, **SLOTS, **BARE}),
    "mtp": ("mtp", layers(number=BLOCKS), {}),
}


def captured(module: torch.nn.Module, run: Callable[[], object]) -> list[Tensor]:
    """What a module gives while something runs, whatever becomes of its end: losses need more than is installed."""
    found: list[Tensor] = []
    handle = module.register_forward_hook(lambda _module, _inputs, output: found.append(output))
    try:
        run()
    except RuntimeError as error:
        if not found:
            raise
        print(f"  (after the logits: {error})")
    handle.remove()
    return found


def of_pairs(model: Any) -> Tensor:
    """Logits after the last token behind a state, and after one behind it."""
    known = states(PAIRS, 2).flatten(1)
    padded = torch.cat((known, torch.zeros(1, 2 * WIDTH)))[None]
    tokens = torch.tensor([TOKENS[1:]])
    places = torch.zeros_like(tokens)
    steps = captured(model.lm_head, lambda: model(padded, tokens, places, ttt_steps=2))
    return torch.stack([step[0, PAIRS - 1] for step in steps])


def of_slots(model: Any) -> Tensor:
    """Logits after an anchor, and after two tokens behind it."""
    count = LENGTH + 1 + BLOCK
    known, tokens = torch.zeros(1, count, 2 * WIDTH), torch.zeros(1, count, dtype=torch.long)
    known[0, :LENGTH] = states(LENGTH, 2).flatten(1)
    tokens[0, LENGTH : LENGTH + 3] = torch.tensor([ANCHOR, 9, 4])
    is_anchor = (torch.arange(count) == LENGTH).long()[None]
    last, places = torch.zeros(1, count, WIDTH), torch.zeros_like(tokens)

    def run() -> None:
        model(known, tokens, is_anchor, last, places, max_anchors=1)

    first = 0 if model.config.sample_from_anchor else 1
    used = slice(first, first + 3)
    logits: Tensor = captured(model.lm_head, run)[0][0, used]
    if getattr(model, "markov_head", None) is not None:
        hidden = captured(model.norm, run)[0][:, used]
        before = torch.tensor([[ANCHOR, 9, 4]])
        logits = logits + model.markov_head.block_bias(
            prev_token_ids=before, hidden_states=hidden
        ).view(3, -1)
    return logits


def of_one_step(model: Any) -> Tensor:
    """Logits after the last token behind a state. What follows is trained in another way than it is drafted."""
    padded = torch.cat((states(PAIRS, 1)[:, 0], torch.zeros(4, WIDTH)))[None]
    tokens = torch.tensor([[*TOKENS, 0, 0]])
    return captured(model.lm_head, lambda: model(tokens, padded))[0][:, PAIRS - 1]


COMPUTE = {"eagle3": of_pairs, "dflash": of_slots, "dspark": of_slots, "mtp": of_one_step}


def recorded(kind: str, layer: PretrainedConfig, fields: dict[str, Any]) -> dict[str, object]:
    """What stands in a file."""
    library = importlib.import_module("speculators")
    config_module = importlib.import_module("speculators.config")
    greedy = importlib.import_module("speculators.proposals.greedy").GreedyTokenProposalConfig
    importlib.import_module(f"speculators.models.{kind}")
    config = library.SpeculatorModelConfig.registry[kind](
        transformer_layer_config=layer,
        speculators_config=config_module.SpeculatorsConfig(
            algorithm=kind,
            proposal_methods=[greedy(speculative_tokens=3)],
            default_proposal_method="greedy",
            verifier=config_module.VerifierConfig(
                name_or_path=None, architectures=["LlamaForCausalLM"]
            ),
        ),
        **fields,
    )
    model = library.SpeculatorModel.registered_model_class_from_config(config)(config).eval()
    for name, parameter in model.named_parameters():
        parameter.copy_(tensor(name, parameter.shape))
    if getattr(model, "d2t", None) is not None:
        model.load_vocab_mappings(tensor("t2d", ()), tensor("d2t", ()))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        written = json.loads((Path(folder) / "config.json").read_text())
        with safe_open(Path(folder) / "model.safetensors", framework="pt") as file:
            names = sorted(file.keys())
            shapes = {name: file.get_slice(name).get_shape() for name in names}
    logits = COMPUTE[kind](model).tolist() if kind in COMPUTE else None
    return {"config": written, "shapes": shapes, "logits": logits}


def main() -> None:
    """Writes all of them."""
    FOLDER.mkdir(exist_ok=True)
    for name, case in CASES.items():
        print(name)
        with torch.no_grad():
            content = recorded(*case)
        (FOLDER / f"{name}.json").write_text(json.dumps(content) + "\n")


if __name__ == "__main__":
    main()
