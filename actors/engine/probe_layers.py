"""What the layers of a freshly loaded model ask of cache and attention, behind a text as long as its context.

Two passes over a few rows, which cost the same however long that text is, since nothing of it is computed. In the first the
cache says nothing true about its length, and positions are given, as in an engine; in the second it says how long the text is,
and transformers makes positions and masks, as in plain decoding. Masks are the truth about who sees whom: a window that a
model only tells its attention function, or only puts into its mask, is what the mask says, as for transformers' own attention
step by step. Whatever else differs between the two passes depends on more than tokens and positions.
"""

from __future__ import annotations

import inspect
import threading
from dataclasses import dataclass

import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import eager_mask

from outrider.actors.engine.attention import UnsupportedModel
from outrider.actors.engine.attention_hook import ATTENTION_NAME, tree_attention
from outrider.actors.engine.model_facts import text_config
from outrider.actors.engine.probe_masks import window_of
from outrider.actors.engine.storage import PlaneShape

PLAIN_NAME = "outrider_probe"
"""The name that the recording function is registered under in transformers, for passes without masks."""

MASKED_NAME = "outrider_probe_masked"
"""The same, for passes with masks."""

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Call:
    """One layer's call of attention."""

    handed: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
    """Queries, and the keys and values that were cached. Shape (1, heads, rows, head_dim) each."""

    mask: torch.Tensor | None
    options: dict[str, object]


class _Recorder:
    """A cache that forgets, but remembers calls."""

    is_compileable = False

    def __init__(self, *, length: int, shown: int) -> None:
        """A cache that says it is `length` long, and shows so many rows more than are written, all alike."""
        self._length, self._shown = length, shown
        self._written: tuple[torch.Tensor, torch.Tensor] | None = None
        self._layer = -1
        self.written_layers: set[int] = set()
        self.calls: dict[int, _Call] = {}

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self._layer, self._written = layer_idx, (key_states, value_states)
        self.written_layers.add(layer_idx)
        return self._behind(key_states), self._behind(value_states)

    def _behind(self, rows: torch.Tensor) -> torch.Tensor:
        """As a cache of the shown length would give them back, without room for them."""
        if not self._shown:
            return rows
        batch, heads, num_rows, dim = rows.shape
        return rows.new_full((), 0.5).expand(batch, heads, self._shown + num_rows, dim)

    def get_seq_length(self, layer_idx: int | None = 0) -> int:
        return self._length

    def get_query_offset(self, layer_idx: int | None = 0) -> int:
        return self._length

    def get_mask_sizes(
        self, query_length: int | torch.Tensor, layer_idx: int | None = 0
    ) -> tuple[int, int]:
        # Before transformers 5.11 or so, the positions of the rows.
        count = query_length if isinstance(query_length, int) else query_length.shape[0]
        return self._length + count, 0

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None,
        options: dict[str, object],
    ) -> torch.Tensor:
        if self._written is None or self._layer in self.calls:
            raise UnsupportedModel(
                f"attention ran twice after layer {self._layer} wrote its keys: layers that share keys "
                "and values are not supported"
            )
        for kind, given, kept in zip(("keys", "values"), (key, value), self._written, strict=True):
            if not self._shown and not torch.equal(given, kept):
                raise UnsupportedModel(
                    f"layer {self._layer} attends to other keys and values than it caches: its {kind} are changed after the "
                    f"cache has taken them ({_told(kept)} cached, {_told(given)} attended to), which is not supported"
                )
        self.calls[self._layer] = _Call(handed=(query, *self._written), mask=mask, options=options)
        # What comes out matters only as far as it is the same in both passes.
        keys, values = self._written
        output = torch.nn.functional.scaled_dot_product_attention(
            query, keys, values, is_causal=True, enable_gqa=query.shape[1] != keys.shape[1]
        )
        return output.transpose(1, 2)


def _told(rows: torch.Tensor) -> str:
    return f"{rows.shape[1]} heads of {rows.shape[-1]} numbers"


class _Recording(threading.local):
    """The pass that the thread runs."""

    cache: _Recorder | None = None


_RECORDING = _Recording()


def _recorded_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **options: object,
) -> tuple[torch.Tensor, None]:
    if _RECORDING.cache is None:
        raise RuntimeError("the model's attention records; probing it has failed before")
    return _RECORDING.cache.attend(query, key, value, attention_mask, options), None


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
    missing = {"position_ids", "past_key_values"} - set(inspect.signature(model.forward).parameters)
    if missing:
        raise UnsupportedModel(
            f"{title} takes no {' and no '.join(sorted(missing))}; "
            "tree attention needs explicit positions and a cache"
        )
    for each in (PLAIN_NAME, MASKED_NAME):
        AttentionInterface.register(each, _recorded_attention)
    AttentionMaskInterface.register(MASKED_NAME, eager_mask)
    AttentionInterface.register(ATTENTION_NAME, tree_attention)
    num_rows = min(NUM_ROWS, max_context)
    past = max_context - num_rows
    vocab_size = text_config(model.config).vocab_size
    tokens = torch.tensor([[(13 * i + 1) % vocab_size for i in range(num_rows)]])
    positions = torch.arange(past, max_context, device=model.device)[None]
    ours = _Recorder(length=past + FALSE_LENGTH, shown=0)
    plain = _Recorder(length=past, shown=past)
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
        told = _Recorder(length=past, shown=0)
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
    cache: _Recorder,
    positions: torch.Tensor | None,
    *,
    attention: str,
    title: str,
) -> torch.Tensor:
    """Runs a recorded pass; gives its logits."""
    _switch_attention(model, attention, title=title)
    _RECORDING.cache = cache
    try:
        output = model(
            input_ids=tokens.to(model.device),
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
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
        _RECORDING.cache = None
    logits: torch.Tensor = output.logits
    return logits


def _switch_attention(model: PreTrainedModel, attention: str, *, title: str) -> None:
    model.set_attn_implementation(attention)
    if model.config._attn_implementation != attention:
        raise UnsupportedModel(
            f"{title} computes attention by itself, not through transformers' attention interface"
        )


def _check_calls(model: PreTrainedModel, recorder: _Recorder, *, title: str) -> list[int]:
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


def _difference(one: _Recorder, other: _Recorder, logits: list[torch.Tensor]) -> str:
    """Where two passes differ first; empty if nowhere."""
    pairs = [
        (f"the attention of layer {layer}", ours, theirs)
        for layer, call in one.calls.items()
        for ours, theirs in zip(call.handed, other.calls[layer].handed, strict=True)
    ]
    for place, ours, theirs in [*pairs, ("what follows the last layer", *logits)]:
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
