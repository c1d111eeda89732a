"""What a timeline says, on traces with known answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.client.timeline.build import Made, of_request, service, slice_

from outrider.client.timeline.spending import BETWEEN
from outrider.client.timeline.summary import summarise
from outrider.client.timeline.timeline_model import Timeline, TrackSource
from outrider.client.timeline.words import lines


def test_every_moment_of_an_actor_has_a_cause() -> None:
    """Passes, waits by cause, and what remains; together the whole."""
    target, drafter = summarise(service().timeline()).actors
    assert target.process == "t"
    assert target.spent_us == {
        "no session": 25_000.0,
        "prefill": 20_000.0,
        "waits for candidates": 4_000.0,
        "verify": 20_000.0,
        BETWEEN: 31_000.0,
    }
    assert sum(target.spent_us.values()) == target.wall_us == 100_000.0
    assert target.busy == pytest.approx(0.4)
    assert list(target.lost_us) == [BETWEEN, "no session", "waits for candidates"]
    assert drafter.spent_us == {
        "catch up": 4_000.0,
        "draft": 10_000.0,
        "out of credits": 25_000.0,
        "nothing left to draft": 30_000.0,
        BETWEEN: 31_000.0,
    }
    assert drafter.busy == pytest.approx(0.14)
    assert drafter.num_lost == 2


def test_overlaps_do_not_count_twice() -> None:
    """Even if records contradict each other, the parts add up."""
    source = TrackSource(
        process="target", name="t", role="target", incarnation=1, pid=1, start_us=0, end_us=50
    )
    timeline = Timeline(
        slices=(slice_(0, 30), slice_(20, 40, "prefill"), slice_(-9, 12, "no session")),
        sources=(source,),
    )
    (actor,) = summarise(timeline).actors
    assert sum(actor.spent_us.values()) == actor.wall_us == 50
    assert actor.spent_us["verify"] == 30
    assert actor.spent_us["prefill"] == 20


def test_every_moment_of_a_request_has_a_cause() -> None:
    """From arrival to end: what the coordinator did, its passes, what the target did instead, and delivery."""
    one, two = summarise(service().timeline()).requests
    assert (one.request, one.name, one.outcome, one.committed) == (1, "one", "completed", 4)
    assert one.wall_us == 80_000.0
    assert one.spent_us == pytest.approx(
        {
            "tokenise": 1_000.0,
            "queue": 2_000.0,
            "open": 2_000.0,
            "prefill": 10_000.0,
            "verify": 20_000.0,
            "waits for candidates": 4_000.0,
            "passes of other requests": 10_000.0,
            "delivery": 26_000.0,
            BETWEEN: 5_000.0,
        }
    )
    assert sum(one.spent_us.values()) == pytest.approx(one.wall_us)
    assert two.outcome == "running"
    assert "delivery" not in two.spent_us


def test_a_request_that_began_before_the_trace_counts_from_there() -> None:
    """Time that was not traced is nobody's."""
    made = Made()
    made.source("c", "coordinator", of_request(1, "x", "request 1", -500, 550, outcome="completed"))
    (one,) = summarise(made.timeline()).requests
    assert one.wall_us == 50_000.0


def test_a_request_of_which_no_end_was_told() -> None:
    """The trace was stopped or broke while it ran: it counts as far as it is known."""
    whole = service().timeline()
    slices = tuple(one for one in whole.slices if "outcome" not in one.args)
    one, two = summarise(replace(whole, slices=slices, ended="it was stopped")).requests
    assert (one.request, one.name, one.outcome, one.committed) == (1, "one", "running", 4)
    assert one.wall_us == 64_000.0 - 10_000.0
    assert sum(one.spent_us.values()) == pytest.approx(one.wall_us)
    assert one.spent_us["verify"] == 20_000.0
    assert (two.name, two.outcome, two.committed) == ("two", "running", 2)
    assert any(
        line.startswith("request 1 one (running): 4 tokens")
        for line in lines(summarise(replace(whole, slices=slices)))
    )


def test_rounds_and_fates() -> None:
    """Rounds after the prompts, pool hits, and what became of the candidates."""
    summary = summarise(service().timeline())
    rounds = summary.rounds
    assert (rounds.rounds, rounds.with_candidates, rounds.hits, rounds.committed) == (2, 1, 1, 6)
    assert rounds.hit_rate == 0.5
    fates = summary.fates_by_drafter["d"]
    assert (fates.proposed, fates.stale, fates.refused) == (6, 1, 0)
    assert (fates.accepted, fates.rejected, fates.foreseen, fates.never_chosen) == (2, 1, 1, 1)
    assert (fates.verified, fates.held) == (3, 0)
    assert summary.fates == fates


