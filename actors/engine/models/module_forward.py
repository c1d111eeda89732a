"""The forward of a transformers model by its own modules, with the attention, the cache and the hidden states of a pass. The counterpart of
`llama_forward.py` for models of any shape."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from outrider.actors.engine.attention.attention import Attend
from outrider.actors.engine.attention.attention_hook import RUNNING
from outrider.actors.engine.attention.pass_cache import PassCache
from outrider.actors.engine.checkpoint.cache_argument import cache_argument
from outrider.actors.engine.checkpoint.model_facts import text_config
from outrider.actors.engine.tapped_states import TappedStates, last_block_of


class ModuleForward:
    """Runs a model's modules."""

    def __init__(self, model: PreTrainedModel, windows: Sequence[int | None]) -> None:
        """
        Args:
            model: Its attention is ours (`attention_hook.py`).
            windows: Of each call of the attention, in order.
        """
        self._model = model
        self._windows = windows
        self._num_blocks = text_config(model.config).num_hidden_layers
        self._cache_argument = cache_argument(model) or "cache"
        self._can_select = "logits_to_keep" in inspect.signature(model.forward).parameters

    def __call__(
        self,
        tokens_1M: Tensor,
        positions_1M: Tensor,
        cache: PassCache,
        attend: Attend,
        wanted: Tensor | None,
        tapped: TappedStates | None = None,
    ) -> Tensor:
        """See `LlamaForward`."""
        selection: dict[str, Any] = {}
        if wanted is not None and self._can_select:
            selection["logits_to_keep"] = wanted
        if tapped is not None:
            selection["output_hidden_states"] = True
        RUNNING.cache, RUNNING.attend, RUNNING.windows = cache, attend, self._windows
        try:
            with self._watching_last_block(tapped):
                output = self._model(
                    input_ids=tokens_1M,
                    position_ids=positions_1M,
                    use_cache=True,
                    **{self._cache_argument: cache},
                    **selection,
                )
        finally:
            RUNNING.cache = RUNNING.attend = None
        if tapped is not None:
            self._take_states(tapped, output.hidden_states)
        logits_RV: Tensor = output.logits[0]
        if wanted is not None and not self._can_select:
            logits_RV = logits_RV.index_select(0, wanted)
        return logits_RV

    @contextlib.contextmanager
    def _watching_last_block(self, tapped: TappedStates | None) -> Iterator[None]:
        """While the model runs, takes what its last block gives, if that is wanted."""
        num_blocks = self._num_blocks
        last = None
        if tapped is not None and tapped.wants(num_blocks):
            last = last_block_of(self._model, num_blocks)
        if tapped is None or last is None:
            yield
            return

        def see(module: torch.nn.Module, inputs: object, output: Any) -> None:
            hidden_1MD = output[0] if isinstance(output, tuple) else output
            tapped.see(num_blocks, hidden_1MD.reshape(-1, hidden_1MD.shape[-1]))

        handle = last.register_forward_hook(see)
        try:
            yield
        finally:
            handle.remove()

    def _take_states(self, tapped: TappedStates, states: Sequence[Tensor] | None) -> None:
        """Takes what transformers tells: the input of each block, and last what comes out of the final norm."""
        num_blocks = self._num_blocks
        if states is None or len(states) != num_blocks + 1:
            return
        for layer, hidden_1MD in enumerate(states):
            tapped.see(layer if layer < num_blocks else num_blocks + 1, hidden_1MD[0])
