"""A coordinator: the real sessions and the real queue, between clients, targets and drafters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from outrider.actors.exchange import commits
from outrider.actors.speculation.drafter_records import DrafterRecords
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.cluster.drafting.drafting import Drafting, accepted
from outrider.cluster.requests.admission import AdmissionQueue, Grant
from outrider.cluster.requests.sequence import REOPEN_S
from outrider.cluster.requests.sequence_plan import SequencePlan, attach_session, open_session
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
from outrider.cluster.requests.slot_queue import ASK_AGAIN_S
from outrider.cluster.simulate.heap import EventRecord, Heap, Timer
from outrider.cluster.simulate.network import SimulatedStream
from outrider.cluster.simulate.prices import Prices
from outrider.cluster.simulate.simulated_links import (
    ServingDrafters,
    SimulatedDrafter,
    SimulatedTarget,
)
from outrider.cluster.simulate.simulated_process import Machine, Process
from outrider.v1 import draft_pb2, target_pb2

Key = tuple[str, int, int]
"""Names a request in every mode: kind, client or wave, and number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPlace:
    """Where a session is decoded; what `attach_session` asks of a link."""

    address: str
    incarnation: int


@dataclass(eq=False, slots=True, kw_only=True)
class Running:
    """One request of one sequence."""

    plan: SequencePlan
    session: Session
    on_tokens: Callable[[int, float], None]
    on_end: Callable[[float, str], None]
    """Told why, if it failed."""
    grant: Grant | None = None
    number: int = 0
    handle: int = 0
    target: str = ""
    accepted: dict[str, int] = field(default_factory=dict)
    """Whose candidates the target was told to take when the session was opened."""
    drafting: Drafting | None = None
    reopenings: int = 0


