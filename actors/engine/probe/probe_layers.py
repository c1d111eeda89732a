"""What the layers of a freshly loaded model ask of cache and attention, behind a text as long as its context.

Two passes over a few rows, which cost the same however long that text is, since nothing of it is computed. In the first the
cache says nothing true about its length, and positions are given, as in an engine; in the second it says how long the text is,
and transformers makes positions and masks, as in plain decoding. Masks are the truth about who sees whom: a window that a
model only tells its attention function, or only puts into its mask, is what the mask says, as for transformers' own attention
step by step. Whatever else differs between the two passes depends on more than tokens and positions.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass

import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import eager_mask

from outrider.actors.engine.attention.attention import UnsupportedModel
from outrider.actors.engine.attention.attention_hook import ATTENTION_NAME, tree_attention
from outrider.actors.engine.checkpoint.cache_argument import cache_argument, check_arguments
from outrider.actors.engine.checkpoint.model_facts import text_config
from outrider.actors.engine.kv.storage import PlaneShape
from outrider.actors.engine.probe.probe_masks import window_of
from outrider.actors.engine.probe.probe_recorder import (
    MASKED_NAME,
    PLAIN_NAME,
    RECORDING,
    LayerRecorder,
    recorded_attention,
)

REFUSED_OPTIONS = frozenset(
    {"sinks", "position_bias", "indices", "block_indices", "block_mask", "head_mask"}
)
"""Arguments of attention functions that change the result and are not supported."""

NUM_ROWS = 4
"""Rows of the recorded passes."""

FALSE_LENGTH = 2**20
"""What the cache adds to its length in the first pass. Large: what depends on the length may do so in coarse steps."""

MAX_DIFFERENCE = 0.01
"""Greatest root mean square difference between the two passes, as a share of the numbers. They do the same operations on
numbers of the same shape, so but for the order of additions on a GPU there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerDemand:
    """What one layer asks of attention."""

    keys: PlaneShape
    values: PlaneShape
    window: int | None
    """Latest rows that a row sees, itself included; None: all."""


def record_demands(model: PreTrainedModel, *, name: str, max_context: int) -> list[LayerDemand]:
    """Switches a model to tree attention, having recorded what its layers ask for.

    Args:
        model: The model.
        name: What errors call it.
        max_context: Positions of a sequence; the rows that are run are the last of one.

    Raises:
        UnsupportedModel: It does not use transformers' attention interface, asks for an option that is not supported, lets
            rows see something else than a window of what is before them, or depends on something else than positions.
    """
    title = f"{name} ({model.config.model_type})"
    check_arguments(model, title=title)
    for each in (PLAIN_NAME, MASKED_NAME):
        AttentionInterface.register(each, recorded_attention)
    AttentionMaskInterface.register(MASKED_NAME, eager_mask)
    AttentionInterface.register(ATTENTION_NAME, tree_attention)
    num_rows = min(NUM_ROWS, max_context)
    past = max_context - num_rows
    vocab_size = text_config(model.config).vocab_size
    tokens = torch.tensor([[(13 * i + 1) % vocab_size for i in range(num_rows)]])
    positions = torch.arange(past, max_context, device=model.device)[None]
    ours = LayerRecorder(length=past + FALSE_LENGTH, shown=0)
    plain = LayerRecorder(length=past, shown=past)
    logits = [
        _record(model, tokens, cache, given, attention=attention, title=title)
        for cache, given, attention in (
            (ours, positions, PLAIN_NAME),
            (plain, None, MASKED_NAME),
        )
    ]
    layers = _check_calls(model, ours, title=title)
    place = _difference(ours, plain, logits)
    if place:
        told = LayerRecorder(length=past, shown=0)
        again = _record(model, tokens, told, positions, attention=PLAIN_NAME, title=title)
        raise UnsupportedModel(
            f"{title} does not go by the positions that it is given: behind {past} tokens {place} differs from what "
            + (
                "transformers computes with positions of its own, which do not count from 0"
                if _difference(told, plain, [again, logits[1]])
                else "it is when the cache tells its length; rows of several sessions have no one length"
            )
        )
    demands, windows = [], _Windows(past=past, num_rows=num_rows, title=title)
    for layer in layers:
        _, keys, values = ours.calls[layer].handed
        demands.append(
            LayerDemand(
                keys=PlaneShape(num_heads=keys.shape[1], head_dim=keys.shape[3]),
                values=PlaneShape(num_heads=values.shape[1], head_dim=values.shape[3]),
                window=windows.of(layer, plain.calls[layer].mask),
            )
        )
    _switch_attention(model, ATTENTION_NAME, title=title)
    return demands


