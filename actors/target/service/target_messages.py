"""The target worker's events and outputs to `outrider.v1` and back. Pure."""

from __future__ import annotations

import grpc

from outrider.actors.exchange import candidates, commits, verdicts
from outrider.actors.exchange.request_options_wire import (
    sampling_from_proto,
    speculation_from_proto,
)
from outrider.actors.exchange.session_drafters import places_from_proto
from outrider.actors.frozen import frozen_candidates
from outrider.actors.target.service.slot_shares import SharedRoom
from outrider.actors.target.state.tally import TargetTally
from outrider.actors.target.state.target_events import (
    CandidatesReceived,
    CommitFrame,
    Committed,
    Failed,
    Finish,
    Finished,
    Opened,
    OpenSession,
    Resync,
    SessionClosed,
    SessionOwner,
    Stats,
    VerdictsSent,
)
from outrider.v1 import generation_pb2, target_pb2, trace_pb2, tree_pb2

MOST_UNITED = 256
"""Events in one message. With the largest of them it stays far below the limit on messages."""

_FINISH = {
    Finish.STOP_TOKEN: generation_pb2.FINISH_REASON_STOP_TOKEN,
    Finish.LENGTH: generation_pb2.FINISH_REASON_LENGTH,
    Finish.ABORTED: generation_pb2.FINISH_REASON_ABORTED,
}


def open_from_proto(message: target_pb2.OpenSession, stream: int) -> OpenSession:
    """The event of an open command.

    Raises:
        ValueError: A field is absent or unknown.
    """
    return OpenSession(
        owner=SessionOwner(stream=stream, session=message.session),
        group=message.group,
        prompt=tuple(message.prompt),
        committed=tuple(message.committed),
        sampling=sampling_from_proto(message.sampling),
        speculation=speculation_from_proto(message.speculation),
        drafters=places_from_proto(message.drafters),
        request_id=message.request_id,
    )


def candidates_from_proto(
    message: target_pb2.CandidateBatch,
    drafter: str,
    vocab_size: int,
    traced: trace_pb2.TraceSpan | None = None,
) -> CandidatesReceived | None:
    """The event of a candidate batch, checked completely: what is returned can be grafted and verified.

    Args:
        message: The batch.
        drafter: Who sent it.
        vocab_size: Of the target; every token id is below it.
        traced: What names the batch, while someone traces.

    Returns:
        None if there are only frozen trees in it.

    Raises:
        ValueError: The frame cannot be read, or the target has no such token id.
    """
    if not message.frame:
        return None
    found = candidates.decode(message.frame, vocab_size)
    return CandidatesReceived(drafter=drafter, candidates=found, message=traced)


def frozen_from_proto(
    message: target_pb2.CandidateBatch,
    drafter: str,
    vocab_size: int,
    traced: trace_pb2.TraceSpan | None = None,
) -> list[CandidatesReceived]:
    """The events of the frozen trees of a candidate batch; arguments as in `candidates_from_proto`. One, but for second trees of a session.

    Raises:
        ValueError: They are no trees, or their frame does not fit them or the vocabulary.
    """
    return [
        CandidatesReceived(drafter=drafter, candidates=found, message=traced)
        for found in frozen_candidates.decode(message, vocab_size)
    ]


def session_event(output: Opened | Committed | Finished | Failed) -> target_pb2.SessionEvent:
    """What a coordinator is told."""
    session = output.owner.session
    match output:
        case Committed():
            return target_pb2.SessionEvent(
                committed=target_pb2.SessionCommitted(
                    session=session, epoch=output.epoch, tokens=_tokens(output)
                )
            )
        case Opened():
            return target_pb2.SessionEvent(
                opened=target_pb2.SessionOpened(session=session, handle=output.handle)
            )
        case Finished():
            return target_pb2.SessionEvent(
                finished=target_pb2.SessionFinished(
                    session=session,
                    reason=_FINISH[output.reason],
                    speculation=stats_to_proto(output.stats),
                    timing=generation_pb2.Timing(
                        prefill_s=output.stats.prefill_s,
                        draft_wait_s=output.stats.draft_wait_s,
                        verify_s=output.stats.verify_s,
                    ),
                    cached_tokens=output.stats.cached_tokens,
                )
            )
        case Failed():
            return target_pb2.SessionEvent(
                failed=target_pb2.SessionFailed(
                    session=session,
                    code=getattr(grpc.StatusCode, output.code).value[0],
                    message=output.message,
                )
            )


