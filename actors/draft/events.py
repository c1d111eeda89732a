"""What reaches a draft worker and what leaves it. Plain data; the wire's forms are made elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

import grpc

from outrider.actors.draft.rounds import FrozenNews
from outrider.actors.draft.tree import TreeNews
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.vocabulary import UNBOUNDED


@dataclass(frozen=True, slots=True, order=True)
class SessionKey:
    """Names a session at this drafter."""

    link: int
    """Number of the stream to the target, never used twice."""

    handle: int
    """The target's handle of the session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attach:
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
    request_id: str = ""
    """For logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detach:
    """Stop drafting for a session, silently. Idempotent."""

    key: SessionKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one round committed."""

    key: SessionKey
    epoch: int
    length: int
    """Number of committed tokens after the round."""
    hash: int
    """Rolling hash of those."""
    tokens: tuple[int, ...]
    """Tokens of this round."""
    credits: int
    """Nodes that may have been sent below the base, at most."""
    starving: bool = False
    """The target had no candidate of this drafter below the base."""
    pass_s: float = 0.0
    """Seconds that the pass took; the next one has begun and will take about as long."""
    roots: tuple[int, ...] = ()
    """The target's own candidates for the next token, the likeliest first."""
    seen: int = 0
    """Number of the last message of candidates that the target had taken in; 0: none."""
    wait_s: float = 0.0
    """Seconds for which the target waits for our next message before its next pass, at most; 0: not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resync:
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


Event = Attach | Detach | Verdict | Resync | Closed | LinkLost
"""What reaches a worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """A session was attached."""

    key: SessionKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionNews:
    """New candidates of one session."""

    handle: int
    length: int
    """Length of the base."""
    hash: int
    """Hash of the base."""
    tree: TreeNews
    """Candidates below that base; none if the session's verifier tests frozen trees."""
    frozen: tuple[FrozenNews, ...] = ()
    """Frozen trees, each with its own base."""
    number: int = 0
    """Of the message with `tree` among those of the session, from 1."""

    @property
    def num_nodes(self) -> int:
        """Number of candidates."""
        return len(self.tree.tokens) + sum(one.frozen.tree.num_nodes for one in self.frozen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafted:
    """New candidates for one target."""

    link: int
    entries: list[SessionNews]


Report = Attached | Refused | Ended | ResyncWanted | Drafted
"""What leaves a worker."""