class CoordinatorProcess(Process):
    """Runs requests."""

    def __init__(
        self, name: str, heap: Heap, machine: Machine, record: EventRecord, *, prices: Prices
    ) -> None:
        """Arguments: as `TargetProcess`."""
        super().__init__(name, heap, machine, record, prices)
        self.targets: dict[str, SimulatedTarget] = {}
        self.drafters: dict[str, SimulatedDrafter] = {}
        self.admission = AdmissionQueue(max_waiting=1 << 20)
        self.served: dict[str, tuple[str, ...] | None] = {}
        """For which targets each drafts; None: for all."""
        self._records = DrafterRecords()
        self.outputs: dict[Key, list[int]] = {}
        """Of each request, as far as it has come."""
        self._running: dict[int, Running] = {}
        """By the request's number."""
        self._sessions: dict[int, Running] = {}
        """By the session's number; an opening that is over is not in it."""
        self._next_session = 1
        self._next_request = 1

    # -- clients ---------------------------------------------------------------------------------------------------

    def request(
        self,
        prompt: tuple[int, ...],
        sampling: Sampling,
        speculation: Speculation,
        *,
        on_tokens: Callable[[int, float], None],
        on_end: Callable[[float, str], None],
        key: Key,
    ) -> None:
        """A client asks, now.

        Args:
            prompt: Token ids.
            sampling: Of the request.
            speculation: Of the request.
            on_tokens: Told of each delivery: tokens, and when they left.
            on_end: Told when the last word left, and why it failed, if it did.
            key: Names the request in every mode.
        """

        def take(_: bytes) -> None:
            self.spend(self._prices.coordinator.request.seconds())
            number, self._next_request = self._next_request, self._next_request + 1
            plan = SequencePlan(
                request=number,
                index=0,
                request_id=f"r{number}",
                group=number,
                tenant=0,
                prompt=prompt,
                fingerprint="",
                sampling=sampling,
                speculation=speculation,
                drafters=tuple(dict.fromkeys(link.entry for link in self.drafters.values())),
                arrived_s=self.now,
            )
            session = Session(detokeniser=None, max_tokens=sampling.max_tokens)
            self.outputs[key] = session.output
            running = Running(
                plan=plan,
                session=session,
                on_tokens=on_tokens,
                on_end=on_end,
            )
            self._running[number] = running
            self.admission.enqueue(number, 1, prompt)
            self._carry_out(running, running.session.start())
            self._dispatch()

        self.post(b"", take)

    # -- streams ---------------------------------------------------------------------------------------------------

    def target_up(self, target: str, num_slots: int) -> None:
        """A target's stream is up."""

        def take(_: bytes) -> None:
            self.admission.set_target(target, num_slots)
            self._dispatch()

        self.post(b"", take)

    def target_down(self, target: str) -> None:
        """A target's stream has ended."""

        def take(_: bytes) -> None:
            self.admission.remove_target(target)
            for running in [one for one in self._sessions.values() if one.target == target]:
                self._carry_out(running, running.session.lost(f"the stream to {target} broke"))
            self._dispatch()

        self.post(b"", take)

    def drafter_up(self, drafter: str, stream: SimulatedStream, *, entry: str) -> None:
        """A drafter's stream is up."""

        def take(_: bytes) -> None:
            self.drafters[drafter].connect(stream)
            for running in list(self._sessions.values()):
                if running.drafting is not None:
                    running.drafting.on_up(drafter)

        if drafter not in self.drafters:
            self.drafters[drafter] = SimulatedDrafter(drafter, self)
        self.drafters[drafter].entry = entry
        self.post(b"", take)

    def drafter_down(self, drafter: str) -> None:
        """A drafter's stream has ended."""
        self.post(b"", lambda _: self.drafters[drafter].lost())

    def on_target(self, target: str, payload: bytes) -> None:
        """A target's message."""
        event = target_pb2.SessionEvent.FromString(payload)
        match event.WhichOneof("event"):
            case "commits":
                self._committed(event.commits.frame)
            case "opened":
                running = self._sessions.get(event.opened.session)
                if running is not None:
                    running.handle = event.opened.handle
                    self._start_drafting(running)
                    self._carry_out(running, running.session.opened())
            case "finished":
                done = event.finished
                running = self._sessions.get(done.session)
                if running is not None:
                    self._carry_out(
                        running,
                        running.session.finished(
                            done.reason, done.speculation, done.timing, done.cached_tokens
                        ),
                    )
            case "failed":
                running = self._sessions.get(event.failed.session)
                if running is not None:
                    failed = running.session.failed(event.failed.code, event.failed.message)
                    self._carry_out(running, failed)
            case "drafters_wanted":
                self.targets[target].wants_drafters = event.drafters_wanted.is_wanted
                if event.drafters_wanted.is_wanted:
                    self._fill_all(target)
        self._dispatch()

    def on_drafter(self, drafter: str, payload: bytes) -> None:
        """A drafter's message."""
        self.drafters[drafter].take(payload)

    def _committed(self, frame: bytes) -> None:
        told = commits.decode(frame)
        num_tokens = sum(len(one.tokens) for one in told)
        self.spend(self._prices.coordinator.take.seconds(len(told), num_tokens))
        for number, epoch, tokens, origins in told:
            running = self._sessions.get(number)
            if running is not None:
                if running.drafting is not None:
                    running.drafting.committed(origins)
                self._carry_out(running, running.session.committed(epoch, tokens, origins))

    # -- what sessions command -------------------------------------------------------------------------------------

    def _carry_out(self, running: Running, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Deliver():
                    self.spend_on_message()
                    running.on_tokens(len(command.ids), self.now)
                case AttachDrafter():
                    if running.drafting is not None:
                        running.drafting.start()
                case Close():
                    self._close(running)
                case Open():
                    self._plan_open(running, command)
                case Complete():
                    self._end(running, "")
                case Fail():
                    self._end(running, str(command.refusal))

    def _plan_open(self, running: Running, command: Open) -> None:
        self._leave(running)
        if running.grant is None:
            # The first time: its place in the queue is there.
            return
        target = running.grant.target
        if command.is_full:
            known = self.admission.num_slots(target)
            self.admission.refused(running.grant)
            self._later(ASK_AGAIN_S, lambda: self._ask_again(target, known))
        else:
            self.admission.release(running.grant)
        running.grant = None
        running.reopenings += bool(command.reason)
        ticket = running.plan.ticket
        if command.reason:
            again = REOPEN_S * 2 ** min(running.reopenings - 1, 5)
            self._later(again, lambda: self.admission.return_to_queue(ticket))
        else:
            self.admission.return_to_queue(ticket)

    def _ask_again(self, target: str, known: int) -> None:
        if 0 <= self.admission.num_slots(target) < known:
            self.admission.set_target(target, known)

    def _dispatch(self) -> None:
        for grant in self.admission.grants():
            running = self._running.get(grant.ticket.request)
            if running is None or running.session.state is not SessionState.OPENING:
                self.admission.release(grant)
                continue
            running.grant, running.target = grant, grant.target
            running.number, self._next_session = self._next_session, self._next_session + 1
            self._sessions[running.number] = running
            running.accepted = accepted(running.plan.drafters, self._serving(running.target))
            opened = open_session(
                running.plan,
                session=running.number,
                committed=running.session.output,
                accepted=running.accepted,
            )
            self.targets[grant.target].stream.tell(self, target_pb2.SessionCommand(open=opened))

    def _fill_all(self, target: str) -> None:
        for running in list(self._sessions.values()):
            is_running = running.session.state is SessionState.RUNNING
            if running.target == target and running.drafting is not None and is_running:
                running.drafting.start()

    def _start_drafting(self, running: Running) -> None:
        """Takes the drafters that there are for the target."""
        if not running.plan.speculation.enabled:
            return
        target, number = running.target, running.number

        def attach() -> draft_pb2.AttachSession:
            return attach_session(
                running.plan,
                SimulatedPlace(address=target, incarnation=1),
                session=number,
                handle=running.handle,
                committed=running.session.output,
            )

        running.drafting = Drafting(
            session=number,
            names=running.plan.drafters,
            group=running.plan.group,
            speculation=running.plan.speculation,
            records=self._records,
            links=self._serving(target),
            told=running.accepted,
            target=self.targets[target],
            attach=attach,
            later=self._later,
        )

    def _serving(self, target: str) -> ServingDrafters:
        return ServingDrafters(
            self.drafters, lambda name: target in (self.served[name] or (target,))
        )

    def _leave(self, running: Running) -> None:
        """Ends an opening: its drafters go."""
        self._sessions.pop(running.number, None)
        if running.drafting is not None:
            running.drafting.stop()
            running.drafting = None

    def _close(self, running: Running) -> None:
        close = target_pb2.CloseSession(session=running.number)
        self.targets[running.target].stream.tell(self, target_pb2.SessionCommand(close=close))

    def _end(self, running: Running, why: str) -> None:
        self._leave(running)
        if running.grant is not None:
            self.admission.release(running.grant)
        self._running.pop(running.plan.request, None)
        self.admission.routes.forget(running.plan.request)
        running.on_end(self.now, why)

    # -- parts -----------------------------------------------------------------------------------------------------

    def turn(self) -> float | None:
        """See `Process`."""
        while self.inbox:
            letter = self.inbox.popleft()
            if letter.payload:
                self.spend_on_message()
            letter.take(letter.payload)
        return None

    def _later(self, seconds: float, action: Callable[[], None]) -> Timer:
        def take(_: bytes) -> None:
            action()
            self._dispatch()

        return self.heap.at(self.now + seconds, lambda: self.post(b"", take))