def drafters_wanted(is_wanted: bool) -> target_pb2.SessionEvent:
    """Whether drafters should be attached to sessions."""
    return target_pb2.SessionEvent(drafters_wanted=target_pb2.DraftersWanted(is_wanted=is_wanted))


def shared_room(room: SharedRoom) -> target_pb2.SessionEvent:
    """What other coordinators hold."""
    return target_pb2.SessionEvent(
        room=target_pb2.SharedRoom(
            coordinators=room.coordinators,
            held_by_others=room.held_by_others,
            is_contended=room.is_contended,
        )
    )


def several(events: list[target_pb2.SessionEvent]) -> list[target_pb2.SessionEvent]:
    """The same events in as few messages as may be."""
    if len(events) == 1:
        return events
    return [
        target_pb2.SessionEvent(
            several=target_pb2.SessionEvents(events=events[start : start + MOST_UNITED])
        )
        for start in range(0, len(events), MOST_UNITED)
    ]


def _tokens(output: Committed) -> list[generation_pb2.Token]:
    tokens = []
    for token, origin, logprob in zip(output.tokens, output.origins, output.logprobs, strict=True):
        is_own = origin < 0
        tokens.append(
            generation_pb2.Token(
                id=token,
                origin=generation_pb2.ORIGIN_TARGET if is_own else generation_pb2.ORIGIN_DRAFTER,
                drafter=None if is_own else origin,
                logprob=logprob.chosen,
                top_logprobs=[
                    generation_pb2.TokenLogprob(id=top_id, logprob=value)
                    for top_id, value in zip(logprob.top_ids, logprob.top, strict=True)
                ],
            )
        )
    return tokens


def stats_to_proto(stats: Stats) -> generation_pb2.SpeculationStats:
    """What speculation did."""
    passes = stats.rounds + stats.plain_passes
    return generation_pb2.SpeculationStats(
        rounds=stats.rounds,
        plain_passes=stats.plain_passes,
        proposed=stats.proposed,
        verified=stats.verified,
        accepted=stats.accepted,
        stale=stats.stale,
        reached_by_depth=stats.reached_by_depth,
        accepted_by_depth=stats.accepted_by_depth,
        mean_tokens_per_pass=stats.tokens / passes if passes else 0.0,
        near_ties=stats.near_ties,
        candidate_messages=stats.candidate_messages,
        wire_bytes=stats.wire_bytes,
    )


def verdict_message(frame: VerdictsSent) -> target_pb2.VerdictMessage:
    """What a drafter is told after a pass."""
    return target_pb2.VerdictMessage(
        verdicts=target_pb2.VerdictBatch(frame=verdicts.encode(frame.verdicts))
    )


def commit_message(frame: CommitFrame) -> target_pb2.SessionEvent:
    """What a coordinator is told after a pass."""
    return target_pb2.SessionEvent(
        commits=target_pb2.CommitBatch(frame=commits.encode(frame.commits))
    )


def drafter_message(output: Resync | SessionClosed) -> target_pb2.VerdictMessage:
    """What else a drafter is told."""
    match output:
        case Resync():
            return target_pb2.VerdictMessage(
                resync=target_pb2.Resync(
                    handle=output.handle,
                    epoch=output.epoch,
                    base=tree_pb2.Base(length=output.base_length, hash=output.base_hash),
                    tokens=output.tokens,
                    credits=output.credits,
                )
            )
        case SessionClosed():
            return target_pb2.VerdictMessage(closed=target_pb2.SessionClosed(handle=output.handle))


def drafter_counts(tally: TargetTally) -> list[target_pb2.DrafterCounts]:
    """What became of each drafter's candidates, and what it was told beyond tokens."""
    found = {
        name: target_pb2.DrafterCounts(name=name, verified=one.verified, accepted=one.accepted)
        for name, one in tally.drafters.copy().items()
    }
    for name, told in tally.feedback.copy().items():
        counts = found.setdefault(name, target_pb2.DrafterCounts(name=name))
        counts.feedback_bytes, counts.feedback_dropped = told.num_bytes, told.dropped_rows
    return list(found.values())
