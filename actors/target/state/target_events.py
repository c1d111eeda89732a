"""What goes into the target worker and what comes out of it. Plain values; the servicer turns them into messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from outrider.actors.exchange.commits import Commits
from outrider.actors.exchange.features import RejectedNodes
from outrider.actors.exchange.feedback_request import FeedbackRequest
from outrider.actors.exchange.verdicts import Verdicts
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.target.candidates.candidate_store import Arrived
from outrider.v1 import trace_pb2


class Finish(StrEnum):
    """Why a session ended."""

    STOP_TOKEN = "stop_token"
    """End-of-text or one of the request's stop tokens was drawn."""

    LENGTH = "length"
    """`max_tokens` was reached."""

    ABORTED = "aborted"
    """The coordinator closed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOwner:
    """Who opened a session: one coordinator stream, and the coordinator's number on it."""

    stream: int
    """Number of the stream at this target."""

    session: int
    """The coordinator's number of the session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSession:
    """Opens a session."""

    owner: SessionOwner
    group: int
    prompt: Sequence[int]
    committed: Sequence[int]
    sampling: Sampling
    speculation: Speculation
    drafters: Mapping[str, int]
    """Whose candidates are accepted, and the place of each actor's drafter among the request's."""
    request_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseSession:
    """Ends a session; unknown ones are ignored."""

    owner: SessionOwner


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseStream:
    """Ends every session of a coordinator stream that broke."""

    stream: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Steer:
    """Changes the drafters of a session."""

    owner: SessionOwner
    drafters: Mapping[str, int]
    """As of `OpenSession`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterJoined:
    """A drafter's stream passed the handshake."""

    drafter: str
    takes_turns: bool = False
    """It computes on the target's device, and stands still while the target's passes run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterLeft:
    """A drafter's stream ended."""

    drafter: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CandidatesReceived:
    """Candidates of several sessions."""

    drafter: str
    candidates: Arrived
    message: trace_pb2.TraceSpan | None = None
    """What it came with, while someone traces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResyncRequest:
    """A drafter asks for the committed tokens from `length` on."""

    drafter: str
    handle: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackOpened:
    """A drafter asks for more than tokens, and was told that it gets it."""

    drafter: str
    request: FeedbackRequest
    layers: tuple[int, ...]
    """The request's, by number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackClosed:
    """A drafter asks for nothing any more."""

    drafter: str


Event = (
    OpenSession
    | CloseSession
    | CloseStream
    | Steer
    | DrafterJoined
    | DrafterLeft
    | CandidatesReceived
    | ResyncRequest
    | FeedbackOpened
    | FeedbackClosed
)


@dataclass(frozen=True, slots=True)
class Stats:
    """What speculation did in one session."""

    rounds: int = 0
    plain_passes: int = 0
    proposed: int = 0
    verified: int = 0
    accepted: int = 0
    stale: int = 0
    tokens: int = 0
    near_ties: int = 0
    candidate_messages: int = 0
    wire_bytes: int = 0
    cached_tokens: int = 0
    reached_by_depth: Sequence[int] = ()
    accepted_by_depth: Sequence[int] = ()
    prefill_s: float = 0.0
    verify_s: float = 0.0
    draft_wait_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Logprob:
    """Log-probabilities at one position, under the model's own distribution."""

    chosen: float
    """Natural log-probability of the token that was drawn."""

    top_ids: tuple[int, ...]
    """The most probable tokens, most probable first."""

    top: tuple[float, ...]
    """Their natural log-probabilities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A session was opened."""

    owner: SessionOwner
    handle: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CommitFrame:
    """Tokens that a pass committed in several sessions of one coordinator stream."""

    stream: int
    commits: Commits


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """Tokens that were committed in a session that wants log-probabilities."""

    owner: SessionOwner
    epoch: int
    tokens: tuple[int, ...]
    origins: tuple[int, ...]
    """For each token the place of the drafter that proposed it among the request's, or -1 for the target."""
    logprobs: tuple[Logprob, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A session ended, by itself or because the coordinator closed it."""

    owner: SessionOwner
    reason: Finish
    stats: Stats


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A session could not be opened, or cannot go on."""

    owner: SessionOwner
    code: str
    """Name of a gRPC status code."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VerdictsSent:
    """What a pass decided, for one drafter."""

    drafter: str
    verdicts: Verdicts


@dataclass(frozen=True, slots=True, kw_only=True)
class Resync:
    """Committed tokens for a drafter that lacks them."""

    drafter: str
    handle: int
    epoch: int
    base_length: int
    base_hash: int
    tokens: tuple[int, ...]
    credits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionClosed:
    """A session is over for a drafter."""

    drafter: str
    handle: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftersWanted:
    """Whether drafters should be attached to sessions, for every coordinator."""

    is_wanted: bool


ReadStates = Callable[[], NDArray[np.uint16]]
"""Waits for hidden states, and gives their bits as bfloat16 numbers. Shape (R, L, D)."""

ReadTops = Callable[[], tuple[NDArray[np.int64], NDArray[np.float32]]]
"""Waits for the likeliest tokens, and gives their ids and log-probabilities. Shapes (R, K)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FeedbackReady:
    """Rows of a pass for a drafter that asked for them. Entry e has rows `starts_E[e]` to `starts_E[e + 1]`; what `Features` says of
    them holds here. On a thread other than the worker's they are read."""

    drafter: str
    handles_E: NDArray[np.uint64]
    firsts_E: NDArray[np.int64]
    starts_E: NDArray[np.int64]
    states: ReadStates | None
    tops: ReadTops | None
    rejected: RejectedNodes | None

    @property
    def num_rows(self) -> int:
        """Rows in all."""
        return int(self.starts_E[-1])


Output = (
    Opened
    | CommitFrame
    | Committed
    | Finished
    | Failed
    | VerdictsSent
    | Resync
    | SessionClosed
    | DraftersWanted
    | FeedbackReady
)
