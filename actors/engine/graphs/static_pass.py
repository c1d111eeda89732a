"""Small passes at fixed shapes, recorded once and replayed; everything else stays with the plain path.

A shape is recorded when passes of it have come a few times, up to a bound; a pass whose own shape is not recorded takes the
least recorded one that holds it. Shapes are never forgotten: see `graphs.CudaGraphRecorder`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog
import torch

from outrider.actors.engine.attention.attention import Attend, UnsupportedModel
from outrider.actors.engine.attention.pass_layout import PassLayout
from outrider.actors.engine.graphs.cuda_graph import GraphRecorder, Run
from outrider.actors.engine.graphs.static_attention import AttendStatic, StaticCache
from outrider.actors.engine.graphs.static_inputs import WORD_BITS, fill, num_integers, views
from outrider.actors.engine.graphs.static_shape import (
    MOST_PADDED,
    ROWS,
    Need,
    StaticShape,
    need_of,
    shape_of,
)
from outrider.actors.engine.kv.storage import Storage
from outrider.actors.engine.staging import Staging

RECORD_AFTER = 3
"""Passes of a shape before it is recorded, which takes as long as several: rare shapes are not worth it."""

MOST_RECORDED = 96
"""Recorded shapes at most. Each takes some megabytes and, together, the memory of the largest pass."""

_log = structlog.get_logger(__name__)


class CallModel(Protocol):
    """Runs the model on packed rows."""

    def __call__(
        self,
        tokens_1R: torch.Tensor,
        positions_1R: torch.Tensor,
        cache: StaticCache,
        attend: Attend,
        wanted: torch.Tensor,
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
    """Recorded shapes at most."""

    strict: bool = False
    """A shape that cannot be recorded is an error; otherwise passes stay plain from then on."""


class StaticPasses:
    """The recorded passes of one engine."""

    def __init__(
        self,
        call: CallModel,
        storage: Storage,
        recorder: GraphRecorder,
        *,
        max_scratch: int,
        dtype: torch.dtype,
        device: torch.device,
        policy: Policy,
    ) -> None:
        """Starts with nothing recorded.

        Args:
            call: Runs the model.
            storage: Its keys and values.
            recorder: Records.
            max_scratch: Scratch rows of a slot, at most.
            dtype: Type of weights and cache.
            device: Where they are.
            policy: When to record.
        """
        self._call = call
        self._storage = storage
        self._recorder = recorder
        self._max_scratch = max_scratch
        self._dtype = dtype
        self._policy = policy
        self._words = -(-max_scratch // WORD_BITS)
        most_entries = min(storage.num_slots, MOST_PADDED)
        most = ROWS[-1] * (5 + self._words) + MOST_PADDED + ROWS[-1] + 4 * most_entries
        self._staging = Staging(most, device)
        self._seen: Counter[StaticShape] = Counter()
        self._recorded: dict[StaticShape, Run] = {}
        self._refused = False

    @property
    def num_recorded(self) -> int:
        """Recorded shapes."""
        return len(self._recorded)

    def run(self, plan: PassLayout) -> torch.Tensor | None:
        """Runs a pass.

        Returns:
            The logits of the wanted rows, float32 (wanted, V); None if the pass is one for the plain path.

        Raises:
            UnsupportedModel: With a strict policy, its shape could not be recorded.
        """
        need = need_of(plan)
        shape = shape_of(need, num_slots=self._storage.num_slots, capacity=self._storage.capacity)
        if shape is None:
            return None
        if shape not in self._recorded:
            self._seen[shape] += 1
            if self._may_record(shape):
                self._fill(plan, shape)
                self._record(shape)
            if shape not in self._recorded:
                other = self._least_that_holds(need)
                if other is None:
                    return None
                shape = other
        self._fill(plan, shape)
        logits_RV = self._recorded[shape]()[: len(plan.wanted)]
        return logits_RV.clone() if self._recorder.reuses_memory else logits_RV

    def _may_record(self, shape: StaticShape) -> bool:
        return (
            not self._refused
            and len(self._recorded) < self._policy.most
            and self._seen[shape] >= self._policy.after
        )

    def _least_that_holds(self, need: Need) -> StaticShape | None:
        fitting = [shape for shape in self._recorded if shape.holds(need)]
        return min(fitting, key=lambda shape: shape.work, default=None)

    def _fill(self, plan: PassLayout, shape: StaticShape) -> None:
        capacity = self._storage.capacity
        self._staging.fill(fill(plan, shape, capacity=capacity, words=self._words))

    def _record(self, shape: StaticShape) -> None:
        assert num_integers(shape, self._words) <= len(self._staging.buffer), shape
        try:
            self._recorded[shape] = self._recorder.record(self._work(shape))
        except RuntimeError as error:
            # What was recorded before stays good.
            self._refused = True
            if self._policy.strict:
                raise UnsupportedModel(
                    f"passes of this model cannot be recorded: {error}; set cuda_graphs to auto or off"
                ) from error
            _log.warning(
                "passes cannot be recorded; they stay plain", shape=shape, reason=str(error)
            )

    def _work(self, shape: StaticShape) -> Callable[[], torch.Tensor]:
        inputs = views(self._staging.buffer, shape, self._words)

        def run() -> torch.Tensor:
            # Made anew each time: they keep what they derive from the inputs, which must be part of the recording.
            cache = StaticCache(self._storage, inputs)
            attend = AttendStatic(
                self._storage, inputs, max_scratch=self._max_scratch, dtype=self._dtype
            )
            return self._call(
                inputs.tokens_R[None], inputs.positions_R[None], cache, attend, inputs.wanted_R
            )

        return run
