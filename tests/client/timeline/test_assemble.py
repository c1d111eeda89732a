"""From records to the timeline."""

from __future__ import annotations

import json

import pytest
from tests.client.timeline.build import Made, message, service, share, span

from outrider.client.timeline.perfetto import write
from outrider.client.timeline.summary import summarise
from outrider.client.timeline.timeline_file import read
from outrider.client.timeline.timeline_model import DRAFTING, NETWORK, REQUESTS, WORK


def test_clocks_are_brought_onto_one() -> None:
    """Whatever the actors' clocks say, their slices lie where they were by the coordinator's."""
    timeline = service().timeline()
    passes = timeline.of("t", WORK)
    assert [(one.name, one.start_us, one.duration_us) for one in passes] == [
        ("no session", 0.0, 15_000.0),
        ("prefill", 15_000.0, 10_000.0),
        ("prefill", 25_000.0, 10_000.0),
        ("waits for candidates", 36_000.0, 4_000.0),
        ("verify", 44_000.0, 20_000.0),
        ("no session", 90_000.0, 10_000.0),
    ]
    assert timeline.of("d", DRAFTING)[1].start_us == 20_000.0
    by_name = {source.name: source for source in timeline.sources}
    assert by_name["t"].clock_offset_us == 40_000.0
    assert by_name["d"].clock_offset_us == -7_000_000.0
    assert by_name["t"].clock_error_us == 100.0
    assert by_name["c"].clock_error_us == 0.0
    assert (timeline.start_unix_us, timeline.duration_us, timeline.version) == (5e6, 1e5, "9")
    assert timeline.emulated == "h100-8b"


def test_what_a_worker_was_in_is_cut_at_the_end() -> None:
    """A wait that had not ended counts until the last records came, and no further."""
    last = service().timeline().of("d", DRAFTING)[-1]
    assert (last.name, last.start_us, last.end_us) == ("nothing left to draft", 70_000.0, 100_000.0)


def test_messages_are_joined_at_both_ends() -> None:
    """An arrow from sender to receiver, and a slice on the network as long as it was under way."""
    timeline = service().timeline()
    arrows = {arrow.name: arrow for arrow in timeline.arrows}
    assert set(arrows) == {"candidates", "verdicts"}
    assert arrows["candidates"].sent.process == "d"
    assert arrows["candidates"].received.process == "t"
    flights = {one.name: one for one in timeline.slices if one.process == NETWORK}
    assert flights["candidates"].track == "d → t"
    assert flights["candidates"].duration_us == pytest.approx(1_000.0)
    assert flights["verdicts"].track == "t → d"
    assert flights["verdicts"].args["latency_us"] == pytest.approx(1_500.0)
    assert flights["verdicts"].args["clock_error_us"] == 200.0


def test_a_lost_end_makes_no_arrow() -> None:
    """A message of which one end is not known is drawn at that end only."""
    made = Made()
    made.source("d", "drafter", message(1, 5), message(2, 6))
    made.source("t", "target", message(2, 7, is_received=True))
    timeline = made.timeline()
    assert [arrow.sent.args["number"] for arrow in timeline.arrows] == [2]
    assert len(timeline.of("d", "sent")) == 2


def test_requests_have_their_rounds() -> None:
    """A pass over several sessions is a round of each, on the track of its request, with the fates of its nodes."""
    timeline = service().timeline()
    rounds = timeline.of(REQUESTS, "request 1 one at t")
    assert [(one.name, one.args["committed"]) for one in rounds] == [("prefill", 1), ("verify", 3)]
    assert rounds[1].args["fates"] == {
        "d": {"accepted": 2, "rejected": 1, "foreseen": 1, "never_chosen": 1}
    }
    assert [one.name for one in timeline.of(REQUESTS, "request 2 two at t")] == [
        "prefill",
        "verify",
    ]
    assert [(mark.name, mark.at_us, mark.args["depth"]) for mark in timeline.marks] == [
        ("accepted", 64_000.0, 1),
        ("rejected", 64_000.0, 2),
    ]


def test_a_trace_of_one_request_leaves_out_the_sessions_of_others() -> None:
    """The target's passes are all there, because they are what it waited for."""
    timeline = service().timeline(request_id="one")
    tracks = {one.track for one in timeline.slices if one.process == REQUESTS}
    assert not any("at t" in track and "two" in track for track in tracks)
    assert "request 1 one at t" in tracks
    assert [one.name for one in timeline.of("t", WORK)].count("prefill") == 2


def test_sessions_of_nobody_known_are_drawn_by_number() -> None:
    """Another coordinator's sessions, or a record that was lost."""
    made = Made()
    made.source("t", "target", span("verify", 1, 2, shares=[share(9, committed=1)]))
    tracks = {one.track for one in made.timeline().slices}
    assert "session 9 at t" in tracks


def test_another_start_of_an_actor_is_another_process() -> None:
    """A restarted target keeps its own tracks, and the dead one says that it is gone."""
    made = Made()
    made.source("t", "target", span("verify", 1, 2), until_ms=5, gone="UNAVAILABLE: broke")
    made.source("t", "target", span("verify", 50, 2), incarnation=2)
    timeline = made.timeline()
    assert [source.process for source in timeline.sources] == ["t", "t (start 2)"]
    assert timeline.sources[0].gone == "UNAVAILABLE: broke"
    assert timeline.sources[0].end_us == 5_000.0


def test_an_actor_whose_stream_breaks_again_and_again() -> None:
    """Each time it is a source of its own, also of one start: nothing is drawn or counted twice."""
    made = Made()
    for number in range(4):
        start = 1 if number < 3 else 2
        made.source("t", "target", span("verify", 10 * number, 2), incarnation=start)
    timeline = made.timeline()
    called = [source.process for source in timeline.sources]
    assert called == ["t", "t (start 1)", "t (start 1) 2", "t (start 2)"]
    assert [len(timeline.of(process, WORK)) for process in called] == [1, 1, 1, 1]
    again = read(json.loads(json.dumps(write(timeline))))
    assert len(again.slices) == 4
    spent_us = [actor.spent_us["verify"] for actor in summarise(again).actors]
    assert spent_us == [2_000.0] * 4


def test_nothing_came() -> None:
    """A trace that broke at once is an empty timeline."""
    timeline = Made().timeline(end_ms=0.0)
    assert (timeline.slices, timeline.sources, timeline.duration_us) == ((), (), 0.0)
