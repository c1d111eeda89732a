"""The target worker: sessions, candidate pools, ragged batches, the walk, the verdict. Knows nothing of Ray or gRPC.

One thread owns everything here and calls `step` in a loop. Other threads only `post` events. Outputs leave through a
callback, once a step, in order. Invariants:

- a token is committed only by the walk over the target's own draws, so candidates can change speed and nothing else;
- verdicts leave before keys and values are compacted, because drafters wait for them and nobody waits for compaction;
- whatever a pass raises, its sessions are failed and their slots freed, and the others go on.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import structlog
import torch

from outrider.actors.engine.protocol import Engine, Rows
from outrider.actors.speculation import coupled
from outrider.actors.speculation.noise import GumbelNoise
from outrider.actors.target import admission
from outrider.actors.target.acceptance import Calibration
from outrider.actors.target.cost import CostModel
from outrider.actors.target.drawing import Drawer
from outrider.actors.target.events import (
    Candidates,
    Close,
    CloseStream,
    Committed,
    DrafterJoined,
    DrafterLeft,
    Event,
    Failed,
    Finish,
    Finished,
    FrozenCandidates,
    Open,
    Opened,
    Output,
    Owner,
    Resync,
    ResyncRequest,
    SessionClosed,
    Steer,
    Verdict,
)
from outrider.actors.target.frozen import FrozenVerdict
from outrider.actors.target.messages import verdict_bytes
from outrider.actors.target.plan import Entry, Limits, plan_pass
from outrider.actors.target.session import POOL_CAPACITY, Session
from outrider.actors.target.settings import TargetSettings
from outrider.actors.trace import TraceRecord, TraceRing

WARM_UP_ROWS = (1, 2, 4, 8, 16, 32, 64)
"""Sizes of the passes that are timed when a target starts."""

WARM_UP_TURNS = 12
"""How often all sizes are timed."""

WARM_UP_S = 1.0
"""No further turn after this time: a large model is not kept from starting."""

_log = structlog.get_logger(__name__)


class TargetWorker:
    """Everything a target actor does between its streams."""

    def __init__(
        self,
        engine: Engine,
        settings: TargetSettings,
        emit: Callable[[list[Output]], None],
        clock: Callable[[], float] = time.perf_counter,
        trace: TraceRing | None = None,
    ) -> None:
        """Makes a worker.

        Args:
            engine: The target model.
            settings: What the actor was told.
            emit: Takes the outputs of a step, in order. Called by the worker's thread.
            clock: Seconds; monotone.
            trace: Where passes are recorded, None: nowhere.
        """
        self._engine = engine
        self._settings = settings
        self._emit = emit
        self._clock = clock
        self._trace = trace
        self._inbox: deque[tuple[float, Event]] = deque()
        self._arrived = 0.0
        self._news = threading.Event()
        self._sessions: dict[int, Session] = {}
        self._handles: dict[Owner, int] = {}
        self._next_handle = 1
        self._live_drafters: frozenset[str] = frozenset()
        self._calibrations: dict[str, Calibration] = {}
        self._noise = GumbelNoise(engine.spec.vocab_size, engine.spec.device)
        self._out: list[Output] = []
        self._stopping = False
        self._busy_s = 0.0
        self._busy_since = clock()
        self.cost = CostModel()

    # -- other threads ---------------------------------------------------------------------------------------------

    def post(self, event: Event) -> None:
        """Hands in an event. Any thread."""
        # The time of arrival tells how fast drafters answer; a pass may lie between it and the taking in.
        self._inbox.append((self._clock(), event))
        self._news.set()

    def stop(self) -> None:
        """Makes `run` return after the running pass. Any thread."""
        self._stopping = True
        self._news.set()

    @property
    def num_sessions(self) -> int:
        """Number of sessions. Any thread."""
        return len(self._sessions)

    def take_busy(self) -> float:
        """Fraction of the time since the last call in which passes ran, 0 to 1."""
        now = self._clock()
        busy = self._busy_s / max(now - self._busy_since, 1e-9)
        self._busy_s, self._busy_since = 0.0, now
        return min(busy, 1.0)

    # -- the worker's thread ---------------------------------------------------------------------------------------

    def run(self) -> None:
        """Steps until `stop`."""
        while not self._stopping:
            wait_s = self.step()
            if wait_s is None or wait_s > 0.0:
                self._news.wait(wait_s if wait_s is not None else 1.0)

    def step(self) -> float | None:
        """Takes in the events that are there, then runs one pass if one is due.

        Returns:
            0 if more is to be done at once; otherwise the seconds after which to look again, None for not before
            there is an event.
        """
        self._news.clear()
        while self._inbox:
            self._arrived, event = self._inbox.popleft()
            self._take(event)
        sessions = [s for s in self._sessions.values() if self._start(s)]
        if not sessions:
            self._flush()
            return None
        now = self._clock()
        cached = [self._engine.cached(s.slot) for s in sessions]
        plan = plan_pass(sessions, cached, self._live_drafters, self._limits(), self.cost, now)
        if not plan.entries:
            for session in sessions:
                if session.wait_since is None:
                    session.wait_since = now
            self._flush()
            return plan.wait_s
        self._run_pass(plan.entries, now)
        self._flush()
        return 0.0

    def warm_up(self) -> None:
        """Runs passes of different sizes, so that the cost model knows the shape of their times."""
        slot = self._engine.acquire()
        sizes = [rows for rows in WARM_UP_ROWS if rows <= self._engine.max_scratch]
        curve = dict.fromkeys(sizes, float("inf"))
        began = self._clock()
        for _ in range(WARM_UP_TURNS):
            # By turns, so that a slow moment of the machine does not bend the curve; the fastest of a size counts.
            for rows in sizes:
                batch = [Rows(slot=slot, tokens=[0] * rows, parents=_bush(rows))]
                started = self._clock()
                self._engine.forward(batch)
                curve[rows] = min(curve[rows], self._clock() - started)
                self._engine.truncate(slot, 0)
            if self._clock() - began > WARM_UP_S:
                break
        self._engine.release(slot)
        self.cost.set_curve(curve)

    def _limits(self) -> Limits:
        """Bounds of the next pass."""
        settings = self._settings
        return Limits(
            prefill_chunk=settings.prefill_chunk,
            max_batch_nodes=settings.max_batch_nodes,
            max_patience_s=settings.max_patience_s,
            lockstep=settings.lockstep,
        )

    # -- events ----------------------------------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        match event:
            case Candidates():
                self._graft(event)
            case FrozenCandidates():
                self._hold(event)
            case Open():
                self._open(event)
            case Close():
                self._close(event.owner, is_told=True)
            case CloseStream():
                for owner in [o for o in self._handles if o.stream == event.stream]:
                    self._close(owner, is_told=False)
            case Steer():
                self._steer(event)
            case DrafterJoined():
                self._live_drafters |= {event.drafter}
                self._calibrations.setdefault(event.drafter, Calibration())
            case DrafterLeft():
                self._live_drafters -= {event.drafter}
                for session in self._sessions.values():
                    session.joined.discard(event.drafter)
            case ResyncRequest():
                self._answer_resync(event)

    def _open(self, event: Open) -> None:
        try:
            session = admission.open_session(
                event, self._engine, self._noise, handle=self._next_handle
            )
        except admission.Refused as refusal:
            self._out.append(Failed(owner=event.owner, code=refusal.code, message=str(refusal)))
            return
        self._next_handle += 1
        self._sessions[session.handle] = session
        self._handles[event.owner] = session.handle
        self._out.append(Opened(owner=event.owner, handle=session.handle))

    def _close(self, owner: Owner, *, is_told: bool) -> None:
        """Ends a session; its owner is told what speculation did, for the statistics of a stop string."""
        handle = self._handles.get(owner)
        if handle is not None:
            session = self._sessions[handle]
            if is_told:
                self._out.append(Finished(owner=owner, reason=Finish.ABORTED, stats=session.stats))
            self._drop(session)

    def _drop(self, session: Session) -> None:
        """Frees the slot and tells the drafters."""
        del self._sessions[session.handle]
        del self._handles[session.owner]
        self._engine.release(session.slot)
        for drafter in session.joined:
            self._out.append(SessionClosed(drafter=drafter, handle=session.handle))

    def _steer(self, event: Steer) -> None:
        handle = self._handles.get(event.owner)
        if handle is None:
            return
        session = self._sessions[handle]
        for drafter in session.joined.difference(event.drafters):
            self._out.append(SessionClosed(drafter=drafter, handle=handle))
        session.joined.intersection_update(event.drafters)
        # Names are only ever appended, so that origins already reported keep their meaning.
        known = session.drafters
        session.drafters = known + tuple(d for d in event.drafters if d not in known)
        session.allowed = frozenset(event.drafters)
        if event.max_nodes:
            session.limit_nodes(event.max_nodes)

    def _graft(self, event: Candidates) -> None:
        session = self._sessions.get(event.handle)
        if session is None:
            self._out.append(SessionClosed(drafter=event.drafter, handle=event.handle))
            return
        stats = session.stats
        stats.candidate_messages += 1
        stats.wire_bytes += event.num_bytes
        if event.drafter not in session.allowed or session.trees is not None:
            stats.stale += len(event.tokens)
            return
        if session.hash_at(event.base_length) != event.base_hash:
            stats.stale += len(event.tokens)
            self._join(session, event.drafter, 0)
            return
        self._join(session, event.drafter, event.base_length)
        estimates = event.estimates or b"\x80" * len(event.tokens)
        grafted = session.pool.graft(
            event.tokens,
            event.parents,
            [b / 255.0 for b in estimates],
            session.drafters.index(event.drafter),
            session.tokens[event.base_length :],
            self._calibrations[event.drafter],
        )
        stats.proposed += grafted.added + grafted.stale
        stats.stale += grafted.stale
        self._time_answer(session, event.base_length)

    def _hold(self, event: FrozenCandidates) -> None:
        """Keeps a frozen tree for the text that it hangs below."""
        session = self._sessions.get(event.handle)
        if session is None:
            self._out.append(SessionClosed(drafter=event.drafter, handle=event.handle))
            return
        num_nodes = event.frozen.tree.num_nodes
        session.stats.candidate_messages += 1
        session.stats.wire_bytes += event.num_bytes
        if event.drafter not in session.allowed or session.trees is None:
            session.stats.stale += num_nodes
            return
        is_ahead = event.base_length > session.length
        if not is_ahead and session.hash_at(event.base_length) != event.base_hash:
            session.stats.stale += num_nodes
            self._join(session, event.drafter, 0)
            return
        self._join(session, event.drafter, min(event.base_length, session.length))
        is_new = False
        if event.base_length >= session.length:
            try:
                is_new = session.trees.take(
                    event.drafter,
                    length=event.base_length,
                    hash_=event.base_hash,
                    number=event.round,
                    frozen=event.frozen,
                )
            except ValueError as error:
                _log.warning("frozen tree dropped", drafter=event.drafter, reason=str(error))
        session.stats.proposed += num_nodes
        if not is_new:
            session.stats.stale += num_nodes
            return
        self._time_answer(session, event.base_length)

    def _time_answer(self, session: Session, base_length: int) -> None:
        """Learns how long drafters take from a verdict to the first candidates of its base."""
        asked = session.take_verdict_time(base_length)
        if asked is not None:
            session.patience.observe_arrival(self._arrived - asked)
        elif session.ripens and base_length == session.length:
            session.patience.observe_gap(self._arrived - session.last_part)
        session.last_part = self._arrived

    def _join(self, session: Session, drafter: str, length: int) -> None:
        """Notes that a drafter takes part; tells it what it lacks."""
        if drafter in session.joined or drafter not in session.allowed:
            return
        session.joined.add(drafter)
        if length < session.length:
            self._out.append(self._resync(session, drafter, length))

    def _answer_resync(self, event: ResyncRequest) -> None:
        session = self._sessions.get(event.handle)
        if session is None or event.drafter not in session.allowed:
            self._out.append(SessionClosed(drafter=event.drafter, handle=event.handle))
            return
        session.joined.add(event.drafter)
        self._out.append(self._resync(session, event.drafter, min(event.length, session.length)))

    def _resync(self, session: Session, drafter: str, length: int) -> Resync:
        return Resync(
            drafter=drafter,
            handle=session.handle,
            epoch=session.epoch,
            base_length=session.length,
            base_hash=session.hash,
            tokens=tuple(session.tokens[length:]),
            credits=self._credits(session),
        )

    def _credits(self, session: Session) -> int:
        return min(4 * session.speculation.max_nodes, POOL_CAPACITY) if session.remaining > 1 else 0

    # -- passes ----------------------------------------------------------------------------------------------------

    def _start(self, session: Session) -> bool:
        """Looks for a prefix to reuse before a session's first rows; False while a sibling computes it."""
        if session.is_started:
            return True
        found = admission.find_prefix(session, self._sessions.values(), self._engine)
        if isinstance(found, admission.Wait):
            return False
        if found is not None:
            self._engine.copy_prefix(found.slot, session.slot, found.length)
            session.stats.cached_tokens = min(found.length, session.prompt_length)
        session.is_started = True
        return True

    def _run_pass(self, entries: Sequence[Entry], now: float) -> None:
        for entry in entries:
            self._end_wait(entry, now)
        batch = [self._rows(entry) for entry in entries]
        try:
            logits = self._engine.forward(batch)
        except Exception as error:  # noqa: BLE001 - whatever a model raises must not end the others
            self._fail(entries, error)
            return
        computed = self._clock()
        committed = 0
        finished: list[tuple[Entry, tuple[int, ...]]] = []
        for index, entry in enumerate(entries):
            if entry.is_prefill:
                finished.append((entry, ()))
                continue
            logits_RV = logits.of(index)
            keep = 1 + len(entry.selection.nodes)
            path, num_tokens = self._settle(
                entry, logits_RV[len(logits_RV) - keep :], computed - now
            )
            committed += num_tokens
            finished.append((entry, path))
        self._flush()
        for entry, path in finished:
            self._compact(entry, path)
        self._account(entries, batch, committed, now, computed - now)

    def _end_wait(self, entry: Entry, now: float) -> None:
        session = entry.session
        if session.wait_since is not None:
            session.stats.draft_wait_s += now - session.wait_since
            session.wait_since = None
            if not entry.selection.nodes:
                # Waited in vain: counts double, so that a silent drafter soon costs nothing.
                session.patience.observe_arrival(2.0 * (now - session.last_verdict))

    @staticmethod
    def _rows(entry: Entry) -> Rows:
        chain = entry.chain
        last = len(chain) - 1
        parents = list(range(-1, last))
        parents.extend(last + 1 + p for p in entry.selection.parents)
        wanted = "none" if entry.is_prefill else ("all" if entry.selection.nodes else "last")
        return Rows(
            slot=entry.session.slot,
            tokens=chain + entry.selection.tokens,
            parents=parents,
            logits=wanted,  # type: ignore[arg-type]  # one of the three literals
        )

    def _settle(
        self, entry: Entry, logits_RV: torch.Tensor, pass_s: float
    ) -> tuple[tuple[int, ...], int]:
        """Walks, commits, and queues what the coordinator and the drafters are told.

        Returns:
            The accepted nodes, and the number of committed tokens.
        """
        session, selection = entry.session, entry.selection
        drawer: Drawer | FrozenVerdict
        if entry.frozen is not None:
            drawer = FrozenVerdict(session, logits_RV, entry.frozen)
            result = drawer.walk()
        else:
            drawer = Drawer(session, logits_RV, selection.parents, selection.tokens)
            result = coupled.walk(selection.tokens, selection.parents, drawer, session.remaining)
        tokens = _until_stop(result.tokens, session.stop_tokens)
        path = result.path[: len(tokens)]
        origins = [selection.nodes[node].drafter for node in path]
        origins.extend([-1] * (len(tokens) - len(origins)))
        self._learn(session, entry, result.path)
        now = self._clock()
        session.stats.stale += session.commit(tokens, now)
        session.stats.near_ties += drawer.near_ties
        session.stats.tokens += len(tokens)
        self._count(session, entry, len(path))
        is_stopped = tokens[-1] in session.stop_tokens
        is_over = is_stopped or session.remaining <= 0
        if not is_over:
            self._send_verdicts(session, tokens, pass_s)
        self._out.append(
            Committed(
                owner=session.owner,
                epoch=session.epoch,
                tokens=tokens,
                origins=tuple(origins),
                logprobs=tuple(drawer.logprobs[: len(tokens)])
                if session.sampling.logprobs is not None
                else None,
            )
        )
        if is_over:
            reason = Finish.STOP_TOKEN if is_stopped else Finish.LENGTH
            session.finish = reason
        return path, len(tokens)

    def _learn(self, session: Session, entry: Entry, path: Sequence[int]) -> None:
        """Tells calibration and patience what became of the candidates that the walk met."""
        selection = entry.selection
        if not selection.nodes:
            return
        session.patience.observe_round(len(path) + 1)
        if entry.frozen is not None:
            return
        accepted = set(path)
        reached = {-1, *path}
        for index, (parent, node) in enumerate(
            zip(selection.parents, selection.nodes, strict=True)
        ):
            if parent in reached:
                drafter = session.drafters[node.drafter]
                self._calibrations[drafter].observe(node.estimate, index in accepted)

    @staticmethod
    def _count(session: Session, entry: Entry, accepted: int) -> None:
        stats, nodes = session.stats, entry.selection.nodes
        if not nodes:
            stats.plain_passes += 1
            return
        stats.rounds += 1
        stats.verified += len(nodes)
        stats.accepted += accepted
        root = session.length - session.last_round
        stats.count_round(max(node.depth for node in nodes) - root, accepted)

    def _send_verdicts(self, session: Session, tokens: tuple[int, ...], pass_s: float) -> None:
        starving = not session.has_candidates
        credits_ = self._credits(session)
        for drafter in session.joined & self._live_drafters:
            session.stats.wire_bytes += verdict_bytes(
                session.handle, session.epoch, session.length, tokens, credits_
            )
            self._out.append(
                Verdict(
                    drafter=drafter,
                    handle=session.handle,
                    epoch=session.epoch,
                    base_length=session.length,
                    base_hash=session.hash,
                    tokens=tokens,
                    credits=credits_,
                    starving=starving,
                    pass_s=pass_s,
                )
            )

    def _compact(self, entry: Entry, path: Sequence[int]) -> None:
        session = entry.session
        if session.finish is not None:
            self._out.append(
                Finished(owner=session.owner, reason=session.finish, stats=session.stats)
            )
            self._drop(session)
            return
        chain = len(entry.chain)
        self._engine.rebase(session.slot, [*range(chain), *(chain + node for node in path)])

    def _account(
        self,
        entries: Sequence[Entry],
        batch: Sequence[Rows],
        committed: int,
        started: float,
        model_s: float,
    ) -> None:
        """Attributes the time of a pass, all of it: what happens outside the model costs as much a second."""
        pass_s = self._clock() - started
        self._busy_s += pass_s
        num_rows = sum(len(rows.tokens) for rows in batch)
        has_prompt = False
        for entry in entries:
            is_prompt = entry.is_prefill or len(entry.chain) > 1
            has_prompt = has_prompt or is_prompt
            stats = entry.session.stats
            if is_prompt:
                stats.prefill_s += pass_s
            else:
                stats.verify_s += pass_s
        if not has_prompt:
            self.cost.observe(num_rows, model_s, pass_s)
        if self._trace is not None:
            self._trace.append(
                TraceRecord(
                    track="target",
                    name="prefill" if has_prompt else "verify",
                    start_us=time.time() * 1e6 - pass_s * 1e6,
                    duration_us=pass_s * 1e6,
                    args={
                        "sessions": len(entries),
                        "rows": num_rows,
                        "nodes": sum(len(e.selection.nodes) for e in entries),
                        "committed": committed,
                    },
                )
            )

    def _fail(self, entries: Sequence[Entry], error: Exception) -> None:
        _log.error("target pass failed", target=self._settings.name, exc_info=error)
        for entry in entries:
            session = entry.session
            self._out.append(
                Failed(
                    owner=session.owner,
                    code="INTERNAL",
                    message=f"the target pass failed: {type(error).__name__}: {error}",
                )
            )
            self._drop(session)

    def _flush(self) -> None:
        if self._out:
            outputs, self._out = self._out, []
            self._emit(outputs)


def _until_stop(tokens: tuple[int, ...], stop_tokens: frozenset[int]) -> tuple[int, ...]:
    """The tokens up to and including the first stop token."""
    for index, token in enumerate(tokens):
        if token in stop_tokens:
            return tokens[: index + 1]
    return tokens


def _bush(rows: int) -> list[int]:
    """Parents of a tree like those that are verified: a root, and nodes with two children each."""
    return [-1, *((node - 1) // 2 for node in range(1, rows))]
