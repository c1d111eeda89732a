"""What a target records of its candidates: of every one that came, once, what became of it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from tests.actors.target.chaos import Harness, candidates, engine, opening, run_chaos
from tests.actors.target.passing import SETTINGS

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

ACCEPTED, REJECTED = trace_pb2.NODE_FATE_ACCEPTED, trace_pb2.NODE_FATE_REJECTED
FORESEEN, NEVER_CHOSEN = trace_pb2.NODE_FATE_FORESEEN, trace_pb2.NODE_FATE_NEVER_CHOSEN


class Traced(TargetWorker):
    """Candidates come as messages that are traced."""

    def post(self, event: Event) -> None:
        """Names the message."""
        if isinstance(event, CandidatesReceived):
            event = replace(event, message=trace_pb2.TraceMessage())
        super().post(event)


def traced() -> tuple[Harness, Recorder, Tap]:
    """A harness whose worker records."""
    harness, recorder = Harness(engine()), Recorder()
    tap = recorder.open(nodes=True)
    harness.worker = Traced(
        harness.engine, SETTINGS, harness.outputs.extend, harness.clock, recorder
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
    records = tap.take(100_000)
    assert tap.num_lost == 0
    fresh, fates, told = Counter[int](), Counter[int](), Counter[tuple[str, str]]()
    nodes, committed, by_kind = Counter[tuple[str, str]](), Counter[int](), Counter[int]()
    kinds = {
        ACCEPTED: "accepted",
        REJECTED: "rejected",
        FORESEEN: "foreseen",
        NEVER_CHOSEN: "never_chosen",
    }
    for record in records:
        for part in record.parts:
            if record.kind == trace_pb2.TRACE_KIND_TAKEN:
                assert part.fresh + part.stale + part.refused <= part.nodes
                fresh[part.handle] += part.fresh
                continue
            committed[part.handle] += part.committed
            fates[part.handle] += len(part.decided)
            assert part.nodes == sum(n.fate in (ACCEPTED, REJECTED) for n in part.decided)
            for node in part.decided:
                by_kind[node.fate] += 1
                nodes[node.drafter, kinds[node.fate]] += 1
                assert node.depth >= 1
                assert 0.0 < node.estimate <= 1.0
            for one in part.fates:
                for kind in kinds.values():
                    told[one.drafter, kind] += getattr(one, kind)
    assert fates == fresh
    assert +told == +nodes
    ends = [harness.end(event.owner.session) for event in events]
    stats = [end.stats for end in ends if isinstance(end, Finished)]
    assert len(stats) == 3
    assert by_kind[ACCEPTED] == sum(one.accepted for one in stats) > 0
    assert by_kind[ACCEPTED] + by_kind[REJECTED] == sum(one.verified for one in stats)
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
