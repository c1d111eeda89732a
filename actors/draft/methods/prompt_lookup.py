"""Drafting without a model: what followed the last few tokens when they stood earlier in the text.

Source: prompt lookup decoding (Saxena 2023); used for copying, summarising and editing. Works on any token ids. The
longest suffix that occurred before is taken, the most recent occurrence first, and what followed it is proposed as a
chain; a second occurrence that goes on differently is proposed beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.draft.state.drafter_spec import DrafterSpec, LoadedDrafter
from outrider.actors.draft.text.text_drafter import text_drafter

REMEMBERED = 4
"""Occurrences of an n-gram that are kept, the most recent ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupOptions:
    """Of prompt lookup."""

    longest_match: int = 4
    """Longest suffix looked for, 1 to 16. Longer ones rarely change which occurrence is the best."""

    alternatives: int = 2
    """Occurrences that are proposed, 1 to 8. More cost candidate nodes and match seldom."""

    def __post_init__(self) -> None:
        for name, value, most in (
            ("longest_match", self.longest_match, 16),
            ("alternatives", self.alternatives, 8),
        ):
            if not 1 <= value <= most:
                raise ValueError(f"{name} is {value}; it must be 1 to {most}")


class OccurrenceIndex:
    """Where each n-gram of a text was followed by what. Grows with the text, a constant amount of work a token."""

    def __init__(self, options: LookupOptions | None = None) -> None:
        """Of an empty text."""
        options = options or LookupOptions()
        self._longest, self._alternatives = options.longest_match, options.alternatives
        self._follows: list[dict[tuple[int, ...], list[int]]] = [{} for _ in range(self._longest)]
        self._indexed = 0

    def extend(self, tokens: Sequence[int]) -> None:
        """Indexes what is new in a text that grew.

        Args:
            tokens: The whole text; what was indexed before is its beginning.
        """
        for follow in range(max(self._indexed, 1), len(tokens)):
            for size in range(1, min(self._longest, follow) + 1):
                places = self._follows[size - 1].setdefault(
                    tuple(tokens[follow - size : follow]), []
                )
                places.append(follow)
                if len(places) > REMEMBERED:
                    del places[0]
        self._indexed = len(tokens)

    def matches(self, tokens: Sequence[int]) -> list[tuple[int, int]]:
        """Occurrences of the text's end within it, as (match length, index of what followed), the best first.

        At most `alternatives`, each followed by another token. Single tokens count only if nothing longer occurred.
        """
        found: list[tuple[int, int]] = []
        seen: set[int] = set()
        for size in range(min(self._longest, len(tokens)), 0, -1):
            if size == 1 and found:
                break
            for follow in reversed(self._follows[size - 1].get(tuple(tokens[-size:]), ())):
                if tokens[follow] not in seen:
                    seen.add(tokens[follow])
                    found.append((size, follow))
                    if len(found) == self._alternatives:
                        return found
        return found

    def propose(self, tokens: Sequence[int], depth: int) -> Iterable[tuple[int, Sequence[int]]]:
        """See `Proposer`; the kind says how long the match was, and how many are preferred to it."""
        self.extend(tokens)
        for alternative, (size, follow) in enumerate(self.matches(tokens)):
            yield (size - 1) * self._alternatives + alternative, tokens[follow : follow + depth]


def priors(options: LookupOptions) -> list[float]:
    """What is believed of each kind of chain before anything is observed: longer matches go on alike more often."""
    by_size = (0.25, 0.45, 0.6, 0.7)
    return [
        by_size[min(size, len(by_size)) - 1] * (0.35 if alternative else 1.0)
        for size in range(1, options.longest_match + 1)
        for alternative in range(options.alternatives)
    ]


def build(settings: DraftSettings) -> LoadedDrafter:
    """See `DrafterSpec.build`."""
    options = LookupOptions(**settings.options)
    return text_drafter(settings, lambda: OccurrenceIndex(options), priors(options))


SPECS = (
    DrafterSpec(
        name="prompt_lookup",
        build=build,
        summary="no model: copies what followed the same words before; for summaries, code and editing",
        source="Saxena 2023",
        options=LookupOptions,
    ),
)
