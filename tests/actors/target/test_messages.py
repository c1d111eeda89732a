"""Events and outputs of the worker, to the wire and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.actors.speculation.options import Sampling, Speculation, Verifier
from outrider.actors.target.events import (
    Committed,
    Failed,
    Finish,
    Finished,
    Logprob,
    Opened,
    Owner,
    Resync,
    SessionClosed,
    Stats,
    Verdict,
)
from outrider.actors.target.messages import (
    candidates_from_proto,
    drafter_message,
    open_from_proto,
    session_event,
    verdict_batch,
    verdict_bytes,
)
from outrider.actors.wire import sampling_to_proto, speculation_to_proto
from outrider.v1 import generation_pb2, target_pb2, tree_pb2

OWNER = Owner(stream=3, session=8)


def test_open_comes_through_whole() -> None:
    """Every option of a session reaches the worker."""
    sampling = Sampling(seed=2**64 - 1, max_tokens=9, temperature=0.5, logit_bias={3: 1.5})
    speculation = Speculation(verifier=Verifier.EXACT_MATCH, max_nodes=3)
    message = target_pb2.OpenSession(
        session=8,
        group=4,
        prompt=[1, 2],
        committed=[3],
        sampling=sampling_to_proto(sampling),
        speculation=speculation_to_proto(speculation),
        drafters=["a", "b"],
        request_id="r",
    )
    event = open_from_proto(message, stream=3)
    assert (event.owner, event.group, event.request_id) == (OWNER, 4, "r")
    assert (event.prompt, event.committed, event.drafters) == ((1, 2), (3,), ("a", "b"))
    assert (event.sampling, event.speculation) == (sampling, speculation)


@pytest.mark.parametrize(
    ("tree", "word"),
    [
        (tree_pb2.CandidateTree(tokens=[1, 2], parents=[0]), "as many"),
        (tree_pb2.CandidateTree(tokens=[1], parents=[0], estimates=b"12"), "as many"),
        (tree_pb2.CandidateTree(tokens=[1, 2], parents=[0, 2]), "earlier"),
        (
            tree_pb2.CandidateTree(tokens=[1, 8], parents=[0, 1]),
            "token 8 is none of the target's 8",
        ),
        (tree_pb2.CandidateTree(tokens=[2**32 - 1], parents=[0]), "none of the target's 8"),
        (tree_pb2.CandidateTree(tokens=[0] * 65_537, parents=[0] * 65_537), "at most 65536"),
    ],
)
def test_malformed_trees_are_refused(tree: tree_pb2.CandidateTree, word: str) -> None:
    """Arrays that do not fit together never reach the pool."""
    with pytest.raises(ValueError, match=word):
        candidates_from_proto(target_pb2.Candidates(handle=1, tree=tree), "d", 8)


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


@given(
    st.integers(1, 2**40),
    st.integers(1, 2**31),
    st.integers(1, 2**31),
    st.lists(st.integers(0, 2**20), min_size=1, max_size=40),
    st.integers(0, 300),
    st.integers(0, 2**20),
)
def test_verdict_size_is_counted_right(
    handle: int, epoch: int, length: int, tokens: list[int], credits_: int, seen: int
) -> None:
    """The formula gives the size of the message."""
    verdict = Verdict(
        drafter="d",
        handle=handle,
        epoch=epoch,
        base_length=length,
        base_hash=2**63,
        tokens=tuple(tokens),
        credits=credits_,
        starving=True,
        pass_s=0.001,
        seen=seen,
    )
    (entry,) = verdict_batch([verdict]).verdicts.entries
    if sum(max(1, (t.bit_length() + 6) // 7) for t in tokens) < 128:
        assert verdict_bytes(handle, epoch, length, tokens, credits_, (), seen) == entry.ByteSize()
