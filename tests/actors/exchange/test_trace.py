"""What an actor records, and what it costs when nobody asks."""

from __future__ import annotations

import threading
from collections import deque

import numpy as np
from tests.actors.target.state.chaos import candidates

from outrider.actors.exchange import verdicts
from outrider.actors.exchange.candidates import Candidates, encode
from outrider.actors.tracing.recorder import Recorder, Tap, args_of
from outrider.actors.tracing.trace_messages import StreamLog, describe
from outrider.actors.tracing.trace_stream import BATCH_RECORDS, batches
from outrider.v1 import target_pb2, trace_pb2


class Clock:
    """Goes on by one at each look."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000

    def __call__(self) -> int:
        self.now_ns += 1
        return self.now_ns


def numbered(number: int) -> trace_pb2.TraceSpan:
    """A span that can be told from others."""
    return trace_pb2.TraceSpan(start_ns=number)


def test_nothing_is_kept_while_nobody_asks() -> None:
    """Records go nowhere, but what the worker does is known when a trace begins in the middle of it."""
    recorder = Recorder(Clock())
    recorder.enter("passes", "no session")
    current = recorder.current
    assert current is not None
    tap = recorder.open()
    assert tap.take(10) == []
    recorder.leave()
    (span,) = tap.take(10)
    assert (span.track, span.name) == (current.track, current.name) == ("passes", "no session")
    assert span.start_ns == current.start_ns
    assert span.duration_ns > 0


def test_what_became_of_each_candidate_is_for_whoever_asked() -> None:
    """Of two traces at once, one wants it."""
    recorder = Recorder(Clock())
    plain, whole = recorder.open(), recorder.open(nodes=True)
    marks = [trace_pb2.TraceMark(name="accepted")]
    shares = [trace_pb2.TraceShare(handle=1, args=args_of({"nodes": 1}), marks=marks)]
    recorder.enter("passes", "verify")
    recorder.leave(args={"rows": 2}, shares=shares)
    (one,), (other,) = plain.take(9), whole.take(9)
    assert [len(share.marks) for share in one.shares] == [0]
    assert [len(share.marks) for share in other.shares] == [1]
    del other.shares[0].marks[:]
    assert one == other


def test_a_name_that_takes_time_is_found_out_only_for_a_trace() -> None:
    """At once while one runs; at the end where it began in the middle; else not at all."""
    recorder, asked = Recorder(Clock()), [0]

    def why() -> str:
        asked[0] += 1
        return "no session"

    recorder.enter("passes", why)
    recorder.leave()
    assert asked == [0]
    recorder.enter("passes", why)
    tap = recorder.open()
    assert recorder.current is None
    recorder.leave()
    recorder.enter("passes", why)
    assert recorder.current is not None
    assert recorder.current.name == "no session"
    recorder.leave()
    assert [span.name for span in tap.take(9)] == ["no session"] * 2
    assert asked == [2]


def test_a_full_tap_drops_the_oldest_and_counts_them() -> None:
    """How many were lost is exact, whenever the rest is taken."""
    tap = Tap(3, nodes=False)
    for number in range(5):
        tap.put(numbered(number))
    assert [span.start_ns for span in tap.take(2)] == [2, 3]
    assert tap.num_lost == 2
    tap.put(numbered(5))
    assert [span.start_ns for span in tap.take(9)] == [4, 5]
    assert tap.num_lost == 2


def test_two_threads_lose_nothing_that_fits() -> None:
    """The worker's thread and the loop put side by side while a third takes."""
    tap = Tap(100_000, nodes=False)
    threads = [
        threading.Thread(target=lambda: deque(map(tap.put, map(numbered, range(5_000)))))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    taken = 0
    while any(thread.is_alive() for thread in threads):
        taken += len(tap.take(100))
    for thread in threads:
        thread.join(60)
    taken += len(tap.take(100_000))
    assert (taken, tap.num_lost) == (10_000, 0)


def test_every_trace_has_its_own_tap() -> None:
    """One that ends takes nothing from the other, and recording is off after the last."""
    recorder = Recorder(Clock())
    one, other = recorder.open(nodes=True), recorder.open()
    assert (recorder.is_on, recorder.wants_nodes) == (True, True)
    recorder.close(one)
    recorder.add(numbered(1))
    assert (recorder.is_on, recorder.wants_nodes) == (True, False)
    assert len(other.take(5)) == 1
    assert one.take(5) == []
    recorder.close(other)
    recorder.close(other)
    assert not recorder.is_on


def test_what_was_entered_and_not_left_is_not_recorded() -> None:
    """A pass that failed leaves no record of a length that nobody knows."""
    recorder = Recorder(Clock())
    tap = recorder.open()
    recorder.enter("passes", "verify")
    recorder.enter("passes", "no session")
    recorder.leave()
    recorder.leave()
    assert [span.name for span in tap.take(5)] == ["no session"]
    assert recorder.current is None


def test_what_is_known_at_the_end_goes_with_it() -> None:
    """Another name, arguments of every kind, and the shares of sessions."""
    recorder = Recorder(Clock())
    tap = recorder.open()
    recorder.enter("passes", "verify")
    share = trace_pb2.TraceShare(handle=3)
    recorder.leave(
        name="prefill", args={"rows": 2, "of": {"d": {"n": 1}, "why": "x"}}, shares=[share]
    )
    (span,) = tap.take(5)
    assert (span.name, span.args.numbers["rows"]) == ("prefill", 2)
    assert span.args.groups["of"] == args_of({"why": "x", "d": {"n": 1}})
    assert list(span.shares) == [share]


def test_messages_are_bounded() -> None:
    """A long backlog leaves in several; only the last tells until when everything is known."""
    recorder = Recorder(Clock())
    tap = recorder.open()
    recorder.enter("drafting", "draft")
    for number in range(BATCH_RECORDS + 5):
        recorder.add(numbered(number))
    first, last = batches(recorder, tap)
    assert [len(first.spans), len(last.spans)] == [BATCH_RECORDS, 5]
    assert first.until_ns == BATCH_RECORDS - 1
    assert not first.HasField("current")
    assert (last.current.track, last.current.name) == ("drafting", "draft")
    assert last.until_ns > first.until_ns
    (empty,) = batches(recorder, tap)
    assert not empty.spans


def test_both_ends_of_a_stream_give_the_same_numbers() -> None:
    """Also if the trace begins when messages have passed already."""
    hello = target_pb2.Hello(name="d", incarnation=4, stream=2)
    here, there = Recorder(Clock()), Recorder(Clock())
    sender, receiver = StreamLog(here, hello), StreamLog(there, hello)
    message = target_pb2.DrafterMessage(resync=target_pb2.ResyncRequest(handle=9))
    sender.sent(message)
    assert receiver.received(message) is None
    sent, received = here.open(), there.open()
    sender.sent(message)
    named = receiver.received(message)
    (left,), (came,) = sent.take(9), received.take(9)
    assert named is not None
    assert named == came
    assert left.args == came.args
    assert (left.args.words["drafter"], left.args.numbers["number"]) == ("d", 2)
    assert (left.name, list(left.handles)) == ("resync", [9])
    assert left.flow.id == came.flow.id
    assert (left.flow.is_received, came.flow.is_received) == (False, True)
    back = target_pb2.VerdictMessage(resync=target_pb2.Resync(handle=9))
    for _ in range(2):
        receiver.sent(back)
    answers = received.take(9)
    assert len({left.flow.id, *(answer.flow.id for answer in answers)}) == 3, "one name a message"


def verdict_of(handle: int, tokens: list[int]) -> verdicts.Verdicts:
    """Of one session."""
    return verdicts.Verdicts(
        handles_E=np.array([handle], np.uint64),
        epochs_E=np.array([1]),
        lengths_E=np.array([9]),
        hashes_E=np.array([1], np.uint64),
        credits_E=np.array([1]),
        seen_E=np.array([0]),
        starving_E=np.array([False]),
        starts_E=np.array([0, len(tokens)]),
        tokens_T=np.array(tokens),
        root_starts_E=np.zeros(2, np.int64),
        roots_T=np.zeros(0, np.int64),
    )


def test_messages_are_described_without_their_tokens() -> None:
    """Numbers of nodes and tokens of each session, for every kind of message."""
    tree = candidates([1, 2], ([1, 2, 3], [0, 1, 1], b""), handle=1).candidates
    assert isinstance(tree, Candidates)
    batch = target_pb2.CandidateBatch(
        frame=encode(tree),
        frozen=[target_pb2.FrozenCandidates(handle=2, tokens=[1, 2, 3], parents=[0, 1, 1])],
    )
    what, parts = describe(target_pb2.DrafterMessage(candidates=batch))
    assert (what, [(part.handle, part.nodes) for part in parts]) == (
        "candidates",
        [(1, 3), (2, 3)],
    )
    told = target_pb2.VerdictBatch(frame=verdicts.encode(verdict_of(3, [7, 8])))
    what, parts = describe(target_pb2.VerdictMessage(verdicts=told))
    assert (what, parts[0].handle, parts[0].committed) == ("verdicts", 3, 2)
    resync = target_pb2.Resync(handle=4, tokens=[1])
    what, parts = describe(target_pb2.VerdictMessage(resync=resync))
    assert (what, parts[0].handle, parts[0].committed) == ("resync", 4, 1)
    what, parts = describe(target_pb2.VerdictMessage(closed=target_pb2.SessionClosed(handle=5)))
    assert (what, parts[0].handle) == ("closed", 5)
    assert describe(target_pb2.DrafterMessage()) == ("", [])


def test_frames_that_are_none_are_recorded_all_the_same() -> None:
    """Whoever takes the message in refuses them; a trace does not end for it."""
    rubbish = target_pb2.CandidateBatch(frame=b"rubbish")
    assert describe(target_pb2.DrafterMessage(candidates=rubbish)) == ("candidates", [])
    for frame in (b"", b"rubbish"):
        told = target_pb2.VerdictBatch(frame=frame)
        assert describe(target_pb2.VerdictMessage(verdicts=told)) == ("verdicts", [])
