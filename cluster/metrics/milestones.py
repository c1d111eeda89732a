"""When what happened to one request, as far as its coordinator sees it: what its spans are made of.

Times are nanoseconds of the recorder's clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from outrider.v1 import generation_pb2


@dataclass(frozen=True, slots=True)
class RoundTimes:
    """One message with tokens to the client: what one round committed, or several if the client is slow."""

    end_ns: int
    num_tokens: int


@dataclass(slots=True)
class SequenceTimes:
    """One sequence of a request."""

    queued_ns: int | None = None
    """When it began to wait for a slot."""
    admitted_ns: int | None = None
    opened_ns: int | None = None
    """When its target had opened its first session."""
    target: str = ""
    rounds: list[RoundTimes] = field(default_factory=list)
    """The first ones."""
    num_tokens: int = 0
    last_ns: int | None = None
    """When its last tokens left."""
    completion: generation_pb2.Completion | None = None


@dataclass(slots=True)
class Milestones:
    """One request."""

    request_id: str
    began_ns: int
    """When it came."""
    prompt_tokens: int = 0
    parent: Mapping[str, str] = field(default_factory=dict)
    """What the client said of the trace that the request is part of; see `request_spans`."""
    sequences: defaultdict[int, SequenceTimes] = field(
        default_factory=lambda: defaultdict(SequenceTimes)
    )
