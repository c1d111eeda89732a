"""All that a target knows: sessions, candidates, drafters, what was learned, and the outputs of the running step."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping

import numpy as np
import structlog

from outrider.actors.engine.kv.prefix_slots import PrefixSlots
from outrider.actors.engine.protocol import Engine
from outrider.actors.speculation.trees.path_keys import Int64s
from outrider.actors.target.candidates.candidate_pools import Pools
from outrider.actors.target.candidates.candidate_store import CandidateStore
from outrider.actors.target.candidates.trust import Trust
from outrider.actors.target.schedule.cost import CostModel
from outrider.actors.target.schedule.drafting_clock import DraftingClock
from outrider.actors.target.state.frozen_store import FrozenStore
from outrider.actors.target.state.growing_store import GrowingStore
from outrider.actors.target.state.roots import RootTable
from outrider.actors.target.state.session_table import Bools, Float64s, SessionTable
from outrider.actors.target.state.tally import TargetTally
from outrider.actors.target.state.target_events import (
    DraftersWanted,
    Failed,
    Finish,
    Finished,
    Output,
    Resync,
    SessionClosed,
    SessionOwner,
)
from outrider.actors.target.state.target_recording import TargetRecording
from outrider.actors.target.state.target_session import TargetSession
from outrider.actors.target.state.target_settings import TargetSettings
from outrider.actors.tracing.recorder import Recorder

_log = structlog.get_logger(__name__)

POOL_CAPACITY = 512
"""Candidate nodes held for one session: what may come true while passes run, many times what one pass takes. Bounds a drafter that runs wild."""

LONGEST_CHAIN_WITH_TREE = 8
"""Committed tokens up to which candidates are verified in the same pass. Longer chains are prompts: they ask for
the logits of their last row only."""

HANDLE_BITS = 48
"""Of a session's handle: nobody guesses one."""


def random_handle() -> int:
    """A handle that tells nothing and cannot be guessed."""
    return secrets.randbits(HANDLE_BITS)


