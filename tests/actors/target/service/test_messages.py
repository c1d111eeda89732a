"""Events and outputs of the worker, to the wire and back."""

from __future__ import annotations

import numpy as np
import pytest
from tests.actors.target.candidates.test_frozen_pool import tree as frozen_tree

from outrider.actors.exchange import candidates, commits, verdicts
from outrider.actors.exchange.candidates import Candidates
from outrider.actors.exchange.commits import Commits
from outrider.actors.exchange.request_options_wire import sampling_to_proto, speculation_to_proto
from outrider.actors.exchange.session_drafters import places_to_proto
from outrider.actors.exchange.verdicts import TargetActivity, Verdicts
from outrider.actors.frozen import frozen_candidates
from outrider.actors.frozen.frozen_candidates import FrozenBatch, FrozenCandidates
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.target.service.target_messages import (
    candidates_from_proto,
    commit_message,
    drafter_message,
    frozen_from_proto,
    open_from_proto,
    session_event,
    verdict_message,
)
from outrider.actors.target.state.target_events import (
    CommitFrame,
    Committed,
    Failed,
    Finish,
    Finished,
    Logprob,
    Opened,
    Resync,
    SessionClosed,
    SessionOwner,
    Stats,
    VerdictsSent,
)
from outrider.v1 import generation_pb2, target_pb2

OWNER = SessionOwner(stream=3, session=8)


def test_open_comes_through_whole() -> None:
    """Every option of a session reaches the worker."""
    sampling = Sampling(seed=2**64 - 1, max_tokens=9, temperature=0.5, logit_bias={3: 1.5})
    speculation = Speculation(verifier="exact_match", max_nodes=3)
    message = target_pb2.OpenSession(
        session=8,
        group=4,
        prompt=[1, 2],
        committed=[3],
        sampling=sampling_to_proto(sampling),
        speculation=speculation_to_proto(speculation),
        drafters=places_to_proto({"a": 0, "b": 1, "c": 1}),
        request_id="r",
    )
    event = open_from_proto(message, stream=3)
    assert (event.owner, event.group, event.request_id) == (OWNER, 4, "r")
    assert (event.prompt, event.committed) == ((1, 2), (3,))
    assert event.drafters == {"a": 0, "b": 1, "c": 1}
    message.drafters[1].place = commits.MAX_PLACE + 1
    with pytest.raises(ValueError, match="place"):
        open_from_proto(message, stream=3)
    assert (event.sampling, event.speculation) == (sampling, speculation)


def some_candidates(token: int) -> Candidates:
    """One node for one session."""
    return Candidates(
        handles_E=np.array([1], np.uint64),
        lengths_E=np.array([3]),
        hashes_E=np.array([2], np.uint64),
        numbers_E=np.array([7]),
        starts_E=np.array([0, 1]),
        tokens_N=np.array([token]),
        parents_N=np.array([-1]),
        estimates_N=np.array([200], np.uint8),
    )


def test_candidates_come_through() -> None:
    """With their size, which is counted; a batch of frozen trees only holds none."""
    frame = candidates.encode(some_candidates(7))
    event = candidates_from_proto(target_pb2.CandidateBatch(frame=frame), "d", 8)
    assert event is not None
    assert (event.drafter, event.candidates.num_bytes) == ("d", len(frame))
    assert isinstance(event.candidates, candidates.Candidates)
    assert event.candidates.tokens_N.tolist() == [7]
    assert candidates_from_proto(target_pb2.CandidateBatch(), "d", 8) is None


def test_frames_that_do_not_fit_the_target_are_refused() -> None:
    """Before anything is grafted."""
    for frame in (candidates.encode(some_candidates(8)), b"no frame"):
        with pytest.raises(ValueError, match=r"frame|not among the target's 8"):
            candidates_from_proto(target_pb2.CandidateBatch(frame=frame), "d", 8)


@pytest.mark.parametrize(
    ("tokens", "parents", "word"),
    [
        ([1, 8], [0, 1], "token 8 is not among the target's 8"),
        ([2**32 - 1], [0], "not among the target's 8"),
        ([0] * 65_537, [0] * 65_537, "at most 65536"),
        ([1], [0], "frame"),
    ],
)
def test_malformed_frozen_trees_are_refused(
    tokens: list[int], parents: list[int], word: str
) -> None:
    """Arrays that do not fit together are never tested."""
    tree = target_pb2.FrozenCandidates(handle=1, tokens=tokens, parents=parents)
    with pytest.raises(ValueError, match=word):
        frozen_from_proto(target_pb2.CandidateBatch(frozen=[tree], laws=b"no frame"), "d", 8)


