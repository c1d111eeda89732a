"""Drafting without a model: what followed the last few tokens when they stood earlier in the text.

Source: prompt lookup decoding (Saxena 2023); used for copying, summarising and editing. Works on any token ids. The
longest suffix that occurred before is taken, the most recent occurrence first, and what followed it is proposed as a
chain; a second occurrence that goes on differently is proposed beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from outrider.actors.draft.methods.autoregressive import LOOKAHEAD
from outrider.actors.draft.state.draft_sessions import DraftSession, DraftSessions
from outrider.actors.draft.state.drafter import DraftPass
from outrider.actors.draft.trees.calibration import Rates, learn_walk
from outrider.actors.draft.trees.forest import ROOT
from outrider.actors.engine.protocol import Logits

Bools = NDArray[np.bool_]
Int64s = NDArray[np.int64]

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

    engine = None

    def __init__(self, sessions: DraftSessions, *, max_ahead: int, lockstep: bool = False) -> None:
        """
        Args:
            sessions: With room for `max_ahead` nodes a tree.
            max_ahead: Nodes of one session, at most.
            lockstep: Propose no more than one target pass verifies, for comparison.
        """
        self._sessions = sessions
        self._forest = sessions.forest
        self._max_ahead = max_ahead
        self._lockstep = lockstep
        self._rates = Rates(np.array([_prior(feature) for feature in range(NUM_FEATURES)]))
        self._indices: dict[int, OccurrenceIndex] = {}
        self._is_fresh_S = np.zeros(len(sessions.sessions), np.bool_)
        """The text grew since it was looked at."""

    @property
    def num_slots(self) -> int:
        """Sessions that can be served at a time."""
        return len(self._sessions.sessions)

    @property
    def num_free_slots(self) -> int:
        """Sessions that can be attached."""
        return self.num_slots - len(self._indices)

    def attach(self, session: DraftSession) -> None:
        """Makes room for a session; there is some wherever there is a row for it."""
        self._indices[session.row] = OccurrenceIndex()
        self._is_fresh_S[session.row] = True

    def detach(self, session: DraftSession) -> None:
        """Forgets a session."""
        del self._indices[session.row]
        self._is_fresh_S[session.row] = False

    def follow(self, rows_E: Int64s, tokens_ET: Int64s, counts_E: Int64s) -> Int64s:
        """See `Drafter`."""
        walk = self._forest.walk(rows_E, tokens_ET)
        learn_walk(self._forest, rows_E, walk, rates=self._rates)
        stays_E = walk.reached_E == counts_E
        ends_E = walk.path_ET[np.arange(len(rows_E)), counts_E - 1]
        self._forest.reroot(rows_E[stays_E], ends_E[stays_E])
        self._forest.clear(rows_E[~stays_E])
        self._is_fresh_S[rows_E] = True
        return walk.reached_E

    def rewrite(self, session: DraftSession, keep: int) -> None:
        """See `Drafter`."""
        self._forest.clear(np.array([session.row]))
        self._indices[session.row] = OccurrenceIndex()
        self._is_fresh_S[session.row] = True

    def is_complete(self, rows_E: Int64s) -> Bools:
        """See `Drafter`."""
        return ~self._is_fresh_S[rows_E]

    def plan(self, rows_E: Int64s) -> DraftPass | None:
        """See `Drafter`: sessions whose text grew."""
        fresh_E = rows_E[self._is_fresh_S[rows_E]]
        if not len(fresh_E):
            return None
        return DraftPass(batch=None, rows_E=fresh_E, gains_E=np.ones(len(fresh_E)), seconds=0.0)

    def grow(self, plan: DraftPass, logits: Logits | None) -> Int64s:
        """See `Drafter`."""
        self._is_fresh_S[plan.rows_E] = False
        for row in plan.rows_E.tolist():
            self._propose(self._sessions.at(row))
        return plan.rows_E[self._forest.num_nodes_S[plan.rows_E] > 0]

    def took(self, plan: DraftPass, seconds: float) -> None:
        """See `Drafter`; nothing depends on it."""

    def _propose(self, session: DraftSession) -> None:
        index, tokens = self._indices[session.row], session.tokens
        index.extend(tokens)
        depth = session.speculation.max_depth * (1 if self._lockstep else LOOKAHEAD)
        depth = min(depth, session.final_length - session.length)
        for alternative, (size, follow) in enumerate(index.matches(tokens)):
            chain = tokens[follow : follow + depth]
            self._graft(session.row, feature_of(size, alternative), chain)

    def _graft(self, row: int, feature: int, chain: Sequence[int]) -> None:
        forest = self._forest
        rows = np.array([row])
        walk = forest.walk(rows, np.array([chain], np.int64))
        known = int(walk.reached_E[0])
        parent = int(walk.path_ET[0, known - 1]) if known else ROOT
        room = self._max_ahead - int(forest.num_nodes_S[row])
        estimates = self._rates.estimates
        for depth, token in enumerate(chain[known : known + max(room, 0)], start=known + 1):
            of_depth = feature + min(depth, MAX_CALIBRATED_DEPTH) - 1
            (parent,) = forest.add(
                rows_K=rows,
                parents_K=np.array([parent]),
                tokens_K=np.array([token]),
                estimates_K=estimates[of_depth : of_depth + 1].astype(np.float32),
                features_K=of_depth,
            ).tolist()


NUM_FEATURES = 1 + LONGEST_MATCH * ALTERNATIVES * MAX_CALIBRATED_DEPTH


def feature_of(size: int, alternative: int) -> int:
    """Number, from 1 on, of what is known of the first token of a copied chain; deeper ones have those that follow.

    Args:
        size: Tokens of the match.
        alternative: How many matches are preferred to it.
    """
    return 1 + ((size - 1) * ALTERNATIVES + alternative) * MAX_CALIBRATED_DEPTH


def _prior(feature: int) -> float:
    """What is believed of a feature before anything is observed: longer matches go on alike more often."""
    family, depth = divmod(max(feature - 1, 0), MAX_CALIBRATED_DEPTH)
    size, alternative = divmod(family, ALTERNATIVES)
    first = (0.25, 0.45, 0.6, 0.7)[size] * (0.35 if alternative else 1.0)
    return first if depth == 0 else 0.8
