"""What a drafter sends, and when: candidates that grew, gathered until their target can use them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from outrider.actors.draft.sending.pace import LEAST_TRIP, TargetPace
from outrider.actors.draft.sending.unsent import Unsent, node_bytes, take_unsent
from outrider.actors.draft.state.draft_events import CandidatesSent
from outrider.actors.draft.state.draft_recording import DraftRecording
from outrider.actors.draft.state.draft_sessions import DraftSession, DraftSessions
from outrider.actors.draft.state.draft_stats import DraftStats
from outrider.actors.draft.state.drafter import Drafter, DraftPass
from outrider.actors.draft.trees.forest import Int64s
from outrider.actors.exchange.candidates import ENTRY_BYTES, Candidates
from outrider.actors.exchange.frames import clock_us
from outrider.actors.exchange.verdicts import Verdicts

T = TypeVar("T")


class Sender:
    """Makes the frames of all links."""

    def __init__(
        self,
        sessions: DraftSessions,
        drafter: Drafter,
        *,
        max_ahead: int,
        bytes_per_token: float,
        lockstep: bool,
        stats: DraftStats,
        recording: DraftRecording,
        fail: Callable[[Int64s, Exception], None],
    ) -> None:
        """As `DraftCore`; `stats` counts what is sent, `recording` is told of it, `fail` ends sessions for which the method raises."""
        self._sessions = sessions
        self._drafter = drafter
        self._max_ahead = max_ahead
        self._price = 0.0 if lockstep else 1.0 / bytes_per_token
        """Of a byte, in tokens."""
        self._lockstep = lockstep
        self._stats = stats
        self._recording = recording
        self._fail = fail
        self._paces: dict[int, TargetPace] = {}

    def attached(self, session: DraftSession, round_trip_s: float) -> None:
        """Takes a session in."""
        link = session.key.link
        if link not in self._paces:
            self._paces[link] = TargetPace(round_trip_s)
        self._sessions.floors_S[session.row] = self._floor(self._paces[link], session.vocab_size)
        self._sessions.passes_s_S[session.row] = self._paces[link].pass_s

    def forget(self, link: int) -> None:
        """Forgets a link that is lost."""
        self._paces.pop(link, None)

    def told(self, link: int, verdicts: Verdicts, now: float) -> None:
        """Takes in what a target says of itself."""
        pace = self._paces.get(link)
        rows = self._sessions.on_link(link)
        if pace is None or not len(rows):
            return
        before = pace.passes_before
        num_sessions = len(verdicts.handles_E)
        pace.told(
            verdicts.target,
            len(verdicts.tokens_T),
            now,
            num_sessions=num_sessions,
            echo_us=verdicts.echo_us,
        )
        if pace.passes_before < before:
            # Candidates that would have come too late may be in time now, also those of sessions that are not in this frame.
            self._sessions.is_dirty_S[rows] = True
        vocab_size = self._sessions.at(int(rows[0])).vocab_size
        self._sessions.floors_S[rows] = self._floor(pace, vocab_size)
        self._sessions.passes_s_S[rows] = pace.pass_s

    def due(self, plan: DraftPass | None, now: float) -> list[CandidatesSent]:
        """What goes out before a pass is run.

        Args:
            plan: The pass; None: no tree grows, so nothing is gained by gathering.
            now: Monotonic time, seconds.
        """
        sessions = self._sessions
        frames: list[CandidatesSent] = []
        dirty = sessions.is_dirty_S.nonzero()[0]
        if not len(dirty):
            return frames
        dirty = dirty[np.isnan(sessions.asked_at_S[dirty])]
        links_D = sessions.links_S[dirty]
        for link in set(links_D.tolist()):
            rows = dirty[links_D == link]
            is_due = self._lockstep or self._is_due(link, plan, now)
            if not is_due:
                rows = rows[sessions.is_urgent_S[rows]]
                if not len(rows):
                    continue
            frame = self._frame(link, rows, now)
            if frame is None:
                continue
            if is_due and frame.candidates is not None:
                awaited = sessions.is_awaited_S & (sessions.links_S == link)
                self._paces[link].sent(now, is_awaited=bool(awaited.any()))
            frames.append(frame)
            self._stats.add(messages=1, nodes=frame.num_nodes)
            self._recording.handed_out(frame, link)
        return frames

    def _is_due(self, link: int, plan: DraftPass | None, now: float) -> bool:
        if plan is None:
            return True

        def gain() -> float:
            of_link = self._sessions.links_S[plan.rows_E] == link
            return float(plan.gains_E[of_link].sum())

        return self._paces[link].is_due(now, plan.seconds, gain)

    def _frame(self, link: int, rows: Int64s, now: float) -> CandidatesSent | None:
        """The frame of a link's sessions; None if they have nothing to say."""
        sessions = self._sessions
        if self._lockstep:
            ready = ~sessions.is_waiting_S[rows]
            ready[ready] = self._asked(self._drafter.is_complete, rows[ready], (False,))
            rows = rows[ready]
        sessions.is_dirty_S[rows] = False
        candidates = self._candidates(link, rows, now)
        wanted = rows[sessions.credits_S[rows] != 0]
        own = [
            tree for trees in sessions.own_trees for tree in self._asked(trees.take_unsent, wanted)
        ]
        if candidates is None and not own:
            return None
        if self._lockstep:
            handles = np.array([tree.handle for tree in own], np.uint64)
            sessions.is_waiting_S[sessions.rows_of(link, handles)] = True
        return CandidatesSent(link=link, candidates=candidates, own_trees=tuple(own))

    def _asked(
        self, method: Callable[[Int64s], Iterable[T]], rows_E: Int64s, failed: Sequence[T] = ()
    ) -> list[T]:
        """What the drafting method says of sessions. Where it raises, it is asked of each by itself; of those for which it raises again: `failed`."""
        try:
            return list(method(rows_E))
        except Exception as error:  # noqa: BLE001 - whatever a method raises must not end the drafter
            if len(rows_E) > 1:
                return [
                    one for row_1 in rows_E[:, None] for one in self._asked(method, row_1, failed)
                ]
            self._fail(rows_E, error)
            return list(failed)

    def _candidates(self, link: int, rows_E: Int64s, now: float) -> Candidates | None:
        if not len(rows_E):
            return None
        sessions = self._sessions
        # Candidates below the target's floor are sent, too: a verdict may raise them above it, and then they are there already.
        price = self._price / self._paces[link].fetch_cost
        if self._lockstep:
            sizes = [sessions.at(row).speculation.max_nodes for row in rows_E.tolist()]
            rooms_E, past = np.array(sizes, np.int64), 0
        else:
            rooms_E = sessions.allowed(rows_E, self._max_ahead)
            past = self._paces[link].passes_before
        unsent = take_unsent(
            sessions.forest,
            rows_E,
            rooms_E=rooms_E,
            floor=price * node_bytes(sessions.at(int(rows_E[0])).vocab_size),
            past=past,
            entry_worth=price * ENTRY_BYTES,
            numbers_E=sessions.numbers_S[rows_E] + 1,
        )
        if self._lockstep:
            unsent = self._with_silent(unsent, rows_E)
        rows = unsent.rows_E
        if not len(rows):
            return None
        sessions.numbers_S[rows] += 1
        sessions.is_waiting_S[rows] = self._lockstep
        ready_s = float(np.fmax.reduce(sessions.ready_s_S[rows]))
        sessions.ready_s_S[rows] = np.nan
        sessions.is_awaited_S[rows] = False
        return Candidates(
            held_s=0.0 if np.isnan(ready_s) else now - ready_s,
            sent_us=clock_us(now),
            handles_E=sessions.handles_S[rows],
            lengths_E=sessions.lengths_S[rows],
            hashes_E=sessions.hashes_S[rows],
            numbers_E=sessions.numbers_S[rows],
            starts_E=unsent.starts_E,
            tokens_N=unsent.tokens_N,
            parents_N=unsent.parents_N,
            estimates_N=unsent.estimates_N,
        )

    def _with_silent(self, unsent: Unsent, rows_E: Int64s) -> Unsent:
        """With an empty tree for each session that has no candidates, so that its target does not wait for some."""
        sessions = self._sessions
        is_heard_E = (sessions.credits_S[rows_E] != 0) & ~sessions.is_urgent_S[rows_E]
        silent = np.setdiff1d(rows_E[is_heard_E], unsent.rows_E)
        return replace(
            unsent,
            rows_E=np.concatenate((unsent.rows_E, silent)),
            starts_E=np.concatenate((unsent.starts_E, np.full(len(silent), unsent.starts_E[-1]))),
        )

    def _floor(self, pace: TargetPace, vocab_size: int) -> float:
        """Value that a candidate needs to be worth its bytes and its row at the target. Bytes count at the price for a near target at every distance,
        because growing for less was slower."""
        return max(pace.floor, self._price / LEAST_TRIP * node_bytes(vocab_size))
