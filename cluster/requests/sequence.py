"""One running sequence: carries out what its `Session` commands, and feeds it what the target says.

Events arrive in the reading task of the target's stream and are carried out there and then, so that a commit costs no
task switch but the one that writes to the client. The sequence's own task only waits: for a slot, for the next opening,
for the end. However it ends - completion, failure, cancellation - its session, its drafters and its slot are let go.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import grpc
import structlog

from outrider.actors.speculation.drafter_records import DrafterRecords
from outrider.cluster.drafting.drafting import Drafting, accepted
from outrider.cluster.links.draft_link import DraftLink
from outrider.cluster.links.target_link import TargetLink
from outrider.cluster.metrics.request_recording import RequestRecording
from outrider.cluster.requests.admission import Grant
from outrider.cluster.requests.chunk_bytes import origin_of
from outrider.cluster.requests.client_stream import ClientStream
from outrider.cluster.requests.sequence_plan import (
    SequencePlan,
    attach_session,
    completion,
    open_session,
)
from outrider.cluster.requests.session import Session
from outrider.cluster.requests.session_commands import (
    AttachDrafter,
    Close,
    Command,
    Complete,
    Deliver,
    Fail,
    Open,
)
from outrider.cluster.requests.session_states import SessionState
from outrider.cluster.requests.slot_queue import Slots
from outrider.cluster.validation.client_names import exchanged
from outrider.cluster.validation.status_codes import Refusal
from outrider.v1 import draft_pb2, generation_pb2, target_pb2

CLOSING_S = 1.0
"""Seconds that a target has to tell the statistics of a session that a stop string ended: a pass or two. The text is
with the client by then; without an answer the completion carries what the coordinator saw."""

REOPEN_S = 0.05
"""Seconds before a session that failed is opened again, doubling each time: a slot may be about to become free."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SequencePeers:
    """What sequences share: the links, the slots, and a source of session numbers."""

    targets: Mapping[str, TargetLink]
    """By address."""

    drafters: Mapping[str, DraftLink]
    """To every replica, by name."""

    slots: Slots
    next_session: Callable[[], int]
    records: DrafterRecords
    """What became of each drafter's candidates."""


