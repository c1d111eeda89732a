"""What a target records of its candidates: of every one that came, once, what became of it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from tests.actors.target.state.chaos import Harness, candidates, engine, opening, run_chaos
from tests.actors.target.state.passing import SETTINGS

from outrider.actors.speculation.options import Sampling
from outrider.actors.target.state.target_events import (
    CandidatesReceived,
    DrafterJoined,
    Event,
    Finished,
)
from outrider.actors.target.target_worker import TargetWorker
from outrider.actors.tracing.recorder import Recorder, Tap
from outrider.v1 import trace_pb2

FATES = ("accepted", "rejected", "foreseen", "never_chosen")


class Traced(TargetWorker):
    """Candidates come as messages that are traced."""

    def post(self, event: Event) -> None:
        """Names the message."""
        if isinstance(event, CandidatesReceived):
            event = replace(event, message=trace_pb2.TraceSpan())
        super().post(event)


def traced() -> tuple[Harness, Recorder, Tap]:
    """A harness whose worker records."""
    harness, recorder = Harness(engine()), Recorder()
    tap = recorder.open(nodes=True)
    # The harness's clock would have drafters rest.
    settings = replace(SETTINGS, adaptive=False)
    harness.worker = Traced(
        harness.engine, settings, harness.outputs.extend, harness.clock, recorder
    )
    return harness, recorder, tap


@pytest.mark.parametrize("seed", range(6))
def test_every_candidate_has_one_fate(seed: int) -> None:
    """Those that were new and had room are accepted, rejected, foreseen or dropped by the end of their session."""
    harness, _, tap = traced()
    events = [
        opening(i, Sampling(seed=seed + i, max_tokens=25, temperature=1.0), drafters=("a", "b"))
        for i in range(3)
    ]
    run_chaos(harness, events, random.Random(seed), drafters=("a", "b"))
    spans = tap.take(100_000)
    assert tap.num_lost == 0
    fresh, fates, told = Counter[int](), Counter[int](), Counter[tuple[str, str]]()
    nodes, committed, by_fate = Counter[tuple[str, str]](), Counter[int](), Counter[str]()
    for span in spans:
        if span.track == "waiting to be taken in":
            numbers = span.args.numbers
            assert numbers["fresh"] + numbers["stale"] + numbers["refused"] <= numbers["nodes"]
            fresh[span.handles[0]] += int(numbers["fresh"])
        for share in span.shares:
            assert span.track == "passes"
            numbers = share.args.numbers
            committed[share.handle] += int(numbers["committed"])
            fates[share.handle] += len(share.marks)
            verified = sum(mark.name in ("accepted", "rejected") for mark in share.marks)
            assert numbers["nodes"] == verified
            for mark in share.marks:
                by_fate[mark.name] += 1
                nodes[mark.args.words["drafter"], mark.name.replace(" ", "_")] += 1
                assert mark.args.numbers["depth"] >= 1
                assert 0.0 < mark.args.numbers["estimate"] <= 1.0
            for drafter, group in share.args.groups["fates"].groups.items():
                for fate in FATES:
                    told[drafter, fate] += int(group.numbers[fate])
        if span.shares:
            for name in ("nodes", "committed"):
                whole = sum(share.args.numbers[name] for share in span.shares)
                assert span.args.numbers[name] == whole
            assert span.args.numbers["sessions"] == len(span.shares)
    assert fates == fresh
    assert +told == +nodes
    ends = [harness.end(event.owner.session) for event in events]
    stats = [end.stats for end in ends if isinstance(end, Finished)]
    assert len(stats) == 3
    assert by_fate["accepted"] == sum(one.accepted for one in stats) > 0
    assert by_fate["accepted"] + by_fate["rejected"] == sum(one.verified for one in stats)
    assert sum(committed.values()) == sum(one.tokens for one in stats) == 75


def test_what_is_not_traced_costs_and_says_nothing() -> None:
    """After the trace has ended there are no records."""
    harness, recorder, tap = traced()
    recorder.close(tap)
    harness.worker.post(DrafterJoined(drafter="d"))
    harness.worker.post(opening(1, Sampling(seed=1, max_tokens=5)))
    harness.worker.step()
    tree = ([1], [0], b"\x80")
    harness.worker.post(candidates([1, 2, 3], tree, handle=harness.handle(1)))
    for _ in range(50):
        wait_s = harness.worker.step()
        harness.now += wait_s or 0.0
    assert harness.end(1) is not None
    assert tap.take(100) == []