def _record(
    model: PreTrainedModel,
    tokens: torch.Tensor,
    cache: LayerRecorder,
    positions: torch.Tensor | None,
    *,
    attention: str,
    title: str,
) -> torch.Tensor:
    """Runs a recorded pass; gives logits of its last row, or of all where the model gives no others."""
    _switch_attention(model, attention, title=title)
    selection: dict[str, int] = {}
    # For large vocabularies, most of the time.
    if "logits_to_keep" in inspect.signature(model.forward).parameters:
        selection["logits_to_keep"] = 1
    RECORDING.cache = cache
    try:
        output = model(
            input_ids=tokens.to(model.device),
            position_ids=positions,
            use_cache=True,
            **{cache_argument(model) or "cache": cache},
            **selection,
        )
    except UnsupportedModel as error:
        raise UnsupportedModel(f"{title} does not fit tree attention: {error}") from error
    except torch.OutOfMemoryError:
        raise
    except AttributeError as error:
        wanted = f"it asks for {error.name}" if error.obj is cache else str(error)
        raise UnsupportedModel(
            f"{title} wants more of its cache than keys and values: {wanted}"
        ) from error
    except (IndexError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        raise UnsupportedModel(
            f"{title} cannot run with a cache of keys and values alone: {error}"
        ) from error
    finally:
        RECORDING.cache = None
    logits: torch.Tensor = output.logits
    return logits


def _switch_attention(model: PreTrainedModel, attention: str, *, title: str) -> None:
    model.set_attn_implementation(attention)
    if model.config._attn_implementation != attention:
        raise UnsupportedModel(
            f"{title} computes attention by itself, not through transformers' attention interface"
        )


def _check_calls(model: PreTrainedModel, recorder: LayerRecorder, *, title: str) -> list[int]:
    """The layers, each of which uses cache and attention once and asks for nothing that is not supported."""
    layers = list(range(text_config(model.config).num_hidden_layers))
    if sorted(recorder.calls) != layers or sorted(recorder.written_layers) != layers:
        raise UnsupportedModel(
            f"{title} has {len(layers)} layers, of which {sorted(recorder.written_layers)} use the cache "
            f"and {sorted(recorder.calls)} the attention interface; all must use both"
        )
    for layer in layers:
        options = recorder.calls[layer].options
        refused = sorted(key for key in REFUSED_OPTIONS if options.get(key) is not None)
        if options.get("is_causal") is False:
            refused.append("is_causal=False")
        if refused:
            raise UnsupportedModel(
                f"layer {layer} of {title} asks attention for {', '.join(refused)}, which is not supported"
            )
    return layers


def _difference(one: LayerRecorder, other: LayerRecorder, logits: list[torch.Tensor]) -> str:
    """Where two passes differ first; empty if nowhere."""
    pairs = [
        (f"the attention of layer {layer}", ours, theirs)
        for layer, call in one.calls.items()
        for ours, theirs in zip(call.handed, other.calls[layer].handed, strict=True)
    ]
    pairs.append(("what follows the last layer", logits[0], logits[1]))
    for place, ours, theirs in pairs:
        if torch.equal(ours, theirs):
            continue
        difference = (ours.float() - theirs.float()).square().mean().sqrt()
        scale = theirs.float().square().mean().sqrt()
        if not difference <= MAX_DIFFERENCE * scale.clamp(min=1e-6):
            return place
    return ""


class _Windows:
    """Windows of masks, most of which layers have in common."""

    def __init__(self, *, past: int, num_rows: int, title: str) -> None:
        self._past, self._num_rows, self._title = past, num_rows, title
        self._known: dict[int, int | None] = {}

    def of(self, layer: int, mask: torch.Tensor | None) -> int | None:
        """The window of one layer, whose mask stays alive meanwhile."""
        if id(mask) not in self._known:
            try:
                self._known[id(mask)] = window_of(mask, past=self._past, num_rows=self._num_rows)
            except UnsupportedModel as error:
                raise UnsupportedModel(
                    f"layer {layer} of {self._title} {error}, which is not supported"
                ) from error
        return self._known[id(mask)]