class Sequence:
    """One sequence of a running request."""

    def __init__(
        self,
        plan: SequencePlan,
        session: Session,
        cluster: SequencePeers,
        client: ClientStream,
        recording: RequestRecording,
    ) -> None:
        """Takes what the sequence is to do (`plan`), what it goes by, and where its tokens go (`client`)."""
        self.plan = plan
        self._recording = recording
        self._asked_ns = 0
        self.session = session
        self._cluster = cluster
        self._client = client
        self._wake = asyncio.Event()
        self._must_open = False
        self._reopenings = 0
        self._has_queued = False
        self._number = 0
        self._link: TargetLink | None = None
        self._grant: Grant | None = None
        self._accepted: dict[str, int] = {}
        """Whose candidates the target was told to take when the session was opened."""
        self._drafting: Drafting | None = None
        self._admitted_s: float | None = None
        self._first_token_s: float | None = None

    async def run(self) -> None:
        """Runs to the end. The client learns of its admission when the sequence has its first slot, or needs none."""
        try:
            self._carry_out(self.session.start())
            while self.session.state is not SessionState.ENDED:
                if self._must_open:
                    self._must_open = False
                    await self._acquire()
                    self._client.admit()
                    if self.session.state is SessionState.OPENING:
                        self._open()
                await self._until_woken()
            self._client.admit()
        except Refusal as refusal:
            self._client.refuse(refusal)
        finally:
            self._let_go()

    def abort(self) -> None:
        """Ends the sequence with what it has."""
        self._carry_out(self.session.abort())

    # -- what the links tell ---------------------------------------------------------------------------------------

    # A defect in one of these two ends this request, not the whole stream.

    def on_commit(self, epoch: int, ids: list[int], origins: list[int]) -> None:
        """The target has committed tokens."""
        try:
            self._take_commit(epoch, ids, origins, None)
        except Exception:
            log.exception("a sequence failed", request_id=self.plan.request_id)
            self._fail()

    def on_event(self, event: target_pb2.SessionEvent) -> None:
        """The target said something else about the session."""
        try:
            self._take(event)
        except Exception:
            log.exception("a sequence failed", request_id=self.plan.request_id)
            self._fail()

    def _fail(self) -> None:
        self._client.refuse(
            Refusal(grpc.StatusCode.INTERNAL, "the coordinator failed; its log says how")
        )

    def _take_commit(
        self,
        epoch: int,
        ids: list[int],
        origins: list[int],
        told: list[generation_pb2.Token] | None,
    ) -> None:
        if self._drafting is not None:
            self._drafting.committed(origins)
        num_tokens, began_ns = len(ids), self._recording.now_ns()
        commands = self.session.committed(epoch, ids, origins, told)
        self._recording.detokenised(self.plan.index, began_ns, num_tokens)
        self._carry_out(commands)

    def _take(self, event: target_pb2.SessionEvent) -> None:
        match event.WhichOneof("event"):
            case "committed":
                told = list(event.committed.tokens)
                ids, origins = [token.id for token in told], [origin_of(token) for token in told]
                self._take_commit(event.committed.epoch, ids, origins, told)
                return
            case "opened":
                self._note_opened(event.opened.handle)
                self._start_drafting(event.opened.handle)
                commands = self.session.opened()
            case "finished":
                done = event.finished
                commands = self.session.finished(
                    done.reason, done.speculation, done.timing, done.cached_tokens
                )
            case "failed":
                commands = self.session.failed(event.failed.code, event.failed.message)
            case _:
                return
        self._carry_out(commands)

    def on_lost(self, reason: str) -> None:
        """The session is gone with its stream."""
        self._carry_out(self.session.lost(reason))

    def on_drafters_wanted(self) -> None:
        """The target has use for drafters again."""
        if self._drafting is not None and self.session.state is SessionState.RUNNING:
            self._drafting.start()

    def on_drafter_up(self, name: str) -> None:
        """A drafter has connected."""
        if self._drafting is not None:
            self._drafting.on_up(name)

    # -- what the session commands ---------------------------------------------------------------------------------

    def _carry_out(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Deliver():
                    self._deliver(command)
                case AttachDrafter():
                    if self._drafting is not None:
                        self._drafting.start()
                case Close():
                    self._close()
                case Open():
                    self._plan_open(command)
                case Complete():
                    self._client.complete(self._completion(command))
                case Fail():
                    self._client.refuse(command.refusal)
        if self.session.state is not SessionState.RUNNING:
            self._wake.set()

    def _deliver(self, command: Deliver) -> None:
        if self._first_token_s is None:
            self._first_token_s = time.monotonic()
        self._client.deliver(self.plan.index, command)

    def _close(self) -> None:
        self._stop_drafting()
        if self._link is not None:
            self._link.close(self._number)

    def _plan_open(self, command: Open) -> None:
        self._stop_drafting()
        if self._link is not None:
            self._link.forget(self._number)
            self._link = None
        self._must_open = True
        if command.is_full and self._grant is not None:
            self._cluster.slots.refused(self._grant)
        if command.reason:
            self._reopenings += 1
            log.warning(
                "session is opened again",
                request_id=self.plan.request_id,
                index=self.plan.index,
                tokens=len(self.session.output),
                reason=command.reason,
            )

    def _completion(self, command: Complete) -> generation_pb2.GenerateResponse:
        return completion(
            self.plan,
            self.session,
            command,
            admitted_s=self._admitted_s,
            first_token_s=self._first_token_s,
            now_s=time.monotonic(),
        )

    # -- waiting ---------------------------------------------------------------------------------------------------

    async def _acquire(self) -> None:
        """Waits for a slot at a target."""
        slots, ticket = self._cluster.slots, self.plan.ticket
        self._recording.waits(self.plan.index)
        if self._has_queued:
            if self._grant is not None:
                slots.admission.release(self._grant)
                self._grant = None
            if self._reopenings:
                await asyncio.sleep(REOPEN_S * 2 ** min(self._reopenings - 1, 5))
            slots.return_to_queue(ticket)
        self._has_queued = True
        waiting = asyncio.ensure_future(slots.wait(ticket))
        woken = asyncio.ensure_future(self._ended())
        try:
            await asyncio.wait({waiting, woken}, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                self._grant = waiting.result()
        finally:
            waiting.cancel()
            woken.cancel()
        self._recording.queued(self.plan.index)
        if self._admitted_s is None:
            self._admitted_s = time.monotonic()

    async def _ended(self) -> None:
        """Waits until the session has ended, for instance by an abort while it is queued."""
        while self.session.state is not SessionState.ENDED:
            self._wake.clear()
            await self._wake.wait()

    def _open(self) -> None:
        assert self._grant is not None, "a session is opened only with a slot"
        link = self._cluster.targets.get(self._grant.target)
        if link is None or not link.is_up:
            self._carry_out(self.session.lost("the target went away before the session was opened"))
            return
        if link.fingerprint != self.plan.fingerprint:
            raise exchanged(self.plan.fingerprint, model=link.name, fingerprint=link.fingerprint)
        self._link, self._number = link, self._cluster.next_session()
        self._asked_ns = self._recording.now_ns()
        self._accepted = accepted(self.plan.drafters, self._cluster.drafters)
        opened = open_session(
            self.plan,
            session=self._number,
            committed=self.session.output,
            accepted=self._accepted,
        )
        link.open(opened, self)

    async def _until_woken(self) -> None:
        """Waits for the next opening or the end; not for ever on a target that was told to close."""
        while not self._must_open and self.session.state is not SessionState.ENDED:
            is_closing = self.session.state is SessionState.CLOSING
            self._wake.clear()
            try:
                async with asyncio.timeout(CLOSING_S if is_closing else None):
                    await self._wake.wait()
            except TimeoutError:
                self._carry_out(self.session.closing_expired())

    # -- drafters --------------------------------------------------------------------------------------------------

    def _note_opened(self, handle: int) -> None:
        if self._link is not None:
            self._recording.opened(
                self.plan.index,
                self._asked_ns,
                target=self._link.name,
                incarnation=self._link.incarnation,
                handle=handle,
            )

    def _start_drafting(self, handle: int) -> None:
        plan, link = self.plan, self._link
        if link is None or not plan.drafters or not plan.speculation.enabled:
            return
        number = self._number

        def attach() -> draft_pb2.AttachSession:
            return attach_session(
                plan, link, session=number, handle=handle, committed=self.session.output
            )

        self._drafting = Drafting(
            session=number,
            names=plan.drafters,
            group=plan.group,
            speculation=plan.speculation,
            records=self._cluster.records,
            links=self._cluster.drafters,
            told=self._accepted,
            target=link,
            attach=attach,
            later=asyncio.get_running_loop().call_later,
        )

    def _stop_drafting(self) -> None:
        if self._drafting is not None:
            self._drafting.stop()
            self._drafting = None

    def _let_go(self) -> None:
        """Leaves nothing behind. A session that has not ended is closed at the target."""
        self._stop_drafting()
        if self._link is not None:
            if self.session.state is not SessionState.ENDED:
                self._link.close(self._number)
            self._link.forget(self._number)
            self._link = None
        self._cluster.slots.leave(self.plan.ticket, self._grant)
