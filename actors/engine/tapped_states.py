"""Hidden states on their way out of a pass: kept layer by layer while the model runs, of the wanted rows only."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class TappedStates:
    """Collects states of one pass. A row is taken from a layer as the model comes by it, so no others are kept."""

    def __init__(self, layers: Sequence[int], rows_K: Tensor) -> None:
        """
        Args:
            layers: As `Taps.layers`.
            rows_K: Packed rows, on the model's device.
        """
        self._layers = tuple(layers)
        self._rows_K = rows_K
        self._states: dict[int, Tensor] = {}

    def wants(self, layer: int) -> bool:
        """Whether the states of a layer are wanted and not there yet."""
        return layer in self._layers and layer not in self._states

    def see(self, layer: int, hidden_MD: Tensor) -> None:
        """Shows the states of all rows at a layer."""
        if self.wants(layer):
            self.put(layer, self.rows_of(hidden_MD))

    def rows_of(self, hidden_MD: Tensor) -> Tensor:
        """The wanted rows of some states, as new memory. Shape (K, D)."""
        return hidden_MD.index_select(0, self._rows_K)

    def put(self, layer: int, hidden_KD: Tensor) -> None:
        """Hands in the states of the wanted rows at a layer."""
        self._states[layer] = hidden_KD

    @property
    def layers(self) -> tuple[int, ...]:
        """That are wanted."""
        return self._layers

    @property
    def is_complete(self) -> bool:
        """The model came by all of them."""
        return len(self._states) == len(self._layers)

    def take(self, kept_RLD: Tensor) -> None:
        """Takes the wanted rows from what a recorded pass has kept of all rows."""
        for index, layer in enumerate(self._layers):
            self.put(layer, self.rows_of(kept_RLD[:, index]))

    def stacked(self) -> Tensor | None:
        """All of them, shape (K, L, D); None if the model did not come by one of the layers."""
        if not self.is_complete:
            return None
        return torch.stack([self._states[layer] for layer in self._layers], dim=1)


class RecordedStates(TappedStates):
    """Those of all rows of a recorded pass, in memory that each repetition overwrites."""

    def __init__(self, layers: Sequence[int], kept_RLD: Tensor) -> None:
        """
        Args:
            layers: As `Taps.layers`.
            kept_RLD: Is written.
        """
        super().__init__(layers, torch.zeros(0, dtype=torch.int64))
        self._kept_RLD = kept_RLD

    def rows_of(self, hidden_MD: Tensor) -> Tensor:
        """All of them: which are wanted differs from pass to pass."""
        return hidden_MD

    def put(self, layer: int, hidden_KD: Tensor) -> None:
        """See `TappedStates`."""
        self._kept_RLD[:, self._layers.index(layer)].copy_(hidden_KD)
        super().put(layer, hidden_KD)


def last_block_of(model: nn.Module, num_blocks: int) -> nn.Module | None:
    """The last of a model's blocks: transformers tells what goes into each block and what the final norm makes of it, so what the last
    block gives has to be taken there. None: there is no single list of so many modules."""
    lists = [
        module
        for module in model.modules()
        if isinstance(module, nn.ModuleList) and len(module) == num_blocks
    ]
    return lists[0][-1] if len(lists) == 1 else None
