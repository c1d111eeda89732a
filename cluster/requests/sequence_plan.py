"""What one sequence is to do, and what target, drafters and client are told of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from outrider.actors.exchange.request_options_wire import sampling_to_proto, speculation_to_proto
from outrider.actors.exchange.session_drafters import places_to_proto
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.cluster.requests.admission import Ticket
from outrider.cluster.requests.session import Session
from outrider.cluster.requests.session_commands import Complete
from outrider.cluster.requests.statistics import PartCounts, merge_stats, merge_timing
from outrider.v1 import draft_pb2, generation_pb2, target_pb2


class SessionPlace(Protocol):
    """One start of a target."""

    @property
    def address(self) -> str:
        """Where it listens."""
        ...

    @property
    def incarnation(self) -> int:
        """Which start."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SequencePlan:
    """What one sequence is to do."""

    request: int
    """Number of the request at this coordinator."""

    index: int
    """Which of its sequences."""

    request_id: str
    group: int
    tenant: int
    """Whose request it is, for what drafters remember; 0: clients are not told apart."""
    fingerprint: str
    """Of the model that was admitted; no other goes on with the text."""
    prompt: tuple[int, ...]
    sampling: Sampling
    speculation: Speculation
    drafters: tuple[str, ...]
    """Of the configuration; any replica drafts for them."""
    arrived_s: float
    """When the request arrived, on the monotonic clock."""

    @property
    def ticket(self) -> Ticket:
        """Its place in the queue."""
        return Ticket(request=self.request, index=self.index)


def open_session(
    plan: SequencePlan, *, session: int, committed: Sequence[int], accepted: Mapping[str, int]
) -> target_pb2.OpenSession:
    """What a target is asked for.

    Args:
        plan: The sequence.
        session: Its number at the target.
        committed: Tokens that it has already.
        accepted: Whose candidates it takes: the place of each replica's drafter.
    """
    return target_pb2.OpenSession(
        session=session,
        group=plan.group,
        prompt=plan.prompt,
        committed=committed,
        sampling=sampling_to_proto(plan.sampling),
        speculation=speculation_to_proto(plan.speculation),
        drafters=places_to_proto(accepted),
        request_id=plan.request_id,
    )


def attach_session(
    plan: SequencePlan, target: SessionPlace, *, session: int, handle: int, committed: Sequence[int]
) -> draft_pb2.AttachSession:
    """What a drafter is asked for.

    Args:
        plan: The sequence.
        target: Where it is decoded.
        session: Its number.
        handle: The target's name for it.
        committed: Tokens that it has already.
    """
    return draft_pb2.AttachSession(
        session=session,
        target_address=target.address,
        target_incarnation=target.incarnation,
        handle=handle,
        tokens=(*plan.prompt, *committed),
        prompt_length=len(plan.prompt),
        sampling=sampling_to_proto(plan.sampling),
        speculation=speculation_to_proto(plan.speculation),
        group=plan.group,
        tenant=plan.tenant,
        request_id=plan.request_id,
    )


def completion(
    plan: SequencePlan,
    session: Session,
    command: Complete,
    *,
    admitted_s: float | None,
    first_token_s: float | None,
    now_s: float,
) -> generation_pb2.GenerateResponse:
    """What a client is told at the end. Times are on the monotonic clock; None: it did not come to that.

    Args:
        plan: The sequence.
        session: What became of it.
        command: Why it ended.
        admitted_s: When it had its first slot.
        first_token_s: When its first text left.
        now_s: The present.
    """
    stats = merge_stats(
        part.stats() if isinstance(part, PartCounts) else part for part in session.parts
    )
    return generation_pb2.GenerateResponse(
        index=plan.index,
        completion=generation_pb2.Completion(
            finish_reason=command.reason,
            stop=command.stop,
            usage=generation_pb2.Usage(
                prompt_tokens=len(plan.prompt),
                completion_tokens=len(session.output),
                cached_tokens=session.cached_tokens,
            ),
            speculation=stats,
            timing=merge_timing(
                session.timings,
                queue_s=(admitted_s or now_s) - plan.arrived_s,
                first_token_s=(first_token_s or now_s) - plan.arrived_s,
                total_s=now_s - plan.arrived_s,
            ),
        ),
    )
