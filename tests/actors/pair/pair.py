"""A target worker and a draft worker, driven step by step, with every message through its wire form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from outrider.actors.draft.assembled.by_verifier import DrafterByVerifier
from outrider.actors.draft.draft_core import DraftCore
from outrider.actors.draft.draft_worker import DraftWorker
from outrider.actors.draft.frozen.frozen_drafter import SampledDrafter
from outrider.actors.draft.model.growing_drafter import AutoregressiveDrafter, num_nodes_of
from outrider.actors.draft.service import draft_messages
from outrider.actors.draft.state.draft_events import (
    AttachRefused,
    AttachSession,
    CandidatesSent,
    Ended,
    FeaturesReceived,
    Report,
    ResyncWanted,
)
from outrider.actors.draft.state.draft_events import SessionKey as Key
from outrider.actors.draft.state.draft_sessions import DraftSession, DraftSessions
from outrider.actors.draft.state.draft_settings import BYTES_PER_TOKEN
from outrider.actors.draft.state.drafter import Drafter
from outrider.actors.draft.stopping.lengths import Lengths
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.kv.prefix_slots import PrefixSlots
from outrider.actors.engine.tables.tabular_engine import Table, TabularEngine
from outrider.actors.exchange import commits, features
from outrider.actors.exchange.features import RejectedNodes
from outrider.actors.exchange.feedback_offer import offer_for
from outrider.actors.exchange.feedback_request import FeedbackRequest
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.target import next_pass
from outrider.actors.target.schedule.mode import Mode
from outrider.actors.target.service import target_messages
from outrider.actors.target.service.feedback_queue import pack
from outrider.actors.target.state.target_events import (
    CommitFrame,
    Committed,
    DrafterJoined,
    DraftersWanted,
    Event,
    Failed,
    FeedbackOpened,
    FeedbackReady,
    Finished,
    Opened,
    OpenSession,
    Output,
    Resync,
    ResyncRequest,
    SessionClosed,
    SessionOwner,
    Stats,
    VerdictsSent,
)
from outrider.actors.target.state.target_settings import TargetSettings
from outrider.actors.target.target_worker import TargetWorker
from outrider.v1 import target_pb2

LINK = 1

Wire = list[target_pb2.DrafterMessage]


@dataclass(frozen=True, kw_only=True)
class Given:
    """What a drafter was given beyond tokens."""

    session: DraftSession
    text: list[int]
    """As far as the drafter had it then."""
    start: int = 0
    states_TLD: NDArray[np.float32] | None = None
    top_tokens_TK: NDArray[np.int64] | None = None
    top_logprobs_TK: NDArray[np.float32] | None = None
    rejected: RejectedNodes | None = None


class ReadingDrafter(DrafterByVerifier):
    """Keeps what it is given, and drafts as ever."""

    given: list[Given]

    def take_features(
        self, session: DraftSession, start: int, features_TLD: NDArray[np.float32]
    ) -> None:
        """See `FeatureReader`."""
        text = session.tokens
        self.given.append(Given(session=session, text=text, start=start, states_TLD=features_TLD))

    def take_top_rows(
        self,
        session: DraftSession,
        start: int,
        tokens_TK: NDArray[np.int64],
        logprobs_TK: NDArray[np.float32],
    ) -> None:
        """See `TopRowReader`."""
        self.given.append(
            Given(
                session=session,
                text=session.tokens,
                start=start,
                top_tokens_TK=tokens_TK,
                top_logprobs_TK=logprobs_TK,
            )
        )

    def take_rejected(
        self, session: DraftSession, nodes: RejectedNodes, states_NLD: NDArray[np.float32]
    ) -> None:
        """See `RejectedReader`."""
        text = session.tokens
        self.given.append(Given(session=session, text=text, states_TLD=states_NLD, rejected=nodes))


@dataclass
class Pair:
    """One target, one drafter, nothing between them but bytes."""

    target_table: Table
    draft_table: Table
    seed: int = 0
    """Of the drafter's draws."""
    lockstep: bool = False
    mode: Mode | None = None
    """Decides when the drafter rests; None: never."""
    max_context: int = 4096
    prefill_chunk: int = 256
    """Of the target."""
    drafts: int = 8
    """Draft passes for each pass of the target, unless a step says otherwise."""
    meddle: Callable[[Wire], Wire] = lambda wire: wire
    """What the network does to the drafter's messages of one step."""
    is_lost: Callable[[], bool] = lambda: False
    """Whether a verdict is lost on its way to the drafter."""
    lengths: Lengths | None = None
    """Length policies that the drafter offers."""
    feedback: FeedbackRequest | None = None
    """What the drafter asks for beyond tokens; what it was given is in `given`."""
    feature_bytes: int = 1 << 20
    """About the largest frame of features."""
    meddle_features: Callable[[list[bytes]], list[bytes]] = lambda frames: frames
    """What the network does to the frames of one pass."""
    given: list[Given] = field(default_factory=list)
    method: tuple[DraftSessions, Drafter] | None = None
    """Drafts in place of a drafter with the table."""
    now: float = 0.0
    outputs: list[Output] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    ended: list[Ended | AttachRefused] = field(default_factory=list)
    wanted: list[bool] = field(default_factory=list)
    """What coordinators were told of whether to attach drafters."""

    def __post_init__(self) -> None:
        settings = TargetSettings(
            name="t",
            incarnation=1,
            model_name="m",
            engine=EngineSettings(model="tabular:x"),
            prefill_chunk=self.prefill_chunk,
            lockstep=self.lockstep,
            adaptive=self.mode is not None,
        )
        room = EngineSettings(
            model="tabular:x", num_slots=16, max_scratch=96, max_context=self.max_context
        )
        with patch.object(next_pass, "Mode", lambda: self.mode or Mode()):
            self.target = TargetWorker(
                TabularEngine(self.target_table, room), settings, self.outputs.extend, self._clock
            )
        self.target.warm_up()
        engine = TabularEngine(self.draft_table, room)
        slots = PrefixSlots(engine)
        width, max_ahead = 4, 64
        sessions = DraftSessions(
            engine.num_slots, num_nodes_of(width, max_ahead, lockstep=self.lockstep)
        )
        generators = iter(np.random.SeedSequence(self.seed).spawn(1000))
        self.sampled = SampledDrafter(
            sessions,
            engine,
            prefill_chunk=64,
            lockstep=self.lockstep,
            new_generator=lambda: np.random.default_rng(next(generators)),
            lengths=self.lengths,
            slots=slots,
        )
        coupled = AutoregressiveDrafter(
            sessions,
            engine,
            width=width,
            max_ahead=max_ahead,
            prefill_chunk=64,
            lockstep=self.lockstep,
            lengths=self.lengths,
            slots=slots,
        )
        drafter = ReadingDrafter(sessions, coupled=coupled, sampled=self.sampled)
        drafter.given = self.given
        core = DraftCore(
            *(self.method or (sessions, drafter)),
            max_ahead=max_ahead,
            bytes_per_token=BYTES_PER_TOKEN,
            lockstep=self.lockstep,
        )
        self.draft = DraftWorker(core, emit=self.reports.append, clock=self._clock)
        self.texts: dict[int, list[int]] = {}
        self.commits: dict[int, list[tuple[int, ...]]] = {}
        """Tokens of each round."""
        self.ends: dict[int, Finished | Failed] = {}
        self.target.post(DrafterJoined(drafter="d"))
        if self.feedback is not None:
            spec = self.target.state.engine.spec
            self.offer = offer_for(
                self.feedback,
                target="t",
                fingerprint=spec.fingerprint,
                num_blocks=spec.num_blocks,
                width=spec.width,
            )
            opened = FeedbackOpened(drafter="d", request=self.feedback, layers=self.offer.layers)
            self.target.post(opened)

    def open(
        self,
        session: int,
        sampling: Sampling,
        speculation: Speculation,
        prompt: Sequence[int] = (1, 2, 0),
        *,
        is_attached: bool = True,
    ) -> None:
        """Opens a session and attaches the drafter."""
        self.texts[session] = []
        self.commits[session] = []
        self.target.post(
            OpenSession(
                owner=SessionOwner(stream=1, session=session),
                group=0,
                prompt=tuple(prompt),
                committed=(),
                sampling=sampling,
                speculation=speculation,
                drafters={"d": 0},
            )
        )
        self.step()
        if is_attached:
            self.attach(session, prompt, sampling, speculation)

    def attach(
        self, session: int, tokens: Sequence[int], sampling: Sampling, speculation: Speculation
    ) -> None:
        """Attaches the drafter to a session whose prompt this is."""
        self.draft.post(
            AttachSession(
                key=Key(LINK, self.handles[session]),
                tokens=tuple(tokens),
                prompt_length=len(tokens),
                sampling=sampling,
                speculation=speculation,
                vocab_size=self.target_table.vocab_size,
            )
        )

    handles: dict[int, int] = field(default_factory=dict)

    def step(self, drafts: int | None = None) -> None:
        """A few draft passes, then one target pass."""
        for _ in range(self.drafts if drafts is None else drafts):
            if not self.draft.run_once():
                break
        wire, self.reports[:] = self.draft_wire(self.reports), []
        for message in self.meddle(wire):
            for event in target_events_of(message, self.target_table.vocab_size):
                self.target.post(event)
        # Not in one statement: the clock goes on while the target works.
        wait_s = self.target.step()
        self.now += wait_s or 0.0
        outputs, self.outputs[:] = self.outputs[:], []
        for output in outputs:
            self.deliver(output)

    def run(self, *, steps: int = 100_000) -> None:
        """Steps until every session is over."""
        for _ in range(steps):
            if len(self.ends) == len(self.texts):
                return
            self.step()
        raise AssertionError(f"sessions still run after {steps} steps")

    def stats(self, session: int) -> Stats:
        """What speculation did in a session that is over."""
        end = self.ends[session]
        assert isinstance(end, Finished), end
        return end.stats

    def _clock(self) -> float:
        self.now += 1e-5
        return self.now

    def draft_wire(self, reports: Sequence[Report]) -> Wire:
        wire: Wire = []
        for report in reports:
            match report:
                case CandidatesSent() | ResyncWanted():
                    wire.append(draft_messages.message_of(report))
                case Ended() | AttachRefused():
                    self.ended.append(report)
        return wire

    def deliver(self, output: Output) -> None:
        match output:
            case Opened():
                self.handles[output.owner.session] = output.handle
            case CommitFrame():
                frame = target_messages.commit_message(output).commits.frame
                for one in commits.decode(frame):
                    self.texts[one.session].extend(one.tokens)
                    self.commits[one.session].append(tuple(one.tokens))
            case Committed():
                self.texts[output.owner.session].extend(output.tokens)
                self.commits[output.owner.session].append(output.tokens)
            case Finished() | Failed():
                self.ends[output.owner.session] = output
            case VerdictsSent():
                if not self.is_lost():
                    self.tell(target_messages.verdict_message(output))
            case Resync() | SessionClosed():
                self.tell(target_messages.drafter_message(output))
            case FeedbackReady():
                frames = [one.data for one in pack(output, self.offer.revision, self.feature_bytes)]
                for frame in self.meddle_features(frames):
                    self.draft.post(
                        FeaturesReceived(
                            link=LINK,
                            revision=self.offer.revision,
                            features=features.decode(frame),
                            num_bytes=len(frame),
                        )
                    )
            case DraftersWanted():
                self.wanted.append(output.is_wanted)

    def tell(self, message: target_pb2.VerdictMessage) -> None:
        arrived = target_pb2.VerdictMessage.FromString(message.SerializeToString())
        event = draft_messages.event_from_proto(arrived, LINK)
        if event is not None:
            self.draft.post(event)


