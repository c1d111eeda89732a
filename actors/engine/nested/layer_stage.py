"""Some layers of a Llama-shaped model, one after another, with keys and values of their own.

A *stage* reads rows of the stage before it, or token ids if it is the first, and keeps what comes out of its last layer, so that the next
stage can go on from there whenever it is asked to. Kept states lie in the storage as one more plane, so they move, are copied and are
cleared along with the keys and values of their rows; the next stage has that plane for its table of embeddings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from outrider.actors.engine.attention.attention import Attend
from outrider.actors.engine.attention.pass_cache import PassCache
from outrider.actors.engine.attention.pass_layout import PassLayout, plan_pass
from outrider.actors.engine.attention.planned_attention import planned_attention, planned_cache
from outrider.actors.engine.graphs.cuda_graph import recorder_for
from outrider.actors.engine.graphs.recording_policy import Policy
from outrider.actors.engine.graphs.static_pass import StaticPasses
from outrider.actors.engine.kv.added_rows import packed
from outrider.actors.engine.kv.moved_rows import moved_rows
from outrider.actors.engine.kv.slots import SlotTable
from outrider.actors.engine.kv.storage import PlaneShape, Storage
from outrider.actors.engine.models.llama_forward import LlamaForward
from outrider.actors.engine.models.llama_weights import LlamaWeights
from outrider.actors.engine.protocol import Moves, Rows
from outrider.actors.engine.tapped_states import TappedStates


class _ParkedStates(TappedStates):
    """Writes what the last layer gives into the plane behind the layers' own."""

    def __init__(self, cache: PassCache, layer: int) -> None:
        super().__init__((), torch.zeros(0, dtype=torch.int64))
        self._cache, self._layer = cache, layer

    def see(self, layer: int, hidden_MD: Tensor) -> None:
        if layer == self._layer:
            # A plane of keys has one of values beside it, which nobody reads.
            nothing = hidden_MD.new_zeros((1, 1, len(hidden_MD), 1))
            self._cache.update(hidden_MD[None, None], nothing, layer)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRoom:
    """Room of every stage alike."""

    num_slots: int
    max_context: int
    max_scratch: int
    vocab_size: int
    cuda_graphs: str
    """As `EngineSettings.cuda_graphs`."""


