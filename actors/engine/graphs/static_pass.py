"""Passes on a GPU: small ones at fixed shapes, recorded once and replayed, all others at their own size.

A recording takes as long as some ten passes, and a request waits for it. So the usual shapes, which serve trees of all sizes and texts of all lengths,
are recorded when a model is loaded (`prepare`). A pass takes the cheapest recorded shape that holds it, or is run by itself; its own shape is recorded
once that has paid (`recording_policy.py`). Shapes are never forgotten: see `cuda_graph.CudaGraphRecorder`.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Protocol

import numpy as np
import structlog
import torch

from outrider.actors.engine.attention.attention import Attend, UnsupportedModel
from outrider.actors.engine.attention.pass_cache import PassCache
from outrider.actors.engine.attention.pass_layout import PassLayout
from outrider.actors.engine.graphs.cuda_graph import GraphRecorder, Run
from outrider.actors.engine.graphs.recording_policy import Policy, Thrift
from outrider.actors.engine.graphs.static_attention import static_attention
from outrider.actors.engine.graphs.static_inputs import StaticInputs, StaticLayout
from outrider.actors.engine.graphs.static_shape import (
    ROWS,
    StaticShape,
    exact_shape,
    need_of,
    shape_of,
    usual_shapes,
)
from outrider.actors.engine.kv.storage import Storage
from outrider.actors.engine.staging import Staging, to_device
from outrider.actors.engine.tapped_states import RecordedStates, TappedStates

_log = structlog.get_logger(__name__)


class CallModel(Protocol):
    """Runs the model on packed rows."""

    def __call__(
        self,
        tokens_1R: torch.Tensor,
        positions_1R: torch.Tensor,
        cache: PassCache,
        attend: Attend,
        wanted: torch.Tensor,
        tapped: TappedStates | None = None,
        /,
    ) -> torch.Tensor:
        """Gives the logits of the wanted rows: float32 (wanted, V)."""
        ...


class StaticPasses:
    """The passes of one engine."""

    def __init__(
        self,
        call: CallModel,
        storage: Storage,
        recorder: GraphRecorder,
        *,
        windows: Sequence[int | None],
        max_scratch: int,
        policy: Policy,
        weight_bytes: int,
        vocab_size: int,
        width: int = 0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Starts with nothing recorded.

        Args:
            call: Runs the model.
            storage: Its keys and values.
            recorder: Records.
            windows: Sliding window of each layer.
            max_scratch: Scratch rows of a slot, at most.
            policy: When to record.
            weight_bytes: Of the model, as a pass reads them.
            vocab_size: Columns of its logits.
            width: Of a hidden state; 0: passes that are asked for some are run by themselves.
            dtype: Of hidden states.
        """
        self._call = call
        self._storage = storage
        self._recorder = recorder
        self._policy = policy
        self._layout = StaticLayout(storage, windows=windows, max_scratch=max_scratch)
        self._staging = Staging(self._layout.most_integers, storage.device)
        self._thrift = Thrift(policy.price, row_share=storage.row_bytes / max(weight_bytes, 1))
        self.recorded: dict[StaticShape, Run] = {}
        """What replays the passes of each shape."""
        self._width, self._dtype = width, dtype
        self._kept: dict[StaticShape, torch.Tensor] = {}
        """Hidden states of the last pass of each shape, (R, L, D)."""
        rows = ROWS[-1] if policy.most else 0
        self._logits_RV = torch.zeros(rows, vocab_size, device=storage.device)
        """Where all replays leave theirs: those of each would take gigabytes."""
        self._refused = False
        self.recording_s = 0.0
        """Seconds of the last call of `run` in which a shape was recorded."""

    def prepare(self, plan: PassLayout) -> None:
        """Records the usual shapes.

        Args:
            plan: A pass of one row in the first slot. It may run.

        Raises:
            UnsupportedModel: As `run`.
        """
        storage = self._storage
        for shape in usual_shapes(num_slots=storage.num_slots, capacity=storage.capacity):
            if shape not in self.recorded:
                self._record(plan, shape)

    def run(self, plan: PassLayout, tapped: TappedStates | None = None) -> torch.Tensor:
        """Runs a pass.

        Args:
            plan: Its rows.
            tapped: Takes hidden states.

        Returns:
            The logits of the wanted rows, float32 (wanted, V).

        Raises:
            UnsupportedModel: With a strict policy, its shape could not be recorded.
        """
        self.recording_s = 0.0
        layers = () if tapped is None else tapped.layers
        shape = self._recorded_shape(plan, layers) if self._width or not layers else None
        if shape is None:
            return self._run_once(plan, tapped)
        self._fill(plan, shape)
        logits_RV = self.recorded[shape]()[: len(plan.wanted_W)].clone()
        if tapped is not None:
            tapped.take(self._kept[shape])
        return logits_RV

    def _recorded_shape(self, plan: PassLayout, layers: tuple[int, ...]) -> StaticShape | None:
        """A recorded shape that holds a pass; one is recorded first if that is worth it."""
        storage, need = self._storage, need_of(plan, layers)
        shape = shape_of(need, num_slots=storage.num_slots, capacity=storage.capacity)
        if shape is None:
            return None
        thrift = self._thrift
        held = thrift.cheapest(self.recorded, need)
        if shape not in self.recorded and thrift.pays(shape, held):
            self._record(plan, shape if held else thrift.first(shape, storage.capacity))
            held = thrift.cheapest(self.recorded, need)
        return held

    def _run_once(self, plan: PassLayout, tapped: TappedStates | None) -> torch.Tensor:
        """Runs a pass at its own size."""
        shape = exact_shape(need_of(plan))
        numbers = np.concatenate(self._layout.fill(plan, shape))
        inputs = self._layout.views(to_device(numbers, self._storage.device), shape)
        return self._call_model(inputs, inputs.wanted_R[: len(plan.wanted_W)], tapped)

    def _fill(self, plan: PassLayout, shape: StaticShape) -> None:
        self._staging.fill(self._layout.fill(plan, shape))

    def _record(self, plan: PassLayout, shape: StaticShape) -> None:
        """Records a shape that holds a pass, if more may be recorded."""
        if self._refused or len(self.recorded) >= self._policy.most:
            return
        began = perf_counter()
        self._fill(plan, shape)
        inputs = self._layout.views(self._staging.buffer, shape)
        kept = self._room_for_states(shape)
        states: list[RecordedStates] = []

        def run() -> torch.Tensor:
            if kept is not None:
                states.append(RecordedStates(shape.layers, kept))
            tapped = states[-1] if states else None
            logits_RV = self._logits_RV[: shape.rows]
            return logits_RV.copy_(self._call_model(inputs, inputs.wanted_R, tapped))

        try:
            recorded = self._recorder.record(run)
            self.recording_s = perf_counter() - began
        except RuntimeError as error:
            # What was recorded before stays good.
            self._refused = True
            if self._policy.strict:
                raise UnsupportedModel(
                    f"passes of this model cannot be recorded: {error}; set cuda_graphs to auto or off"
                ) from error
            _log.warning(
                "passes cannot be recorded; each is run by itself", shape=shape, reason=str(error)
            )
            return
        if states and not states[-1].is_complete:
            # The model does not come by one of the layers; whoever asks is told so.
            self._width = 0
            return
        self.recorded[shape] = recorded
        if kept is not None:
            self._kept[shape] = kept

    def _room_for_states(self, shape: StaticShape) -> torch.Tensor | None:
        if not shape.layers:
            return None
        size = shape.rows, len(shape.layers), self._width
        return torch.zeros(size, dtype=self._dtype, device=self._storage.device)

    def _call_model(
        self, inputs: StaticInputs, wanted: torch.Tensor, tapped: TappedStates | None = None
    ) -> torch.Tensor:
        # Cache and attention are made each time: they keep what they derive from the inputs, which must be part of a recording.
        cache = PassCache(self._storage, inputs.written_R)
        attend = static_attention(self._storage, inputs)
        tokens_1R, positions_1R = inputs.tokens_R[None], inputs.positions_R[None]
        return self._call(tokens_1R, positions_1R, cache, attend, wanted, tapped)