def target_events_of(message: target_pb2.DrafterMessage, vocab_size: int) -> list[Event]:
    arrived = target_pb2.DrafterMessage.FromString(message.SerializeToString())
    if arrived.HasField("resync"):
        resync = arrived.resync
        return [ResyncRequest(drafter="d", handle=resync.handle, length=resync.length)]
    frame = target_messages.candidates_from_proto(arrived.candidates, "d", vocab_size)
    return [
        *([frame] if frame is not None else []),
        *target_messages.frozen_from_proto(arrived.candidates, "d", vocab_size),
    ]


def texts_alone(
    table: Table, samplings: Sequence[Sampling], prompt: Sequence[int] = (1, 2, 0)
) -> list[list[int]]:
    """Texts of plain decoding, each made once for all tests of a process."""
    law = table.log_probs.tobytes()
    keys = [(law, tuple(prompt), repr(sampling)) for sampling in samplings]
    if missing := [place for place, key in enumerate(keys) if key not in _ALONE]:
        alone = Pair(table, table)
        for place in missing:
            alone.open(
                place, samplings[place], Speculation(enabled=False), prompt, is_attached=False
            )
        alone.run()
        _ALONE.update({keys[place]: tuple(alone.texts[place]) for place in missing})
    return [list(_ALONE[key]) for key in keys]


_ALONE: dict[tuple[bytes, tuple[int, ...], str], tuple[int, ...]] = {}


def blurred(table: Table, other: Table, share: float) -> Table:
    """A draft model: the target's distributions, mixed with others."""
    probs = (1.0 - share) * np.exp(table.log_probs) + share * np.exp(other.log_probs)
    return replace(table, log_probs=np.log(probs), name="blurred")
