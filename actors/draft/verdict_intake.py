"""What targets say of their texts, taken in: verdicts, and answers to requests for tokens that were missed."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from outrider.actors.draft.attachments import Attachments
from outrider.actors.draft.feedback.draft_feedback import DraftFeedback
from outrider.actors.draft.judge import (
    TOO_LONG,
    Ask,
    Broken,
    Judgement,
    Rewrite,
    judge_resync,
    judge_verdicts,
)
from outrider.actors.draft.state.draft_events import Resynced, ResyncWanted
from outrider.actors.draft.state.draft_sessions import DraftSession, DraftSessions
from outrider.actors.draft.state.draft_stats import DraftStats
from outrider.actors.draft.state.drafter import Drafter
from outrider.actors.draft.trees.forest import Int64s
from outrider.actors.exchange.verdicts import Verdicts
from outrider.actors.speculation.trees import base_hash

ASK_AGAIN_S = 1.0
"""After this time without an answer, a verdict that does not fit makes the drafter ask for the missing tokens again."""


class VerdictIntake:
    """Keeps the texts of all sessions those of their targets."""

    def __init__(
        self,
        sessions: DraftSessions,
        drafter: Drafter,
        stats: DraftStats,
        feedback: DraftFeedback,
        attached: Attachments,
        *,
        lockstep: bool,
    ) -> None:
        """
        Args:
            sessions: Whose texts.
            drafter: The method; it goes along with each text.
            stats: Counts what came.
            feedback: Learns how far texts have grown.
            attached: Ends sessions, and takes what is to be said.
            lockstep: Nothing that was sent before a verdict is of use after it.
        """
        self._sessions = sessions
        self._drafter = drafter
        self._stats = stats
        self._feedback = feedback
        self._attached = attached
        self._lockstep = lockstep

    def take_verdicts(self, link: int, verdicts: Verdicts, now: float) -> None:
        """Takes a frame in."""
        sessions = self._sessions
        rows_E = sessions.rows_of(link, verdicts.handles_E)
        # Of two verdicts for one session in a frame, which no target sends, the second counts for nothing.
        firsts: dict[int, int] = {}
        for entry, row in enumerate(rows_E.tolist()):
            firsts.setdefault(row, entry)
        firsts.pop(-1, None)
        known = np.array([firsts[row] for row in sorted(firsts)], np.int64)
        counts_E = verdicts.starts_E[1:] - verdicts.starts_E[:-1]
        is_long = counts_E[known] > base_hash.LONG
        parts = [known]
        if np.count_nonzero(is_long):
            longs = np.flatnonzero(is_long)
            parts = [known[~is_long], *(known[place : place + 1] for place in longs)]
        for part in parts:
            if len(part):
                self._take_entries(verdicts, part, rows_E[part], counts_E[part], now)

    def _take_entries(
        self, verdicts: Verdicts, entries: Int64s, rows_E: Int64s, counts_E: Int64s, now: float
    ) -> None:
        """Takes in some entries of a frame."""
        sessions = self._sessions
        judged = judge_verdicts(
            sessions,
            rows_E,
            lengths_E=verdicts.lengths_E[entries],
            hashes_E=verdicts.hashes_E[entries],
            firsts_E=verdicts.starts_E[entries],
            counts_E=counts_E,
            tokens_T=verdicts.tokens_T,
        )
        extends = judged.extends_E.nonzero()[0]
        if len(extends) < len(rows_E):
            for entry in judged.asks_E.nonzero()[0].tolist():
                self._ask(int(rows_E[entry]), int(judged.ask_lengths_E[entry]), now)
            is_stale_E = ~(judged.extends_E | judged.asks_E | judged.is_broken_E)
            self._stats.add(stale=int(np.count_nonzero(is_stale_E)))
        if len(extends):
            self._extend(verdicts, entries[extends], rows_E[extends], judged, extends)
        self._attached.end(rows_E[judged.is_broken_E].tolist(), TOO_LONG)

    def _extend(
        self, verdicts: Verdicts, entries: Int64s, rows_E: Int64s, judged: Judgement, of: Int64s
    ) -> None:
        """Goes along with verdicts that continue the texts."""
        sessions = self._sessions
        sessions.asked_at_S[rows_E] = math.nan
        sessions.credits_S[rows_E] = verdicts.credits_E[entries]
        sessions.epochs_S[rows_E] = verdicts.epochs_E[entries]
        self._take_roots(verdicts, entries, rows_E)
        tokens_ET, counts_E = judged.fresh_ET[of], judged.counts_E[of]
        self._follow(rows_E, tokens_ET, counts_E, verdicts.hashes_E[entries])
        stays_E = sessions.is_attached_S[rows_E]
        rows_E, entries = rows_E[stays_E], entries[stays_E]
        starving_E = sessions.is_awaited_S[rows_E] = verdicts.starving_E[entries]
        if np.count_nonzero(starving_E):
            # What the target took in below here was dropped. The rest is on its way.
            seen_E = verdicts.seen_E[entries]
            sessions.unsend(rows_E[starving_E], seen_E[starving_E])

    def _take_roots(self, verdicts: Verdicts, entries: Int64s, rows_E: Int64s) -> None:
        roots = self._sessions.roots
        if not len(verdicts.roots_T) and not roots:
            return
        for entry, row in zip(entries.tolist(), rows_E.tolist(), strict=True):
            start, end = verdicts.root_starts_E[entry : entry + 2].tolist()
            roots.pop(row, None)
            if end > start:
                roots[row] = tuple(verdicts.roots_T[start:end].tolist())

    def take_resync(self, session: DraftSession, event: Resynced, now: float) -> None:
        """Takes an answer in; one to a question of an earlier incarnation is stale."""
        sessions, row = self._sessions, session.row
        if event.epoch < sessions.epochs_S[row]:
            self._stats.add(stale=1)
            return
        sessions.asked_at_S[row] = math.nan
        match judge_resync(session, event):
            case None:
                sessions.credits_S[row], sessions.epochs_S[row] = event.credits, event.epoch
                sessions.is_dirty_S[row] = True
            case Ask() as step:
                self._ask(row, step.length, now)
            case Broken() as step:
                self._attached.end([row], step.message)
            case Rewrite() as step:
                sessions.credits_S[row], sessions.epochs_S[row] = event.credits, event.epoch
                sessions.roots.pop(row, None)
                rows = np.array([row])
                if step.keep == session.length:
                    counts = np.array([len(step.tokens)])
                    hashes = np.array([event.hash], np.uint64)
                    self._follow(rows, np.array([step.tokens]), counts, hashes)
                    return
                sessions.replace(row, step.keep, step.tokens)
                self._feedback.rewritten(session, step.keep)
                try:
                    self._drafter.rewrite(session, step.keep)
                except Exception as error:  # noqa: BLE001 - whatever a model raises must not end the drafter
                    self._attached.fail(rows, error)
                else:
                    self._committed(rows, len(step.tokens), 0)

    def _follow(
        self, rows_E: Int64s, tokens_ET: Int64s, counts_E: Int64s, hashes_E: NDArray[np.uint64]
    ) -> None:
        """Commits tokens; ends the sessions for which the method raises."""
        sessions = self._sessions
        try:
            foreseen_E = self._drafter.follow(rows_E, tokens_ET, counts_E)
        except Exception as error:  # noqa: BLE001 - whatever a model raises must not end the drafter
            if len(rows_E) == 1:
                self._attached.fail(rows_E, error)
                return
            for entry in np.isin(rows_E, self._attached.apart(rows_E, error)).nonzero()[0].tolist():
                one = slice(entry, entry + 1)
                self._follow(rows_E[one], tokens_ET[one], counts_E[one], hashes_E[one])
            return
        sessions.append(rows_E, tokens_ET, counts_E)
        sessions.hashes_S[rows_E] = hashes_E
        self._feedback.grown(rows_E)
        self._committed(rows_E, int(counts_E.sum()), int(foreseen_E.sum()))

    def _committed(self, rows_E: Int64s, num_tokens: int, num_foreseen: int) -> None:
        sessions = self._sessions
        sessions.is_waiting_S[rows_E] = False
        sessions.is_dirty_S[rows_E] = True
        sessions.ready_s_S[rows_E] = math.nan
        if self._lockstep:
            sessions.unsend(rows_E, sessions.numbers_S[rows_E])
        self._stats.add(verdicts=len(rows_E), committed=num_tokens, foreseen=num_foreseen)

    def _ask(self, row: int, length: int, now: float) -> None:
        """Asks the target for the tokens after the first `length`, unless it was asked a moment ago."""
        if now - self._sessions.asked_at_S[row] < ASK_AGAIN_S:
            return
        self._sessions.asked_at_S[row] = now
        self._stats.add(resyncs=1)
        self._attached.say(ResyncWanted(key=self._sessions.at(row).key, length=length))
