"""A target and a drafter of a real device's size, that agree about as often as real ones: random weights, no download.

The drafter is the target's first layers. The target's other layers compute in full and add nothing (`actors/train/demo/deepen.py`), and
the drafter's head is the target's with noise on it; how much noise is how often they differ. Times of passes do not depend on what
weights say, so only the texts mean nothing.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from bench.gpu.gpu_model import SHAPES
from outrider.actors.engine.checkpoint.model_source import resolve_model
from outrider.actors.train.demo.deepen import deepen

TOKENIZER = "demo:target"
"""Whose tokenizer and size of vocabulary both have."""

DRAFT_LAYERS = 2
"""Of the drafter; of 32 of the 8 B shape."""

LOGITS = 6.0
"""Standard deviation of a logit. At temperature .8 the first token has .65 in the mean, as in text of middling difficulty."""

NOISE = 0.8
"""Standard deviation of what is added to the drafter's logits: its first candidate is the target's draw in some 80 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPair:
    """Folders of two checkpoints."""

    target: Path
    draft: Path


def write_pair(
    folder: Path, *, shape: str, device: torch.device, dtype: torch.dtype, max_context: int
) -> ServedPair:
    """Makes both on the device and writes them, unless they are there, of these sizes or others.

    Args:
        folder: Gets `target` and `draft`.
        shape: A key of `SHAPES`.
        device: Where they are made.
        dtype: Of the weights.
        max_context: Tokens of a sequence that the models say they have.
    """
    pair = ServedPair(target=folder / "target", draft=folder / "draft")
    if (pair.draft / "config.json").exists():
        return pair
    tokenizer = AutoTokenizer.from_pretrained(resolve_model(TOKENIZER).location)
    config = AutoConfig.for_model(
        "llama",
        **SHAPES[shape]
        | {
            "num_hidden_layers": min(DRAFT_LAYERS, num_layers(shape)),
            "vocab_size": len(tokenizer),
            "tie_word_embeddings": False,
        },
        max_position_embeddings=max_context,
        pad_token_id=None,
    )
    torch.manual_seed(0)
    with torch.device(device):
        base: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=dtype)  # type: ignore[no-untyped-call]
        head = base.lm_head.weight
        with torch.no_grad():
            head.normal_(std=LOGITS / config.hidden_size**0.5)
        target = deepen(base, num_layers(shape))
        draft = copy.deepcopy(base)
        with torch.no_grad():
            draft.lm_head.weight += NOISE / config.hidden_size**0.5 * torch.randn_like(head)
    for model, where in ((target, pair.target), (draft, pair.draft)):
        model.save_pretrained(where)
        tokenizer.save_pretrained(where)
    return pair


def num_layers(shape: str) -> int:
    """Decoder layers of a shape."""
    layers = SHAPES[shape]["num_hidden_layers"]
    assert isinstance(layers, int)
    return layers
