"""What reaches a draft worker and what leaves it. Plain data; the wire's forms are made elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

import grpc

from outrider.actors.exchange.candidates import Candidates
from outrider.actors.exchange.features import Features
from outrider.actors.exchange.verdicts import Verdicts
from outrider.actors.exchange.vocabulary import UNBOUNDED
from outrider.actors.frozen.frozen_candidates import FrozenCandidates
from outrider.actors.speculation.options import Sampling, Speculation


@dataclass(frozen=True, slots=True, order=True)
class SessionKey:
    """Names a session at this drafter."""

    link: int
    """Number of the stream to the target, never used twice."""

    handle: int
    """The target's handle of the session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachSession:
    """Begin to draft for a session."""

    key: SessionKey
    tokens: tuple[int, ...]
    """Prompt and committed output, as far as known."""
    prompt_length: int
    sampling: Sampling
    speculation: Speculation
    round_trip_s: float = 0.0
    """Seconds to the target and back, when the stream to it was opened."""
    vocab_size: int = UNBOUNDED
    """Number of the target's token ids; none beyond is proposed."""
    tokenizer: str = ""
    """Fingerprint of the target's tokenizer; empty: it has none."""
    group: int = 0
    """Sessions of one request share it; 0: the request has no other."""
    tenant: int = 0
    """Whose request it is. What is remembered of one is not used for another; 0: clients are not told apart."""
    request_id: str = ""
    """For logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detach:
    """Stop drafting for a session, silently. Idempotent."""

    key: SessionKey


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VerdictsReceived:
    """What one pass of a target committed."""

    link: int
    verdicts: Verdicts


@dataclass(frozen=True, slots=True, kw_only=True)
class Resynced:
    """Committed tokens that end at a base."""

    key: SessionKey
    epoch: int
    length: int
    hash: int
    tokens: tuple[int, ...]
    credits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """The target ended a session for this drafter."""

    key: SessionKey


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLost:
    """The stream to a target broke: all its sessions are over. The server has told their coordinators."""

    link: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FeaturesReceived:
    """What a target's pass knew of committed positions."""

    link: int
    revision: int
    """Of the subscription."""
    features: Features | None
    """None: the frame was none."""
    num_bytes: int
    """Of the frame."""


Event = AttachSession | Detach | VerdictsReceived | Resynced | Closed | LinkLost | FeaturesReceived
"""What reaches a worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """A session was attached."""

    key: SessionKey


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachRefused:
    """A session could not be attached."""

    key: SessionKey
    code: grpc.StatusCode
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A session ended by itself or by a failure."""

    key: SessionKey
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResyncWanted:
    """The worker asks for the committed tokens after the first `length`."""

    key: SessionKey
    length: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CandidatesSent:
    """New candidates for one target."""

    link: int
    candidates: Candidates | None = None
    """Those that may be merged with others."""
    own_trees: tuple[FrozenCandidates, ...] = ()
    """Those that go alone, a session each."""

    @property
    def num_entries(self) -> int:
        """Trees."""
        return len(self.own_trees) + (len(self.candidates.handles_E) if self.candidates else 0)

    @property
    def num_nodes(self) -> int:
        """Candidates in all."""
        own = sum(tree.num_nodes for tree in self.own_trees)
        return own + (self.candidates.num_nodes if self.candidates else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturesTaken:
    """Features were taken in, so that as many more may be sent."""

    link: int
    num_bytes: int


Report = Attached | AttachRefused | Ended | ResyncWanted | CandidatesSent | FeaturesTaken
"""What leaves a worker."""