def test_drafting_beside_passes() -> None:
    """Half of what drafters did ran while some target was busy; what they waited counts as neither."""
    drafted = {"process": "d", "track": "drafting"}
    slices = (
        slice_(0, 10),
        slice_(20, 10, process="other target"),
        slice_(8, 4, "draft", **drafted),
        slice_(28, 4, "catch up", **drafted),
        slice_(0, 8, "out of credits", **drafted),
    )
    summary = summarise(Timeline(slices=slices))
    assert summary.drafting_beside_passes == pytest.approx(0.5)
    assert "50.0% of the drafting ran while a target was busy" in lines(summary)
    assert summarise(Timeline(slices=slices[:2])).drafting_beside_passes is None


def test_several_drafters_are_added_up() -> None:
    """And told apart."""
    timeline = service().timeline()
    changed = tuple(
        replace(one, args={**one.args, "fates": {"e": one.args["fates"]["d"]}})
        if "fates" in one.args
        else one
        for one in timeline.slices
    )
    summary = summarise(replace(timeline, slices=changed))
    assert set(summary.fates_by_drafter) == {"d", "e"}
    assert summary.fates.accepted == 2
    assert summary.fates.proposed == 6
    assert any(line.startswith("  of e:") for line in lines(summary))


def test_streams() -> None:
    """Messages each way: how many, how large, how long under way."""
    candidates, verdicts = summarise(service().timeline()).streams
    assert (candidates.track, candidates.what, candidates.messages) == ("d → t", "candidates", 1)
    assert candidates.median_us == pytest.approx(1_000.0)
    assert (verdicts.track, verdicts.bytes) == ("t → d", 20)
    assert verdicts.p99_us == pytest.approx(1_500.0)


def test_quantiles_of_many_messages() -> None:
    """The median and the 99th of a hundred."""
    slices = tuple(
        slice_(
            0,
            number,
            "candidates",
            process="network",
            track="a → b",
            args={"bytes": 1, "latency_us": number},
        )
        for number in range(1, 101)
    )
    (stream,) = summarise(Timeline(slices=slices)).streams
    assert (stream.messages, stream.median_us, stream.p99_us) == (100, 50, 99)


def test_words() -> None:
    """What a person is told: shares, hit rate, stale work, what the time was lost to, and what the figures are worth."""
    told = "\n".join(lines(summarise(service().timeline())))
    assert "100 ms of the whole service, until the time was over" in told
    assert "2 LOST" in told
    assert "clocks compared within 200 µs" in told
    assert "t: busy 40.0% of 100 ms (prefill 20.0%, verify 20.0%)" in told
    assert "out of credits 25.0%" in told
    assert "2 records lost" in told
    assert "pool hit rate 50.0%" in told
    assert "6 came; stale work 16.7%" in told
    assert "d → t: 1 candidates, 50 bytes; under way 1 ms in the middle" in told
    assert "request 1 one (completed): 4 tokens in 80 ms: delivery 32.5%, verify 25.0%" in told
    assert "time lost at the target while it had sessions: between passes 31 ms" in told


def test_words_of_nothing() -> None:
    """An empty timeline is told, not divided by."""
    told = lines(summarise(Timeline(ended="the stream broke: x")))
    assert "until the stream broke: x" in told[0]
    assert "no round was decided in this time" in told
    assert "emulated" not in told[0]


def test_emulated_times_are_said_to_be() -> None:
    """Where the figures begin."""
    assert lines(summarise(Timeline(emulated="h100-8b")))[0].endswith("; emulated: h100-8b")


def test_words_of_an_unknown_clock_and_of_the_dead() -> None:
    """Doubts are stated."""
    source = TrackSource(
        process="t",
        name="t",
        role="target",
        incarnation=1,
        pid=1,
        start_us=0,
        end_us=5,
        clock_error_us=None,
        gone="UNAVAILABLE",
    )
    told = "\n".join(lines(summarise(Timeline(sources=(source,)))))
    assert "some clock is unknown" in told
    assert "t went away: UNAVAILABLE" in told


def test_only_the_longest_requests_are_told() -> None:
    """Many requests do not flood the terminal."""
    made = Made()
    made.source(
        "c",
        "coordinator",
        *(
            of_request(n, f"r{n}", f"request {n}", n, 10 + n, outcome="completed")
            for n in range(1, 15)
        ),
    )
    told = lines(summarise(made.timeline()))
    assert sum(line.startswith("request ") for line in told) == 10
    assert "and 4 shorter requests" in told
