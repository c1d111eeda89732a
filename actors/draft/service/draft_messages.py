"""The draft worker's events and reports to `outrider.v1` and back. Pure."""

from __future__ import annotations

from collections.abc import Collection

from outrider.actors.draft.state.draft_events import (
    AttachSession,
    CandidatesSent,
    Closed,
    Resynced,
    ResyncWanted,
    SessionKey,
    VerdictsReceived,
)
from outrider.actors.exchange import candidates, verdicts
from outrider.actors.exchange.request_options_wire import (
    sampling_from_proto,
    speculation_from_proto,
)
from outrider.actors.frozen import frozen_candidates
from outrider.actors.speculation.policies import LengthChoice
from outrider.v1 import draft_pb2, target_pb2


def attach_from_proto(
    message: draft_pb2.AttachSession,
    key: SessionKey,
    served: Collection[str],
    lengths: Collection[LengthChoice],
) -> AttachSession:
    """The event of an attach command.

    Args:
        message: The command.
        key: Names the session here.
        served: Verifiers that the drafter can serve.
        lengths: Draft length policies that it can serve.

    Raises:
        ValueError: A field is absent or wrong; the message names it.
    """
    if not message.tokens:
        raise ValueError("tokens is empty; a session begins with at least one prompt token")
    if not 1 <= message.prompt_length <= len(message.tokens):
        raise ValueError(
            f"prompt_length is {message.prompt_length}; it must be 1 to {len(message.tokens)}, the "
            "number of tokens"
        )
    speculation = speculation_from_proto(message.speculation)
    if speculation.verifier not in served:
        raise ValueError(
            f"speculation.verifier is {speculation.verifier}; this drafter serves "
            f"{', '.join(served)}: choose one of these, or another drafter"
        )
    length = speculation.policies.draft_length
    if length not in lengths:
        raise ValueError(
            f"speculation.draft_length is {length}; this drafter serves {', '.join(lengths)}: choose one of these, "
            "or another drafter"
        )
    for name in ("max_nodes", "max_depth"):
        if getattr(speculation, name) < 1:
            raise ValueError(f"speculation.{name} is {getattr(speculation, name)}; at least 1")
    return AttachSession(
        key=key,
        tokens=tuple(message.tokens),
        prompt_length=message.prompt_length,
        sampling=sampling_from_proto(message.sampling),
        speculation=speculation,
        group=message.group,
        tenant=message.tenant,
        request_id=message.request_id,
    )


def event_from_proto(
    message: target_pb2.VerdictMessage, link: int
) -> VerdictsReceived | Resynced | Closed | None:
    """The event of what a target said. A second hello says nothing.

    Raises:
        BadFrame: The verdicts cannot be read.
    """
    match message.WhichOneof("message"):
        case "verdicts":
            return VerdictsReceived(link=link, verdicts=verdicts.decode(message.verdicts.frame))
        case "resync":
            resync = message.resync
            return Resynced(
                key=SessionKey(link, resync.handle),
                epoch=resync.epoch,
                length=resync.base.length,
                hash=resync.base.hash,
                tokens=tuple(resync.tokens),
                credits=resync.credits,
            )
        case "closed":
            return Closed(key=SessionKey(link, message.closed.handle))
    return None


def message_of(report: CandidatesSent | ResyncWanted) -> target_pb2.DrafterMessage:
    """What a report says to the target."""
    if isinstance(report, ResyncWanted):
        return target_pb2.DrafterMessage(
            resync=target_pb2.ResyncRequest(handle=report.key.handle, length=report.length)
        )
    batch = frozen_candidates.encode(report.own_trees)
    if report.candidates is not None:
        batch.frame = candidates.encode(report.candidates)
    return target_pb2.DrafterMessage(candidates=batch)
