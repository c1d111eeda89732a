"""Drafting the sequences of one request from each other: what siblings said where they stood at the same words.

Source: Li et al. 2025, arXiv 2503.05330. For requests with n > 1; a sequence without siblings gets no candidates. The end of a text is looked for
in its siblings' outputs, what followed there is laid into a graph, and the best tree of its paths is proposed (docs/drafters.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.actors.draft.state.draft_sessions import DraftSession
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.draft.state.drafter_spec import DrafterSpec, LoadedDrafter, TargetNeed
from outrider.actors.draft.text.continuations import NOTHING, GrowthBounds, grow
from outrider.actors.draft.text.counted_law import PRIORS, CountedLaw
from outrider.actors.draft.text.lattice import Lattice
from outrider.actors.draft.text.occurrences import matches, places_after
from outrider.actors.draft.text.proposal import Proposal
from outrider.actors.draft.text.sibling_texts import SiblingTexts
from outrider.actors.draft.text.text_drafter import text_drafter

ENDED_TOKENS = 262_144
"""Tokens of sequences that have ended which are kept for siblings, of all requests together: 2 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsensusOptions:
    """Of consensus."""

    longest_match: int = 8
    """Tokens that a match is compared over, 1 to 64. Longer matches are surer."""

    least_match: int = 2
    """Tokens that must agree, 1 to `longest_match`."""

    max_nodes: int = 32
    """Candidates of one proposal, 1 to 256. How many are sent is the sender's choice."""

    most_continuations: int = 64
    """Places in siblings that count, 1 to 1024, the newest."""

    def __post_init__(self) -> None:
        for name, value, most in (
            ("longest_match", self.longest_match, 64),
            ("least_match", self.least_match, self.longest_match),
            ("max_nodes", self.max_nodes, 256),
            ("most_continuations", self.most_continuations, 1024),
        ):
            if not 1 <= value <= most:
                raise ValueError(f"{name} is {value}; it must be 1 to {most}")


class ConsensusProposer:
    """Proposes what siblings of one session said."""

    def __init__(
        self,
        session: DraftSession,
        options: ConsensusOptions,
        *,
        width: int,
        siblings: SiblingTexts,
    ) -> None:
        """
        Args:
            session: Whose text it is.
            options: Of the method.
            width: Children of a node, at most.
            siblings: Where the others' texts are.
        """
        self._session = session
        self._options = options
        self._width = width
        self._siblings = siblings
        self._law = CountedLaw(session.sampling, session.speculation.verifier)

    def propose(self, text_T: NDArray[np.int64], *, depth: int, rates: Sequence[float]) -> Proposal:
        """See `Proposer`: of the graphs of all match lengths the one with the best tree, of equal ones that of the longest match."""
        options = self._options
        tail = text_T[-options.longest_match :].tolist()
        if len(tail) < options.least_match:
            return Proposal()
        texts: dict[int, NDArray[np.int64]] = {}
        places: list[int] = []
        for number, other_T, prompt_length in self._siblings.others(self._session):
            texts[number] = other_T
            # The prompt is everyone's, so only what was said after it tells anything; a match may begin in it.
            places += places_after(
                other_T, tail[-options.least_match :], number=number, first=prompt_length
            )
        places = sorted(places, reverse=True)[: options.most_continuations]
        bounds = GrowthBounds(depth=depth, nodes=options.max_nodes, width=self._width)
        best = NOTHING
        for match, found in matches(texts, places, tail, longest=options.longest_match):
            grown = grow(
                found,
                Lattice(texts, found).children,
                match=match,
                position=len(text_T),
                law=self._law,
                rates=rates,
                bounds=bounds,
            )
            if grown.score > best.score:
                best = grown
        return best.proposal


def build(settings: DraftSettings) -> LoadedDrafter:
    """See `DrafterSpec.build`."""
    options = ConsensusOptions(**settings.options)
    siblings = SiblingTexts(ENDED_TOKENS)

    def new_proposer(session: DraftSession) -> ConsensusProposer:
        return ConsensusProposer(session, options, width=settings.width, siblings=siblings)

    return text_drafter(settings, new_proposer, PRIORS, joined=siblings.join, left=siblings.leave)


SPECS = (
    DrafterSpec(
        name="consensus",
        build=build,
        summary="no model: what other sequences of the same request said; for n > 1, nothing for n = 1",
        source="Li et al. 2025, arXiv 2503.05330",
        needs=frozenset({TargetNeed.TOKENS, TargetNeed.SIBLINGS}),
        options=ConsensusOptions,
    ),
)
