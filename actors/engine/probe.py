"""A look at a freshly loaded model: does tree attention over slots fit it?

"Any decoder-only model" cannot be decided from a list of names. So the model is run on a few tokens: once as transformers runs
it (the reference), once through an attention function that records what each layer asks for, and, when the engine stands, once
as a tree. A model that asks for what is not supported, or whose tree differs from the reference, is refused at load.
"""

from __future__ import annotations

import inspect
import threading
from dataclasses import dataclass
from typing import cast

import torch
from transformers import AttentionInterface, PreTrainedConfig, PreTrainedModel

from outrider.actors.engine.attention import UnsupportedModel
from outrider.actors.engine.attention_hook import ATTENTION_NAME, tree_attention
from outrider.actors.engine.model_facts import text_config
from outrider.actors.engine.protocol import Engine, Rows
from outrider.actors.engine.storage import PlaneShape

PROBE_NAME = "outrider_probe"
"""The name that the recording function is registered under in transformers."""

REFUSED_OPTIONS = frozenset(
    {"sinks", "position_bias", "indices", "block_indices", "block_mask", "head_mask"}
)
"""Arguments of attention functions that change the result and are not supported."""

PROBE_PREFIX = 8
"""Tokens before the probed tree. Any small number does."""

PROBE_PARENTS = (-1, -1, 0, 1, 2)
"""The probed tree: two branches, of 3 and 2 nodes, interleaved."""

MAX_PROBE_ERROR = {torch.float32: 0.01, torch.bfloat16: 0.25, torch.float16: 0.1}
"""Greatest root mean square difference of logits between tree and reference, as a share of their spread. Rounding gives about
1e-6 in float32 and 0.02 in bfloat16; a branch that sees another, or an ignored position, gives 0.3 and more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerDemand:
    """What one layer asked of attention."""

    keys: PlaneShape
    values: PlaneShape
    window: int | None


def reference_logits(model: PreTrainedModel, paths: list[list[int]]) -> list[torch.Tensor]:
    """Logits of token sequences as transformers computes them, without a cache. Shapes: (len(path), V) each.

    Step by step: some versions' fused attention leaves out what it cannot do, as 5.10 does with capped scores.
    """
    model.set_attn_implementation("eager")
    logits = []
    for path in paths:
        ids = torch.tensor([path], device=model.device)
        logits.append(model(input_ids=ids, use_cache=False).logits[0].float())
    return logits


class _RecordingCache:
    """A cache that forgets, but remembers the shapes."""

    is_compileable = False

    def __init__(self) -> None:
        self.shapes: dict[int, tuple[PlaneShape, PlaneShape]] = {}
        self.options: dict[int, dict[str, object]] = {}
        self.layer = -1
        self.written: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.layer, self.written = layer_idx, (key_states, value_states)
        self.shapes[layer_idx] = (
            PlaneShape(num_heads=key_states.shape[1], head_dim=key_states.shape[3]),
            PlaneShape(num_heads=value_states.shape[1], head_dim=value_states.shape[3]),
        )
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        options: dict[str, object],
    ) -> torch.Tensor:
        if self.layer in self.options or self.layer < 0:
            raise UnsupportedModel(
                f"attention ran twice after layer {self.layer} wrote its keys: layers that share keys "
                "and values are not supported"
            )
        if self.written is None or not all(map(torch.equal, (key, value), self.written)):
            raise UnsupportedModel(
                f"layer {self.layer} attends to other keys and values than it caches: models that cache "
                "a compressed form (latent attention) are not supported"
            )
        self.options[self.layer] = options
        output = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=query.shape[1] != key.shape[1]
        )
        return output.transpose(1, 2)


class _Probing(threading.local):
    """The probe that the thread runs."""

    cache: _RecordingCache | None = None


_PROBING = _Probing()


def _probe_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **options: object,
) -> tuple[torch.Tensor, None]:
    if _PROBING.cache is None:
        raise RuntimeError(f"the model's attention is {PROBE_NAME!r}; probing it has failed before")
    return _PROBING.cache.attend(query, key, value, options), None


def record_demands(model: PreTrainedModel, *, name: str) -> list[LayerDemand]:
    """Switches a model to tree attention, having recorded what its layers ask for.

    Raises:
        UnsupportedModel: It does not use transformers' attention interface, or asks for an option that is not supported.
    """
    arguments = inspect.signature(model.forward).parameters
    missing = {"position_ids", "past_key_values"} - set(arguments)
    if missing:
        raise UnsupportedModel(
            f"{name} ({model.config.model_type}) takes no {' and no '.join(sorted(missing))}; "
            "tree attention needs explicit positions and a cache"
        )
    cache = _RecordingCache()
    AttentionInterface.register(PROBE_NAME, _probe_attention)
    AttentionInterface.register(ATTENTION_NAME, tree_attention)
    _switch_attention(model, PROBE_NAME, name=name)
    ids = torch.tensor([[1, 0]], device=model.device)
    _PROBING.cache = cache
    try:
        model(
            input_ids=ids,
            position_ids=torch.tensor([[0, 1]], device=model.device),
            past_key_values=cache,
            use_cache=True,
        )
    except (AttributeError, NotImplementedError, TypeError) as error:
        raise UnsupportedModel(
            f"{name} ({model.config.model_type}) wants more of its cache than keys and values: {error}"
        ) from error
    finally:
        _PROBING.cache = None
    demands = _demands(cache, text_config(model.config), name=name)
    _switch_attention(model, ATTENTION_NAME, name=name)
    return demands


def _switch_attention(model: PreTrainedModel, attention: str, *, name: str) -> None:
    model.set_attn_implementation(attention)
    if model.config._attn_implementation != attention:
        raise UnsupportedModel(
            f"{name} ({model.config.model_type}) computes attention by itself, not through transformers' "
            "attention interface"
        )


def _demands(cache: _RecordingCache, config: PreTrainedConfig, *, name: str) -> list[LayerDemand]:
    num_layers = config.num_hidden_layers
    layers = list(range(num_layers))
    if sorted(cache.options) != layers or sorted(cache.shapes) != layers:
        raise UnsupportedModel(
            f"{name} ({config.model_type}) has {num_layers} layers, of which {sorted(cache.shapes)} use the cache "
            f"and {sorted(cache.options)} the attention interface; all must use both"
        )
    layer_types = getattr(config, "layer_types", None)
    demands = []
    for layer in layers:
        options = cache.options[layer]
        refused = sorted(key for key in REFUSED_OPTIONS if options.get(key) is not None)
        if options.get("is_causal") is False:
            refused.append("is_causal=False")
        if refused:
            raise UnsupportedModel(
                f"layer {layer} of {name} ({config.model_type}) asks attention for {', '.join(refused)}, "
                "which is not supported"
            )
        # The option of transformers' attention functions is an int or None.
        window = cast("int | None", options.get("sliding_window"))
        if layer_types and (layer_types[layer] == "sliding_attention") != (window is not None):
            raise UnsupportedModel(
                f"layer {layer} of {name} ({config.model_type}) is of type {layer_types[layer]}, but asks "
                f"attention for a sliding window of {window}"
            )
        keys, values = cache.shapes[layer]
        demands.append(LayerDemand(keys=keys, values=values, window=window))
    return demands


def probe_paths(vocab_size: int, max_context: int) -> tuple[list[int], list[int], list[list[int]]]:
    """Tokens for the probe: a prefix, a tree below it, and prefix and branch for each of the tree's nodes."""
    prefix_length = max(1, min(PROBE_PREFIX, max_context - len(PROBE_PARENTS)))
    tokens = [(7919 * i + 1) % vocab_size for i in range(prefix_length + len(PROBE_PARENTS))]
    prefix, tree = tokens[:prefix_length], tokens[prefix_length:]
    paths: list[list[int]] = []
    for token, parent in zip(tree, PROBE_PARENTS, strict=True):
        paths.append([*(prefix if parent < 0 else paths[parent]), token])
    return prefix, tree, paths


