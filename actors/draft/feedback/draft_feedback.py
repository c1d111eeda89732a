"""Features on their way from the wire to the method: checked, put in the books, handed on. The worker's thread.

Features choose what is proposed and nothing else, so whatever is wrong with them is dropped and counted. They may come before a session
is attached, because a target begins with a prompt as soon as it has it; so many are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from outrider.actors.draft.feedback.feature_ledger import (
    FeatureLedger,
    RejectedRun,
    Run,
    StateRun,
    TopRun,
)
from outrider.actors.draft.state.draft_events import FeaturesReceived, SessionKey
from outrider.actors.draft.state.draft_sessions import DraftSession, DraftSessions
from outrider.actors.draft.state.draft_stats import DraftStats
from outrider.actors.draft.state.drafter import (
    Drafter,
    FeatureReader,
    RejectedReader,
    TopRowReader,
)
from outrider.actors.exchange.features import Features, RejectedNodes, widened

MOST_EARLY_BYTES = 64 * 1024 * 1024
"""Features kept for sessions that are not attached yet, at most, and for texts that have not come as far, at most."""


class DraftFeedback:
    """The features of a drafter's sessions."""

    def __init__(
        self,
        sessions: DraftSessions,
        drafter: Drafter,
        stats: DraftStats,
        fail: Callable[[NDArray[np.int64], Exception], None],
    ) -> None:
        """
        Args:
            sessions: That features are for.
            drafter: Reads them, as far as it is a reader of their kind.
            stats: Counts what comes.
            fail: Ends sessions whose features the method could not take.
        """
        self._sessions = sessions
        self._drafter = drafter
        self._stats = stats
        self._fail = fail
        self._ledgers: dict[int, FeatureLedger] = {}
        """By row."""
        self._early: dict[SessionKey, list[Run]] = {}
        """Of sessions that are not attached, the oldest first."""
        self._early_bytes = 0
        self._has_any = False
        """Something came; until then texts are not looked at."""
        self._waiting: set[int] = set()
        """Rows whose ledgers may have something to hand on."""

    def ledger(self, session: DraftSession) -> FeatureLedger:
        """The books of a session that is attached."""
        return self._ledgers[session.row]

    def attached(self, session: DraftSession) -> None:
        """Opens the books of a session, with what came before it."""
        self._ledgers[session.row] = FeatureLedger()
        early = self._early.pop(session.key, ())
        self._early_bytes -= sum(_bytes(run) for run in early)
        for run in early:
            self._book(session, run)

    def detached(self, session: DraftSession) -> None:
        """Forgets a session."""
        self._ledgers.pop(session.row, None)
        self._waiting.discard(session.row)

    def lost(self, link: int) -> None:
        """Forgets what came over a link for sessions that are not attached."""
        for key in [key for key in self._early if key.link == link]:
            self._early_bytes -= sum(_bytes(run) for run in self._early.pop(key))

    def closed(self, key: SessionKey) -> None:
        """The target is through with a session."""
        self._early_bytes -= sum(_bytes(run) for run in self._early.pop(key, ()))

    def rewritten(self, session: DraftSession, keep: int) -> None:
        """The text was replaced after its first `keep` tokens."""
        self._ledgers[session.row].cut(keep)

    def take(self, event: FeaturesReceived) -> None:
        """Takes a frame in."""
        self._has_any = True
        self._stats.add(feature_bytes=event.num_bytes)
        features = event.features
        if features is None:
            self._stats.add(features_broken=1)
            return
        if features.revision != event.revision:
            self._stats.add(features_dropped=features.num_rows)
            return
        for handle, run in _runs(features):
            num_rows = len(run.arrays[0])
            if not all(np.isfinite(array).all() for array in run.arrays):
                self._stats.add(features_broken=num_rows)
                continue
            key = SessionKey(event.link, handle)
            session = self._sessions.find(key)
            if session is not None:
                self._book(session, run)
            else:
                self._keep(key, run)

    def settle(self) -> None:
        """Hands on whatever the texts have come far enough for. Between events: the method may fail, which ends the session."""
        while self._waiting:
            row = self._waiting.pop()
            session, ledger = self._sessions.sessions[row], self._ledgers.get(row)
            if session is None or ledger is None:
                continue
            try:
                for run in ledger.release(session.length):
                    self._hand_on(session, run)
            except Exception as error:  # noqa: BLE001 - whatever a method raises must not end the drafter
                self._fail(np.array([row]), error)

    def grown(self, rows_E: NDArray[np.int64]) -> None:
        """Texts have come further."""
        if self._has_any:
            self._waiting.update(rows_E.tolist())

    def _book(self, session: DraftSession, run: Run) -> None:
        ledger = self._ledgers[session.row]
        doubled, missing = ledger.doubled, ledger.missing
        ledger.take(run)
        self._stats.add(
            features_doubled=ledger.doubled - doubled, features_missing=ledger.missing - missing
        )
        while ledger.held_bytes > MOST_EARLY_BYTES:
            self._stats.add(features_dropped=ledger.drop_oldest())
        self._waiting.add(session.row)

    def _keep(self, key: SessionKey, run: Run) -> None:
        self._early.setdefault(key, []).append(run)
        self._early_bytes += _bytes(run)
        while self._early_bytes > MOST_EARLY_BYTES:
            oldest = next(iter(self._early))
            for old in self._early.pop(oldest):
                self._early_bytes -= _bytes(old)
                self._stats.add(features_dropped=len(old.arrays[0]))

    def _hand_on(self, session: DraftSession, run: Run) -> None:
        drafter = self._drafter
        num_rows = len(run.arrays[0])
        self._stats.add(feature_rows=num_rows)
        if not isinstance(run, RejectedRun):
            # The text has gone on since the round that they are of.
            is_late = run.start + num_rows < session.length - 1
            if is_late and run.start + 1 >= session.prompt_length:
                self._stats.add(features_late=num_rows)
        match run:
            case StateRun() if isinstance(drafter, FeatureReader):
                drafter.take_features(session, run.start, *run.arrays)
            case TopRun() if isinstance(drafter, TopRowReader):
                drafter.take_top_rows(session, run.start, *run.arrays)
            case RejectedRun() if isinstance(drafter, RejectedReader):
                drafter.take_rejected(session, run.nodes, run.states_NLD)


def _bytes(run: Run) -> int:
    return sum(array.nbytes for array in run.arrays)


def _runs(features: Features) -> Iterator[tuple[int, Run]]:
    """The entries of a frame, each with the handle of its session."""
    states_RLD = widened(features.states_RLD)
    starts = features.starts_E.tolist()
    has_states, has_tops = states_RLD.shape[1] > 0, features.top_tokens_RK.shape[1] > 0
    for entry, handle in enumerate(features.handles_E.tolist()):
        rows = slice(starts[entry], starts[entry + 1])
        first = int(features.firsts_E[entry])
        if features.rejected is not None:
            nodes = features.rejected
            of_entry = RejectedNodes(
                tokens_R=nodes.tokens_R[rows],
                parents_R=nodes.parents_R[rows],
                positions_R=nodes.positions_R[rows],
            )
            yield handle, RejectedRun(nodes=of_entry, states_NLD=states_RLD[rows])
            continue
        if has_states:
            yield handle, StateRun(first, (states_RLD[rows],))
        if has_tops:
            tops = features.top_tokens_RK[rows], features.top_logprobs_RK[rows]
            yield handle, TopRun(first, tops)