class LayerStage:
    """Layers with slots. A stage's rows are, slot for slot, some of those of the stage before it."""

    def __init__(
        self, weights: LlamaWeights, room: StageRoom, *, below: LayerStage | None, is_last: bool
    ) -> None:
        """
        Args:
            weights: Of these layers, with the model's embedding, final norm and head.
            room: How many rows.
            below: The stage before; None: rows are token ids.
            is_last: Nobody goes on from here.
        """
        kind = weights.embedding
        heads = PlaneShape(num_heads=weights.num_key_heads, head_dim=weights.head_dim)
        shapes = [(heads, heads)] * len(weights.layers)
        if not is_last:
            kept = PlaneShape(num_heads=1, head_dim=kind.shape[1])
            shapes.append((kept, PlaneShape(num_heads=1, head_dim=1)))
        self._capacity = capacity = room.max_context + room.max_scratch
        self.table = SlotTable(
            num_slots=room.num_slots,
            max_context=room.max_context,
            max_scratch=room.max_scratch,
            vocab_size=room.vocab_size if below is None else room.num_slots * capacity,
        )
        self.storage = Storage(
            shapes,
            num_slots=room.num_slots,
            capacity=capacity,
            dtype=kind.dtype,
            device=kind.device,
        )
        if below is not None:
            table_RD = below.storage.flat_keys[-1].squeeze(1)
            weights = replace(weights, embedding=table_RD)
        self._num_layers, self._is_last = len(weights.layers), is_last
        self._model = LlamaForward(weights, max_context=room.max_context)
        self._static: StaticPasses | None = None
        if kind.device.type != "cpu" or room.cuda_graphs == "on":
            self._static = StaticPasses(
                self._call,
                self.storage,
                recorder_for(kind.device),
                windows=[layer.window for layer in weights.layers],
                max_scratch=room.max_scratch,
                policy=Policy.of(room.cuda_graphs),
                weight_bytes=weights.num_bytes,
                vocab_size=weights.head.keywords["mat2"].shape[1],
            )
            if kind.device.type == "cuda":
                self._record_usual(self._static)
        self._reached = [0] * room.num_slots
        """Rows of each slot that were ever written since it was cleared."""
        self.took_s = 0.0
        """Seconds of the last pass."""

    @torch.inference_mode()
    def _record_usual(self, static: StaticPasses) -> None:
        slot = self.table.acquire(None)
        row = packed([Rows(slot=slot, tokens=[0], parents=[-1])])
        static.prepare(plan_pass(row, self.table.check(row)))
        self.table.release(slot)

    def cached(self, slot: int) -> int:
        """Cached rows of a slot."""
        return self.table.cached(slot)

    def row(self, slot: int, row: int) -> int:
        """What the next stage reads for a row of a slot, the cached ones counted first."""
        return slot * self._capacity + row

    def acquire(self, slot: int | None, *, keep: int) -> int:
        """See `Engine`."""
        taken = self.table.acquire(slot, keep=keep)
        end = max(keep, self._reached[taken]) if self._static is None else None
        with torch.inference_mode():
            self.storage.clear(taken, keep, end)
        self._reached[taken] = keep
        return taken

    @torch.inference_mode()
    def run(
        self, batch: Sequence[Rows], wanted: Sequence[Sequence[int]] | None = None
    ) -> tuple[Tensor, PassLayout]:
        """Runs rows, which become scratch rows.

        Args:
            batch: The rows.
            wanted: Of each entry, which of its rows logits are wanted for, ascending; None: as the entries say.

        Returns:
            The logits, float32, and how the pass was laid out.
        """
        began = perf_counter()
        arrays = packed(batch)
        added = self.table.check(arrays)
        plan = plan_pass(arrays, added)
        if wanted is not None:
            rows = [
                start + row
                for start, own in zip(added.starts.tolist(), wanted, strict=False)
                for row in own
            ]
            counts = [0, *map(len, wanted)]
            offsets = tuple(np.cumsum(counts).tolist())
            plan = replace(plan, wanted_W=np.array(rows, np.int64), offsets=offsets)
        for slot, total in zip(plan.slots, plan.totals, strict=True):
            self._reached[slot] = max(self._reached[slot], total)
        if self._static is not None:
            values_RV = self._static.run(plan)
        else:
            rows_2M = torch.from_numpy(np.stack((added.tokens_R, plan.positions())))
            values_RV = self._call(
                rows_2M[:1],
                rows_2M[1:],
                planned_cache(plan, self.storage),
                planned_attention(plan, self.storage),
                torch.from_numpy(plan.wanted_W),
            )
        self.table.grow(added)
        self.took_s = perf_counter() - began - (self._static.recording_s if self._static else 0.0)
        return values_RV, plan

    def _call(
        self,
        tokens_1M: Tensor,
        positions_1M: Tensor,
        cache: PassCache,
        attend: Attend,
        wanted: Tensor | None,
        tapped: TappedStates | None = None,
    ) -> Tensor:
        if not self._is_last:
            tapped = _ParkedStates(cache, self._num_layers)
        return self._model(tokens_1M, positions_1M, cache, attend, wanted, tapped).float()

    @torch.inference_mode()
    def rebase(self, moves: Moves) -> None:
        """See `Engine`."""
        self.table.rebase(moves)
        self.storage.move(moved_rows(moves, self.table.cached_S))

    @torch.inference_mode()
    def copy_prefix(self, source: int, destination: int, length: int) -> None:
        """See `Engine`."""
        self.table.copy_prefix(source, destination, length)
        self.storage.copy(source, destination, length)
        self._reached[destination] = max(self._reached[destination], length)
