"""The part of the engine protocol that follows from slots of tokens: for engines that keep no keys and values of a model."""

from __future__ import annotations

from outrider.actors.engine.protocol import ModelSpec
from outrider.actors.engine.tables.token_slots import TokenSlots


class TokenSlotEngine:
    """Slots of sessions, and what is known of the model. Subclasses run it."""

    def __init__(self, spec: ModelSpec, *, num_slots: int, max_scratch: int) -> None:
        """
        Args:
            spec: What is known of the model.
            num_slots: Sessions at a time.
            max_scratch: Rows of one behind the committed ones, at most.

        Raises:
            ValueError: A number is less than one.
        """
        self._spec = spec
        self._slots = TokenSlots(
            num_slots=num_slots,
            max_context=spec.max_context,
            max_scratch=max_scratch,
            vocab_size=spec.vocab_size,
        )
        # Asked for each session and round, so without a call in between.
        self.cached = self._slots.cached
        self.scratch = self._slots.scratch

    @property
    def spec(self) -> ModelSpec:
        """See `Engine`."""
        return self._spec

    @property
    def num_slots(self) -> int:
        """See `Engine`."""
        return self._slots.books.num_slots

    @property
    def num_free(self) -> int:
        """See `Engine`."""
        return self._slots.books.num_free

    @property
    def max_scratch(self) -> int:
        """See `Engine`."""
        return self._slots.books.max_scratch