def check_tree(
    engine: Engine,
    prefix: list[int],
    tree: list[int],
    reference: list[torch.Tensor],
    *,
    limit: float | None = None,
) -> None:
    """Compares a tree through the engine with the reference of each branch.

    Args:
        engine: Of the model, with a free slot.
        prefix: Tokens before the tree.
        tree: Its tokens.
        reference: Logits of each branch.
        limit: Greatest difference as a share of the logits' spread; None: what rounding in the model's type allows.

    Raises:
        UnsupportedModel: They differ by more than rounding.
    """
    slot = engine.acquire()
    chain = range(-1, len(prefix) - 1)
    engine.forward([Rows(slot=slot, tokens=prefix, parents=chain, logits="none")])
    engine.rebase(slot, range(len(prefix)))
    logits = engine.forward([Rows(slot=slot, tokens=tree, parents=PROBE_PARENTS)]).values_RV
    engine.release(slot)
    expected = torch.stack([each[-1] for each in reference])
    spread = (expected - expected.mean(dim=1, keepdim=True)).square().mean().sqrt()
    error = (logits - expected).square().mean().sqrt() / spread.clamp(min=1e-6)
    if limit is None:
        limit = MAX_PROBE_ERROR[engine.spec.dtype]
    if not error.item() <= limit:
        raise UnsupportedModel(
            f"{engine.spec.name} gives other logits for a tree than for its branches one by one (difference "
            f"{error.item():.3g} of their spread, limit {limit}); its attention depends on something else "
            "than keys, values and positions"
        )
