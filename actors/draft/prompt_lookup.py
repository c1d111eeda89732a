"""Drafting without a model: what followed the last few tokens when they stood earlier in the text.

Source: prompt lookup decoding (Saxena 2023); used for copying, summarising and editing. Works on any token ids. The
longest suffix that occurred before is taken, the most recent occurrence first, and what followed it is proposed as a
chain; a second occurrence that goes on differently is proposed beside it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from outrider.actors.draft.calibration import Calibration, match_prior
from outrider.actors.draft.drafter import NoRoom, Progress
from outrider.actors.draft.session import LOOKAHEAD, DraftSession
from outrider.actors.draft.tree import ROOT

LONGEST_MATCH = 4
"""Longest suffix looked for. Longer ones would rarely change which occurrence is the best."""

ALTERNATIVES = 2
"""Occurrences that are proposed. More cost candidate nodes and match seldom."""

REMEMBERED = 4
"""Occurrences of an n-gram that are kept, the most recent ones."""

MAX_CALIBRATED_DEPTH = 4
"""Depths from here on share one match frequency."""


class OccurrenceIndex:
    """Where each n-gram of a text was followed by what. Grows with the text, a constant amount of work a token."""

    def __init__(self) -> None:
        self._follows: list[dict[tuple[int, ...], list[int]]] = [{} for _ in range(LONGEST_MATCH)]
        self._indexed = 0

    def extend(self, tokens: Sequence[int]) -> None:
        """Indexes what is new in a text that grew.

        Args:
            tokens: The whole text; what was indexed before is its beginning.
        """
        for follow in range(max(self._indexed, 1), len(tokens)):
            for size in range(1, min(LONGEST_MATCH, follow) + 1):
                places = self._follows[size - 1].setdefault(
                    tuple(tokens[follow - size : follow]), []
                )
                places.append(follow)
                if len(places) > REMEMBERED:
                    del places[0]
        self._indexed = len(tokens)

    def matches(self, tokens: Sequence[int]) -> list[tuple[int, int]]:
        """Occurrences of the text's end within it, as (match length, index of what followed), the best first.

        At most `ALTERNATIVES`, each followed by another token. Single tokens count only if nothing longer occurred.
        """
        found: list[tuple[int, int]] = []
        seen: set[int] = set()
        for size in range(min(LONGEST_MATCH, len(tokens)), 0, -1):
            if size == 1 and found:
                break
            for follow in reversed(self._follows[size - 1].get(tuple(tokens[-size:]), ())):
                if tokens[follow] not in seen:
                    seen.add(tokens[follow])
                    found.append((size, follow))
                    if len(found) == ALTERNATIVES:
                        return found
        return found


class PromptLookupDrafter:
    """Grows trees from the session's own text."""

    def __init__(self, *, num_slots: int, max_ahead: int, lockstep: bool = False) -> None:
        """
        Args:
            num_slots: Sessions served at a time.
            max_ahead: Nodes of one session, at most.
            lockstep: Propose no more than one target pass verifies, for comparison.
        """
        self.calibration = Calibration(match_prior)
        self._num_slots = num_slots
        self._max_ahead = max_ahead
        self._lockstep = lockstep
        self._indices: dict[DraftSession, OccurrenceIndex] = {}
        self._fresh: set[DraftSession] = set()

    @property
    def num_slots(self) -> int:
        """Sessions that can be served at a time."""
        return self._num_slots

    @property
    def num_free_slots(self) -> int:
        """Sessions that can be attached."""
        return self._num_slots - len(self._indices)

    def attach(self, session: DraftSession) -> None:
        """Makes room for a session.

        Raises:
            NoRoom: `num_slots` sessions are attached.
        """
        if len(self._indices) >= self._num_slots:
            raise NoRoom(
                f"all {self._num_slots} slots of the drafter are taken; attach the session to "
                "another drafter, or raise num_slots"
            )
        self._indices[session] = OccurrenceIndex()
        self._fresh.add(session)

    def detach(self, session: DraftSession) -> None:
        """Forgets a session."""
        del self._indices[session]
        self._fresh.discard(session)

    def extend(self, session: DraftSession, tokens: Sequence[int]) -> None:
        """Takes tokens as committed, learns from them, and keeps the nodes below them."""
        tree = session.tree
        path = tree.walk(tokens)
        for node, token in zip((ROOT, *path), tokens, strict=False):
            for child in tree.children_of(node):
                self.calibration.observe(tree.features[child], tree.tokens[child] == token)
        if len(path) == len(tokens):
            tree.reroot(path[-1])
        else:
            tree.clear()
        session.append(tokens)
        self._fresh.add(session)

    def rewrite(self, session: DraftSession, keep: int, tokens: Sequence[int]) -> None:
        """Takes other tokens as committed after the first `keep`."""
        session.replace(keep, tokens)
        self._indices[session] = OccurrenceIndex()
        self._fresh.add(session)

    def is_complete(self, session: DraftSession) -> bool:
        """True if the session's text was looked at since it last grew."""
        return session not in self._fresh

    def draft(self, sessions: Collection[DraftSession]) -> Progress:
        """Proposes for every session whose text grew."""
        fresh = [session for session in sessions if session in self._fresh]
        for session in fresh:
            self._fresh.discard(session)
            self._propose(session)
        return Progress(worked=bool(fresh), grown=[session for session in fresh if session.tree])

    def _propose(self, session: DraftSession) -> None:
        index, tokens = self._indices[session], session.tokens
        index.extend(tokens)
        depth = session.speculation.max_depth * (1 if self._lockstep else LOOKAHEAD)
        depth = min(depth, session.final_length - session.length)
        for alternative, (size, follow) in enumerate(index.matches(tokens)):
            self._graft(session, size, alternative, tokens[follow : follow + depth])

    def _graft(
        self, session: DraftSession, size: int, alternative: int, chain: Sequence[int]
    ) -> None:
        tree, node = session.tree, ROOT
        for depth, token in enumerate(chain, start=1):
            child = tree.child(node, token)
            if child is None:
                if len(tree) >= self._max_ahead:
                    return
                feature = (size, alternative, min(depth, MAX_CALIBRATED_DEPTH))
                child = tree.add(node, token, self.calibration.estimate(feature), feature)
            node = child
