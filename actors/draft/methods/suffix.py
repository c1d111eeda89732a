"""Drafting from counts of what followed before: suffix decoding, and prompt lookup as its smallest setting.

Source: Oliaro et al. 2024, arXiv 2411.04975; prompt lookup: Saxena 2023. Works on any token ids. Of each length at which the end of the text
stood before, in the session's own text or in earlier outputs of the service, the tree of what followed is grown best first; the one with
the greatest sum of path probabilities is proposed (docs/drafters.md).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.actors.draft.state.draft_sessions import DraftSession
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.draft.state.drafter_spec import DrafterSpec, LoadedDrafter
from outrider.actors.draft.text.continuations import NOTHING, GrowthBounds, children_in, grow
from outrider.actors.draft.text.counted_law import PRIORS, CountedLaw
from outrider.actors.draft.text.occurrences import Texts, matches, places_after
from outrider.actors.draft.text.output_memory import OutputMemory
from outrider.actors.draft.text.proposal import Proposal
from outrider.actors.draft.text.text_drafter import ignore, text_drafter


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupOptions:
    """Of prompt lookup."""

    longest_match: int = 4
    """Tokens that a match is compared over, 1 to 64. Longer matches are surer."""

    max_nodes: int = 24
    """Candidates of one proposal, 1 to 256. How many are sent is the sender's choice."""

    def __post_init__(self) -> None:
        _check("longest_match", self.longest_match, 1, 64)
        _check("max_nodes", self.max_nodes, 1, 256)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuffixOptions(LookupOptions):
    """Of suffix decoding."""

    longest_match: int = 16
    """Tokens that a match is compared over, 1 to 64. Longer matches are surer."""

    max_nodes: int = 32
    """Candidates of one proposal, 1 to 256. How many are sent is the sender's choice."""

    memory_tokens: int = 131_072
    """Tokens of earlier outputs that are remembered in all, 0 to 2^24, the oldest outputs forgotten first; about 250 bytes each. Clients are told
    apart by token or certificate, and nothing of one is used for another; those that show neither share what is remembered."""

    def __post_init__(self) -> None:
        LookupOptions.__post_init__(self)
        _check("memory_tokens", self.memory_tokens, 0, 2**24)


def _check(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ValueError(f"{name} is {value}; it must be {least} to {most}")


class SuffixProposer:
    """Proposes what followed the end of one session's text."""

    def __init__(
        self,
        session: DraftSession,
        options: LookupOptions,
        *,
        width: int,
        memories: Memories | None = None,
    ) -> None:
        """
        Args:
            session: Whose text it is.
            options: Of the method.
            width: Children of a node, at most.
            memories: Earlier outputs; None: only the session's own text counts.
        """
        self._session = session
        self._options = options
        self._width = width
        self._memories = memories
        sampling, verifier = session.sampling, session.speculation.verifier
        self._own, self._earlier = (
            CountedLaw(sampling, verifier, source=source) for source in range(2)
        )

    def propose(self, text_T: NDArray[np.int64], *, depth: int, rates: Sequence[float]) -> Proposal:
        """See `Proposer`: of all trees the best; of equal ones that of the longer match, and the session's own."""
        options = self._options
        tail = text_T[-options.longest_match :].tolist()
        bounds = GrowthBounds(depth=depth, nodes=options.max_nodes, width=self._width)
        # A single token counts only if no pair stood before.
        own = places_after(text_T, tail[-2:]) or places_after(text_T, tail[-1:])
        sources: list[tuple[CountedLaw, Texts, list[int]]] = [(self._own, {0: text_T}, own)]
        if self._memories is not None:
            # Looked up each time: what is forgotten meanwhile must not live on in a session that runs.
            memory = self._memories.of(self._session)
            sources.append((self._earlier, memory.texts, memory.places_after(tail)))
        best = NOTHING
        for law, texts, places in sources:
            for match, found in matches(texts, places, tail, longest=options.longest_match):
                grown = grow(
                    found,
                    children_in(texts),
                    match=match,
                    position=len(text_T),
                    law=law,
                    rates=rates,
                    bounds=bounds,
                )
                if grown.score > best.score:
                    best = grown
        return best.proposal


class Memories:
    """Earlier outputs, apart by client, since a faster answer would tell one what another was answered, and by vocabulary, since ids of one mean
    nothing in another."""

    def __init__(self, options: SuffixOptions) -> None:
        """Takes how much is remembered in all, and how long matches are."""
        self._options = options
        self._memories: OrderedDict[tuple[int, str, int], OutputMemory] = OrderedDict()
        """Whose session ended last comes last."""

    @property
    def num_tokens(self) -> int:
        """Of all outputs that are remembered."""
        return sum(memory.num_tokens for memory in self._memories.values())

    def of(self, session: DraftSession) -> OutputMemory:
        """What a session may draw on."""
        whose = (session.tenant, session.tokenizer, session.vocab_size)
        if whose not in self._memories:
            self._memories[whose] = OutputMemory(self._options.memory_tokens)
        return self._memories[whose]

    def remember(self, session: DraftSession) -> None:
        """Takes in the output of a session that is leaving. Of its prompt the end is kept, for matches to begin in. If that is too much in all,
        who was served longest ago is forgotten."""
        context = min(self._options.longest_match, session.prompt_length)
        memory = self.of(session)
        memory.add(session.text_T[session.prompt_length - context :], context=context)
        whose = (session.tenant, session.tokenizer, session.vocab_size)
        self._memories.move_to_end(whose)
        if not memory.num_tokens:
            del self._memories[whose]
        while self.num_tokens > self._options.memory_tokens:
            self._memories.popitem(last=False)


def build(settings: DraftSettings) -> LoadedDrafter:
    """See `DrafterSpec.build`: suffix decoding."""
    options = SuffixOptions(**settings.options)
    memories = Memories(options) if options.memory_tokens else None

    def new_proposer(session: DraftSession) -> SuffixProposer:
        return SuffixProposer(session, options, width=settings.width, memories=memories)

    left = memories.remember if memories is not None else ignore
    return text_drafter(settings, new_proposer, PRIORS * 2, left=left)


def build_lookup(settings: DraftSettings) -> LoadedDrafter:
    """See `DrafterSpec.build`: prompt lookup."""
    options = LookupOptions(**settings.options)

    def new_proposer(session: DraftSession) -> SuffixProposer:
        return SuffixProposer(session, options, width=settings.width)

    return text_drafter(settings, new_proposer, PRIORS)


SPECS = (
    DrafterSpec(
        name="suffix",
        build=build,
        summary="no model: what followed the same words before, in the request or in earlier outputs; for agents, code and anything asked again",
        source="Oliaro et al. 2024, arXiv 2411.04975",
        options=SuffixOptions,
    ),
    DrafterSpec(
        name="prompt_lookup",
        build=build_lookup,
        summary="suffix over the request's own text only; for summaries, code and editing",
        source="Saxena 2023",
        options=LookupOptions,
    ),
)
