"""The description of a selector, and what one must offer: it chooses who drafts for a text where fewer may work than there are.

What it knows is the past of texts, so a choice never changes a law: outputs are those of plain decoding whoever drafts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from outrider.actors.speculation.number_options import NumberOption, check_description, settle


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterOffer:
    """A drafter that can be chosen: it is connected and has room."""

    name: str
    """Unique."""

    num_sessions: int
    """Texts of this coordinator that it drafts for."""

    is_at_work: bool
    """It drafts for this text now."""


class Selector(Protocol):
    """Chooses for one text. Used by one thread."""

    def ranked(self, offers: Sequence[DrafterOffer]) -> list[DrafterOffer]:
        """The drafters in the order in which they should be at work.

        Args:
            offers: At least one, in the order of the request.
        """
        ...

    def observe(self, proposed: Mapping[str, int], committed: int) -> None:
        """Takes in a stretch of the text.

        Args:
            proposed: Of each drafter that was at work, tokens that were its candidates.
            committed: Tokens of the stretch, 1 at least.
        """
        ...


BuildSelector = Callable[..., Selector]
"""Makes the selector of a text from `DrafterRecords`, which it only reads (what all texts together have told of each drafter), and from the
options that the description lists, as keyword arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectorSpec:
    """A selector."""

    name: str
    """As configuration, command line and contract name it: lower case, words joined by underscores."""

    build: BuildSelector
    """Makes one for each text."""

    summary: str
    """When to choose it, in one line for the table of selectors."""

    source: str = ""
    """Authors, year and arXiv id."""

    at_work: int | None = None
    """Drafters that work for a text where nobody says how many, 1 at least; None: all."""

    options: Mapping[str, NumberOption] = field(default_factory=dict)
    """What a request may choose, by name."""

    def __post_init__(self) -> None:
        check_description("selector", self.name, self.options)
        if self.at_work is None:
            return
        if not isinstance(self.at_work, int):
            raise ValueError(  # noqa: TRY004 - as all that descriptions get wrong
                f"selector {self.name!r}: at_work is a whole number, got {self.at_work!r}"
            )
        if self.at_work < 1:
            raise ValueError(f"selector {self.name!r}: at_work is 1 at least, got {self.at_work}")

    def settled(self, given: Mapping[str, float]) -> dict[str, float]:
        """All options: those given, and the others' defaults.

        Raises:
            ValueError: One is unknown or outside its interval; names it and says what is possible.
        """
        return settle(self.name, self.options, given)
