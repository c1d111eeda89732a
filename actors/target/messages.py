"""The target worker's events and outputs to `outrider.v1` and back. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import grpc

from outrider.actors.speculation import frame
from outrider.actors.target.events import (
    Candidates,
    Committed,
    Failed,
    Finish,
    Finished,
    FrozenCandidates,
    Open,
    Opened,
    Owner,
    Resync,
    SessionClosed,
    Stats,
    Verdict,
)
from outrider.actors.target.shares import Room
from outrider.actors.wire import sampling_from_proto, speculation_from_proto
from outrider.v1 import generation_pb2, target_pb2, trace_pb2, tree_pb2

MOST_UNITED = 256
"""Events in one message. With the largest of them it stays far below the limit on messages."""

MAX_CANDIDATES = 65_536
"""Nodes of one tree. Far above what credits allow a drafter; a message that is larger is not one of ours."""

_FINISH = {
    Finish.STOP_TOKEN: generation_pb2.FINISH_REASON_STOP_TOKEN,
    Finish.LENGTH: generation_pb2.FINISH_REASON_LENGTH,
    Finish.ABORTED: generation_pb2.FINISH_REASON_ABORTED,
}


def open_from_proto(message: target_pb2.OpenSession, stream: int) -> Open:
    """The event of an open command.

    Raises:
        ValueError: A field is absent or unknown.
    """
    return Open(
        owner=Owner(stream=stream, session=message.session),
        group=message.group,
        prompt=tuple(message.prompt),
        committed=tuple(message.committed),
        sampling=sampling_from_proto(message.sampling),
        speculation=speculation_from_proto(message.speculation),
        drafters=tuple(message.drafters),
        request_id=message.request_id,
    )


def candidates_from_proto(
    message: target_pb2.Candidates,
    drafter: str,
    vocab_size: int,
    traced: trace_pb2.TraceMessage | None = None,
) -> Candidates:
    """The event of one entry of a candidate batch, checked completely: what is returned can be grafted and verified.

    Args:
        message: The entry.
        drafter: Who sent it.
        vocab_size: Of the target; every token id is below it.
        traced: What names the batch, while someone traces.

    Raises:
        ValueError: The tree is too large, its arrays do not fit together, or a token id is none of the target's.
    """
    tree = message.tree
    _check_tokens(tree.tokens, drafter, vocab_size)
    tokens, parents, estimates = list(tree.tokens), list(tree.parents), tree.estimates
    if len(parents) != len(tokens) or (estimates and len(estimates) != len(tokens)):
        raise ValueError(
            f"candidate tree of {drafter}: {len(tokens)} tokens, {len(parents)} parents and "
            f"{len(estimates)} estimates; they must be as many"
        )
    for index, parent in enumerate(parents):
        if parent > index:
            raise ValueError(
                f"candidate tree of {drafter}: node {index} has parent {parent}; a parent must "
                "be an earlier node plus one, or 0"
            )
    return Candidates(
        drafter=drafter,
        handle=message.handle,
        base_length=message.base.length,
        base_hash=message.base.hash,
        tokens=tokens,
        parents=parents,
        estimates=estimates,
        num_bytes=message.ByteSize(),
        number=message.number,
        message=traced,
    )


def frozen_from_proto(
    message: target_pb2.FrozenCandidates,
    drafter: str,
    vocab_size: int,
    traced: trace_pb2.TraceMessage | None = None,
) -> FrozenCandidates:
    """The event of one frozen tree of a candidate batch. Arguments: as `candidates_from_proto`.

    Raises:
        ValueError: The tree is none, or its frame does not fit it or the vocabulary.
    """
    tree = message.tree
    _check_tokens(tree.tokens, drafter, vocab_size)
    return FrozenCandidates(
        drafter=drafter,
        handle=message.handle,
        base_length=message.base.length,
        base_hash=message.base.hash,
        round=message.round,
        frozen=frame.decode(
            tree.frame,
            tokens_N=tree.tokens,
            parents_N=[parent - 1 for parent in tree.parents],
            vocab_size=vocab_size,
        ),
        num_bytes=message.ByteSize(),
        message=traced,
    )


def _check_tokens(tokens: Sequence[int], drafter: str, vocab_size: int) -> None:
    if len(tokens) > MAX_CANDIDATES:
        raise ValueError(
            f"candidate tree of {drafter}: {len(tokens)} nodes; at most {MAX_CANDIDATES} are taken"
        )
    greatest = max(tokens, default=0)
    if greatest >= vocab_size:
        raise ValueError(
            f"candidate tree of {drafter}: token {greatest} is none of the target's {vocab_size}"
        )


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


def shared_room(room: Room) -> target_pb2.SessionEvent:
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
    tokens = [
        generation_pb2.Token(id=token, origin=generation_pb2.ORIGIN_TARGET)
        if origin < 0
        else generation_pb2.Token(id=token, origin=generation_pb2.ORIGIN_DRAFTER, drafter=origin)
        for token, origin in zip(output.tokens, output.origins, strict=True)
    ]
    if output.logprobs is not None:
        for token, logprob in zip(tokens, output.logprobs, strict=True):
            token.logprob = logprob.chosen
            token.top_logprobs.extend(
                generation_pb2.TokenLogprob(id=top_id, logprob=value)
                for top_id, value in zip(logprob.top_ids, logprob.top, strict=True)
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


def verdict_bytes(
    handle: int,
    epoch: int,
    length: int,
    tokens: Sequence[int],
    credits: int,
    roots: Sequence[int] = (),
    seen: int = 0,
    wait_s: float = 0.0,
) -> int:
    """Size of a verdict on the wire without framing; `starving` counted as set. Counted here, because building the
    message twice would cost more than sending it."""
    ids = sum(map(_varint_bytes, tokens))
    base = 1 + _varint_bytes(length) + 9
    given = (handle, epoch, credits, seen, _microseconds(wait_s))
    numbers = sum(1 + _varint_bytes(number) for number in given if number)
    own = 2 + sum(map(_varint_bytes, roots)) if roots else 0
    return numbers + (2 + base) + (2 + ids) + 2 + own


def _microseconds(seconds: float) -> int:
    return int(seconds * 1e6)


def _varint_bytes(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)


def verdict_batch(verdicts: Sequence[Verdict]) -> target_pb2.VerdictMessage:
    """What a drafter is told after a pass."""
    return target_pb2.VerdictMessage(
        verdicts=target_pb2.VerdictBatch(
            entries=[
                target_pb2.Verdict(
                    handle=v.handle,
                    epoch=v.epoch,
                    base=tree_pb2.Base(length=v.base_length, hash=v.base_hash),
                    tokens=v.tokens,
                    credits=v.credits,
                    starving=v.starving,
                    roots=v.roots,
                    seen=v.seen,
                    wait_us=_microseconds(v.wait_s),
                )
                for v in verdicts
            ],
            pass_us=_microseconds(verdicts[0].pass_s),
        )
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