class TargetState:
    """Owned by one thread at a time."""

    def __init__(
        self,
        engine: Engine,
        settings: TargetSettings,
        recorder: Recorder,
        new_handle: Callable[[], int] = random_handle,
    ) -> None:
        """Nothing is there yet.

        Args:
            engine: The target model.
            settings: What the actor was told.
            recorder: Takes records for a timeline.
            new_handle: Names sessions to drafters.
        """
        self.engine = engine
        self.settings = settings
        self.slots = PrefixSlots(engine, is_shared=settings.prefix_reuse)
        self.table = SessionTable(engine.num_slots, engine.spec.max_context)
        self.pools = Pools(engine.num_slots, POOL_CAPACITY)
        self.sessions: dict[int, TargetSession] = {}
        """By row."""
        self.rows: dict[int, int] = {}
        """By handle."""
        self.owners: dict[SessionOwner, int] = {}
        """Rows by owner."""
        self.drafters: list[str] = []
        """Names, by number; numbers are never used twice."""
        self.numbers: dict[str, int] = {}
        self.live: set[int] = set()
        """Drafters whose stream is up."""
        self.last_sent: dict[int, float] = {}
        """Of those: what the drafter's clock showed, in seconds, when it sent its last candidates, less what the worker's showed when they came."""
        self._sharing: set[int] = set()
        """Of those, whose passes take turns with the target's."""
        self.trust = Trust()
        self.roots = RootTable(self.table, self.pools, self.sessions)
        """What the target last thought after each token, for sessions whose trees begin with that."""
        self.cost = CostModel()
        self.clock = DraftingClock()
        self.longest_chain = min(LONGEST_CHAIN_WITH_TREE, engine.max_scratch // 2)
        """As `LONGEST_CHAIN_WITH_TREE`, where the scratch rows of a slot have room for a tree beside it."""
        self.is_resting = False
        """Drafters are told to rest: the target decodes plainly for now."""
        self.stores: tuple[CandidateStore, ...] = (
            GrowingStore(self.table, self.pools, self.trust, self.cost, settings),
            FrozenStore(self.table, self.sessions, self.drafters, self.cost, settings),
        )
        """By kind of candidates."""
        self._survives_K = np.array([store.survives for store in self.stores])
        self.recording = TargetRecording(
            recorder, self.table, self.stores, self.sessions, self.drafters
        )
        self.tally = TargetTally()
        self._new_handle = new_handle
        self._outputs: list[Output] = []

    # -- outputs ---------------------------------------------------------------------------------------------------

    def say(self, output: Output) -> None:
        """Queues an output."""
        self._outputs.append(output)

    def take_outputs(self) -> list[Output]:
        """What was queued."""
        outputs, self._outputs = self._outputs, []
        return outputs

    # -- drafters --------------------------------------------------------------------------------------------------

    def number_of(self, drafter: str) -> int:
        """A drafter's number; a new one for a new name."""
        number = self.numbers.get(drafter)
        if number is None:
            number = self.numbers[drafter] = len(self.drafters)
            self.drafters.append(drafter)
            self.table.add_drafter()
        return number

    def allow(self, row: int, drafters: Mapping[str, int]) -> None:
        """Sets whose candidates a session takes, and what origins are told for them."""
        numbers = [self.number_of(name) for name in drafters]
        self.table.allowed_SD[row] = False
        self.table.allowed_SD[row, numbers] = True
        self.table.origins_SD[row, numbers] = list(drafters.values())

    def join(self, row: int, number: int, length: int) -> None:
        """Notes that a drafter takes part; tells it what it lacks beyond `length` tokens."""
        table = self.table
        if table.joined_SD[row, number] or not table.allowed_SD[row, number]:
            return
        table.joined_SD[row, number] = True
        if length < table.lengths_S[row]:
            self.resync(row, number, length)

    def resync(self, row: int, number: int, length: int) -> None:
        """Tells a drafter the committed tokens from `length` on."""
        session = self.sessions[row]
        self.say(
            Resync(
                drafter=self.drafters[number],
                handle=session.handle,
                epoch=int(self.table.epochs_S[row]),
                base_length=session.length,
                base_hash=session.hash,
                tokens=tuple(self.table.text(row, length).tolist()),
                credits=int(self.credits_of(np.array([row]))[0]),
            )
        )

    def credits_of(self, rows_E: Int64s) -> Int64s:
        """Nodes that a drafter may be ahead of the verdicts: what the pool holds; none at rest and at the end."""
        if self.is_resting:
            return np.zeros(len(rows_E), np.int64)
        return np.where(self.table.remaining_S[rows_E] > 1, POOL_CAPACITY, 0)

    def rest(self, *, is_resting: bool) -> None:
        """Sends the drafters to rest with the next verdicts, or wakes them with the tokens that they missed. While they rest, coordinators attach none
        to new sessions."""
        if is_resting == self.is_resting:
            return
        self.is_resting = is_resting
        self.say(DraftersWanted(is_wanted=not is_resting))
        if is_resting:
            return
        self.table.woken_S[:] = self.table.lengths_S
        rested_S = self.table.rested_S
        for row in (self.table.used_S & (rested_S >= 0)).nonzero()[0].tolist():
            for number in self.live:
                if self.table.joined_SD[row, number]:
                    self.resync(row, number, int(rested_S[row]))
            rested_S[row] = -1

    # -- candidates ------------------------------------------------------------------------------------------------

    def join_drafter(self, name: str, *, takes_turns: bool) -> None:
        """A drafter's stream is up.

        Args:
            name: Of the drafter.
            takes_turns: Its passes stand still while the target's run.
        """
        number = self.number_of(name)
        self.live.add(number)
        self._sharing.discard(number)
        if takes_turns:
            self._sharing.add(number)
        self.clock.is_shared = bool(self._sharing)

    def lose_drafter(self, name: str) -> None:
        """A drafter's stream has ended."""
        number = self.number_of(name)
        self.live.discard(number)
        self.last_sent.pop(number, None)
        self._sharing.discard(number)
        self.clock.is_shared = bool(self._sharing)
        self.table.joined_SD[:, number] = False
        self.table.seen_SD[:, number] = 0

    def has_candidates(self, rows_E: Int64s) -> Bools:
        """Which sessions have something to verify below their text."""
        has_E = np.zeros(len(rows_E), np.bool_)
        for store in self.stores:
            has_E |= store.has(rows_E)
        return has_E

    def survives(self, rows_E: Int64s) -> Bools:
        """For which sessions candidates come without a wait: they outlive a verdict (`CandidateStore.survives`) and are drafted while passes run."""
        return self._survives_K[self.table.kinds_S[rows_E]] & (not self.clock.is_shared)

    def open(self, rows_E: Int64s) -> Float64s:
        """Probability that each text goes on where its candidates end and more could follow; 1 without any."""
        open_E = np.ones(len(rows_E))
        for store in self.stores:
            open_E *= store.open(rows_E)
        return open_E

    # -- sessions --------------------------------------------------------------------------------------------------

    def next_handle(self) -> int:
        """A handle that no session has."""
        while (handle := self._new_handle()) in self.rows:
            continue
        return handle

    def add(self, session: TargetSession) -> None:
        """Takes a new session in."""
        self.sessions[session.row] = session
        self.rows[session.handle] = session.row
        self.owners[session.owner] = session.row

    def of(self, owner: SessionOwner) -> TargetSession | None:
        """The session of an owner, if it is still there."""
        row = self.owners.get(owner)
        return None if row is None else self.sessions[row]

    def abort(self, owner: SessionOwner, *, is_told: bool) -> None:
        """Ends a session; its owner is told what speculation did, for the statistics of a stop string."""
        session = self.of(owner)
        if session is not None:
            if is_told:
                self.say(Finished(owner=owner, reason=Finish.ABORTED, stats=session.stats()))
            self.drop(session)

    def fail(self, session: TargetSession, message: str, *, code: str) -> None:
        """Ends a session that cannot go on here; if the code is ABORTED, its coordinator opens it again, elsewhere if it can. What is in
        its slot may be why, so nobody gets that."""
        self.say(Failed(owner=session.owner, code=code, message=message))
        self.drop(session, keeps=False)

    def drop(self, session: TargetSession, *, keeps: bool = True) -> None:
        """Frees the slot, whose rows others may use if it `keeps` them, and tells the drafters."""
        row, handle, stats = session.row, session.handle, session.stats()
        joined = self.table.joined_SD[row].nonzero()[0].tolist()
        text = self.table.text(row).tolist() if keeps else ()
        with self.tally.lock:
            self.tally.end(self.table, row)
            self.table.used_S[row] = False
            del self.sessions[row]
        del self.rows[handle], self.owners[session.owner]
        for store in self.stores:
            store.clear(row)
        self.roots.forget(row)
        self.slots.release(row, text)
        _log.debug(
            "session ended",
            request_id=session.request_id,
            tokens=stats.tokens,
            accepted=stats.accepted,
        )
        for number in joined:
            self.say(SessionClosed(drafter=self.drafters[number], handle=handle))
