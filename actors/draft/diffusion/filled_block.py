"""What is known of one session's block by now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.actors.draft.diffusion.block_tree import DenoisingStep


@dataclass(slots=True, kw_only=True, eq=False)
class FilledBlock:
    """A block that was filled behind a text."""

    steps: list[DenoisingStep]
    """Those that were run."""

    starts: Sequence[int]
    """Tokens that each step is told, those that are to come included."""

    @property
    def path(self) -> list[tuple[int, float]]:
        """The likeliest tokens that the next step is told, each with its probability."""
        found: list[tuple[int, float]] = []
        for step, end in zip(self.steps, self.starts[1:], strict=False):
            some = step.places[: end - len(step.told)]
            found += [(int(place.tokens[0]), place.estimates[0]) for place in some]
        return found

    @property
    def is_done(self) -> bool:
        """Whether every step was run."""
        return len(self.steps) >= len(self.starts)
