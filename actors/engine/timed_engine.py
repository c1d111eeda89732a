"""An engine that knows how much processor time its passes took, so that all other time can be told from it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from outrider.actors.engine.protocol import Engine, Logits, ModelSpec, Rows


class TimedEngine:
    """Counts the passes of another engine and their time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.num_passes = 0
        """Passes that were run."""
        self.model_cpu_s = 0.0
        """Processor seconds that the calling thread spent in passes. With one arithmetic thread that is all of it."""
        # The calls that are made for each session and round go straight to the engine.
        self.cached = engine.cached
        self.scratch = engine.scratch
        self.rebase = engine.rebase

    @property
    def spec(self) -> ModelSpec:
        """As the engine's."""
        return self._engine.spec

    @property
    def description(self) -> str:
        """The type and the room that were chosen, for people."""
        dtype = str(self.spec.dtype).removeprefix("torch.")
        room = f"{self.num_slots} slots of {self.spec.max_context:,} tokens"
        return (
            f"emulated {self.spec.emulated}, {room}" if self.spec.emulated else f"{dtype}, {room}"
        )

    @property
    def num_slots(self) -> int:
        """As the engine's."""
        return self._engine.num_slots

    @property
    def num_free(self) -> int:
        """As the engine's."""
        return self._engine.num_free

    @property
    def max_scratch(self) -> int:
        """As the engine's."""
        return self._engine.max_scratch

    def acquire(self, slot: int | None = None, *, keep: int = 0) -> int:
        """As the engine's."""
        return self._engine.acquire(slot, keep=keep)

    def release(self, slot: int, *, keep: int = 0) -> None:
        """As the engine's."""
        self._engine.release(slot, keep=keep)

    def forward(self, batch: Sequence[Rows]) -> Logits:
        """As the engine's, counted."""
        began = time.thread_time()
        try:
            return self._engine.forward(batch)
        finally:
            self.model_cpu_s += time.thread_time() - began
            self.num_passes += 1

    def copy_prefix(self, source: int, destination: int, length: int) -> None:
        """As the engine's."""
        self._engine.copy_prefix(source, destination, length)

    def truncate(self, slot: int, length: int) -> None:
        """As the engine's."""
        self._engine.truncate(slot, length)
