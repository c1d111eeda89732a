"""Passes on a GPU: small ones at fixed shapes, recorded once and replayed, all others at their own size.

A recording takes as long as ten passes. So the first pass that no recorded shape holds has a large one recorded, the *cover* of its number of
sessions, which serves passes over trees of all sizes and texts of all lengths; a shape of its own is recorded once passes of it have come a few times, unless a recorded one is
as good. A pass takes the least recorded shape that holds it, or is run by itself. Shapes are never forgotten: see
`cuda_graph.CudaGraphRecorder`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import structlog
import torch

from outrider.actors.engine.attention.attention import Attend, UnsupportedModel
from outrider.actors.engine.attention.pass_cache import PassCache
from outrider.actors.engine.attention.pass_layout import PassLayout
from outrider.actors.engine.graphs.cuda_graph import GraphRecorder, Run
from outrider.actors.engine.graphs.static_attention import static_attention
from outrider.actors.engine.graphs.static_inputs import StaticInputs, StaticLayout
from outrider.actors.engine.graphs.static_shape import (
    Need,
    StaticShape,
    cover_of,
    exact_shape,
    need_of,
    shape_of,
)
from outrider.actors.engine.kv.storage import Storage
from outrider.actors.engine.staging import Staging, to_device
from outrider.actors.engine.tapped_states import RecordedStates, TappedStates

RECORD_AFTER = 3
"""Passes of a shape before it is recorded, which takes as long as ten: rare shapes are not worth it."""

MOST_RECORDED = 96
"""Recorded shapes at most. Each takes some megabytes and, together, the memory of the largest pass."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """When shapes are recorded."""

    after: int = RECORD_AFTER
    """Passes of a shape before it is recorded."""

    most: int = MOST_RECORDED
    """Recorded shapes at most; 0 records none."""

    strict: bool = False
    """A shape that cannot be recorded is an error; otherwise none is recorded from then on."""


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
            width: Of a hidden state; 0: passes that are asked for some are run by themselves.
            dtype: Of hidden states.
        """
        self._call = call
        self._storage = storage
        self._recorder = recorder
        self._policy = policy
        self._layout = StaticLayout(storage, windows=windows, max_scratch=max_scratch)
        self._staging = Staging(self._layout.most_integers, storage.device)
        self._seen: Counter[StaticShape] = Counter()
        self.recorded: dict[StaticShape, Run] = {}
        """What replays the passes of each shape."""
        self._width, self._dtype = width, dtype
        self._kept: dict[StaticShape, torch.Tensor] = {}
        """Hidden states of the last pass of each shape, (R, L, D)."""
        self._refused = False

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
        layers = () if tapped is None else tapped.layers
        shape = self._recorded_shape(plan, layers) if self._width or not layers else None
        if shape is None:
            return self._run_once(plan, tapped)
        self._fill(plan, shape)
        logits_RV = self._recorded[shape]()[: len(plan.wanted_W)]
        if tapped is not None:
            tapped.take(self._kept[shape])
        return logits_RV.clone() if self._recorder.reuses_memory else logits_RV

    def _recorded_shape(self, plan: PassLayout, layers: tuple[int, ...]) -> StaticShape | None:
        """A recorded shape that holds a pass; one is recorded first if that is worth it."""
        storage, need = self._storage, need_of(plan, layers)
        shape = shape_of(need, num_slots=storage.num_slots, capacity=storage.capacity)
        if shape is None:
            return None
        held = self._held(need)
        if held is not None and held.is_as_good_as(shape):
            return held
        self._seen[shape] += 1
        if self._seen[shape] >= self._policy.after:
            self._record(plan, shape)
        elif held is None:
            self._record(plan, cover_of(shape, capacity=storage.capacity))
        return self._held(need)

    def _held(self, need: Need) -> StaticShape | None:
        """The least recorded shape that holds a pass."""
        fitting = [shape for shape in self.recorded if shape.holds(need)]
        return min(fitting, key=lambda shape: shape.work, default=None)

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
        self._fill(plan, shape)
        inputs = self._layout.views(self._staging.buffer, shape)
        kept = self._room_for_states(shape)
        states: list[RecordedStates] = []

        def run() -> torch.Tensor:
            if kept is not None:
                states.append(RecordedStates(shape.layers, kept))
            return self._call_model(inputs, inputs.wanted_R, states[-1] if states else None)

        try:
            recorded = self._recorder.record(run)
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