def test_second_trees_of_a_session_come_by_themselves() -> None:
    """What takes them in looks at each session once; none is lost, and the bytes are those of the message."""
    trees = [
        FrozenCandidates(
            handle=handle, base_length=5, base_hash=9, round=number, frozen=frozen_tree((1,))
        )
        for number, handle in enumerate((3, 4, 3, 5, 3))
    ]
    message = frozen_candidates.encode(trees)
    events = [event.candidates for event in frozen_from_proto(message, "d", 40)]
    found = [event for event in events if isinstance(event, FrozenBatch)]
    assert [[tree.round for tree in one.trees_E] for one in found] == [[0, 1, 3], [2], [4]]
    size = sum(one.num_bytes for one in found)
    # Tags and lengths of the message are nobody's.
    assert 0.8 * message.ByteSize() < size <= message.ByteSize()
    assert frozen_from_proto(target_pb2.CandidateBatch(), "d", 8) == []


def test_frames_of_a_pass_come_through() -> None:
    """To coordinators and drafters."""
    told = Commits(
        sessions_E=np.array([3], np.uint64),
        epochs_E=np.array([2]),
        starts_E=np.array([0, 2]),
        tokens_T=np.array([5, 6]),
        origins_T=np.array([1, -1]),
    )
    event = commit_message(CommitFrame(stream=1, commits=told))
    assert commits.decode(event.commits.frame) == [(3, 2, [5, 6], [1, -1])]
    nothing = np.zeros(0, np.int64)
    ours = Verdicts(
        handles_E=nothing.astype(np.uint64),
        epochs_E=nothing,
        lengths_E=nothing,
        hashes_E=nothing.astype(np.uint64),
        credits_E=nothing,
        seen_E=nothing,
        starving_E=nothing.astype(np.bool_),
        starts_E=np.zeros(1, np.int64),
        tokens_T=nothing,
        root_starts_E=np.zeros(1, np.int64),
        roots_T=nothing,
        target=TargetActivity(pass_s=0.25),
    )
    message = verdict_message(VerdictsSent(drafter="d", verdicts=ours))
    assert verdicts.decode(message.verdicts.frame).target.pass_s == 0.25


def test_committed_names_origins_and_logprobs() -> None:
    """Each token says who proposed it, and its log-probability if that was asked for."""
    output = Committed(
        owner=OWNER,
        epoch=2,
        tokens=(5, 6),
        origins=(1, -1),
        logprobs=(
            Logprob(chosen=-0.5, top_ids=(5, 7), top=(-0.5, -1.5)),
            Logprob(chosen=-2.0, top_ids=(), top=()),
        ),
    )
    event = session_event(output).committed
    assert (event.session, event.epoch) == (8, 2)
    first, last = event.tokens
    assert (first.id, first.origin, first.drafter) == (5, generation_pb2.ORIGIN_DRAFTER, 1)
    assert [(t.id, t.logprob) for t in first.top_logprobs] == [(5, -0.5), (7, -1.5)]
    assert (last.origin, last.HasField("drafter"), last.logprob) == (
        generation_pb2.ORIGIN_TARGET,
        False,
        -2.0,
    )


def test_finished_reports_what_speculation_did() -> None:
    """Counts, means and times."""
    stats = Stats(rounds=3, plain_passes=1, tokens=10, accepted=6, prefill_s=0.5)
    event = session_event(Finished(owner=OWNER, reason=Finish.LENGTH, stats=stats)).finished
    assert event.reason == generation_pb2.FINISH_REASON_LENGTH
    assert event.speculation.mean_tokens_per_pass == 2.5
    assert event.timing.prefill_s == 0.5


def test_failed_carries_a_status_code() -> None:
    """The code is gRPC's number."""
    event = session_event(Failed(owner=OWNER, code="OUT_OF_RANGE", message="why")).failed
    assert (event.code, event.message) == (11, "why")


def test_opened_and_drafter_messages() -> None:
    """Handles and resyncs come through."""
    assert session_event(Opened(owner=OWNER, handle=9)).opened.handle == 9
    resync = Resync(
        drafter="d", handle=9, epoch=1, base_length=5, base_hash=7, tokens=(1,), credits=3
    )
    assert drafter_message(resync).resync.base.length == 5
    assert drafter_message(SessionClosed(drafter="d", handle=9)).closed.handle == 9
