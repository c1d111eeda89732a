"""The attention function of ours that transformers calls in each layer.

A model calls the cache and then the attention function in each layer. The cache (`pass_cache.py`) writes the new rows into the
slots; the attention function ignores the keys and values that it is handed and reads the slots. What the running pass is, it
learns from a variable of the thread, since transformers has no other way to a registered function; engines of one process, and
threads, do not meet.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch

from outrider.actors.engine.attention.attention import Attend, AttentionParams
from outrider.actors.engine.attention.pass_cache import PassCache

ATTENTION_NAME = "outrider_tree"
"""The name that the function is registered under in transformers."""


class _Running(threading.local):
    """The pass that the thread runs."""

    cache: PassCache | None = None
    attend: Attend | None = None
    windows: Sequence[int | None] = ()
    """Sliding window of each layer. What a layer says itself is not asked: some say nothing, and leave it to the mask."""


RUNNING = _Running()
"""Set by an engine around the model's forward."""


def tree_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """The function that transformers calls in each layer. Shapes: as `attention.Attend`."""
    cache, attend_pass, windows = RUNNING.cache, RUNNING.attend, RUNNING.windows
    if cache is None or attend_pass is None:
        raise RuntimeError(
            f"the model's attention is {ATTENTION_NAME!r}, which runs through an engine only; "
            "call the engine's forward instead of the model"
        )
    window = windows[cache.layer]
    params = AttentionParams(scaling=scaling, window=window, softcap=softcap, sinks=s_aux)
    return attend_pass(cache.layer, query, params), None
