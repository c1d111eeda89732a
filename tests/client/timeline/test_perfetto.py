"""The file for viewers, and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.timeline.build import Made, message, of_request, service, share, slice_, span

from outrider.client.timeline.perfetto import spread, write
from outrider.client.timeline.summary import summarise
from outrider.client.timeline.timeline_file import NotATimeline, load, read, save
from outrider.client.timeline.timeline_model import Slice, Timeline


def events_of(timeline: Timeline) -> list[dict[str, Any]]:
    """The events, through JSON."""
    events: list[dict[str, Any]] = json.loads(json.dumps(write(timeline)))["traceEvents"]
    return events


def test_file_is_what_the_viewers_read() -> None:
    """Processes in the order of the way of a token, threads named and ordered, times in microseconds."""
    events = events_of(service().timeline())
    names = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert names == ["requests", "c", "t", "network", "d"]
    threads = {
        (e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"
    }
    complete = [e for e in events if e["ph"] == "X"]
    assert all((e["pid"], e["tid"]) in threads for e in complete)
    verify = next(e for e in complete if e["name"] == "verify" and e["cat"] == "passes")
    assert (verify["ts"], verify["dur"], verify["args"]["rows"]) == (44_000.0, 20_000.0, 5)
    assert threads[verify["pid"], verify["tid"]] == "passes"
    assert {e["ph"] for e in events} == {"M", "X", "s", "f", "i"}


def test_arrows_lie_in_slices() -> None:
    """A viewer draws an arrow only between slices: each end has one around it, on its thread."""
    events = events_of(service().timeline())
    complete = [e for e in events if e["ph"] == "X"]
    ends = [e for e in events if e["ph"] in "sf"]
    assert len(ends) == 4
    for end in ends:
        assert any(
            e["pid"] == end["pid"]
            and e["tid"] == end["tid"]
            and e["ts"] <= end["ts"] <= e["ts"] + e["dur"]
            for e in complete
        )
    by_id: dict[int, list[str]] = {}
    for end in ends:
        by_id.setdefault(end["id"], []).append(end["ph"])
    assert all(phases == ["s", "f"] for phases in by_id.values())


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30))))
def test_a_thread_holds_what_nests(times: list[tuple[int, int]]) -> None:
    """Slices of one lane follow each other or lie inside each other, and none is lost."""
    slices = [slice_(start, us) for start, us in times]
    lanes = spread(slices)
    assert sorted(id(one) for lane in lanes for one in lane) == sorted(map(id, slices))
    for lane in lanes:
        for place, one in enumerate(lane):
            for other in lane[place + 1 :]:
                apart = one.end_us <= other.start_us or other.end_us <= one.start_us
                nested = one.start_us <= other.start_us and other.end_us <= one.end_us
                assert apart or nested


def test_a_file_says_the_same(tmp_path: Path) -> None:
    """What is read back sums up to the same."""
    timeline = service().timeline()
    file = tmp_path / "trace.json"
    save(timeline, file)
    again = load(file)
    assert summarise(again) == summarise(timeline)
    assert sorted(map(repr, again.slices)) == sorted(map(repr, timeline.slices))
    assert list(again.arrows) == list(timeline.arrows)
    assert list(again.marks) == list(timeline.marks)
    assert again.sources == timeline.sources


def test_what_began_before_the_trace_is_shown() -> None:
    """Perfetto drops events with a negative time: the file counts from the first of what was under way, and is read back as it was."""
    made = Made()
    made.source("c", "coordinator", of_request(1, "r", "request 1", -70.5, 90, outcome="running"))
    made.source(
        "t",
        "target",
        span("verify", -3.25, 6, shares=[share(5, committed=1)]),
        message(1, -2, up=False),
    )
    made.source("d", "drafter", message(1, -1.5, up=False, is_received=True))
    timeline = made.timeline()
    content = json.loads(json.dumps(write(timeline)))
    timed = [event for event in content["traceEvents"] if event["ph"] != "M"]
    assert min(event["ts"] for event in timed) == 0.0
    assert {event["ph"] for event in timed} == {"X", "s", "f"}
    whole = next(event for event in timed if event["name"] == "request 1")
    verify = next(event for event in timed if event["name"] == "verify")
    assert verify["ts"] - whole["ts"] == 67_250.0
    again = read(content)
    assert sorted(map(repr, again.slices)) == sorted(map(repr, timeline.slices))
    assert list(again.arrows) == list(timeline.arrows)
    del content["otherData"]["origin_us"]
    assert read(content).slices[0].start_us >= 0.0, "a file of an earlier version"


def test_the_error_of_the_clocks_stands_in_the_file() -> None:
    """Whoever reads latencies sees what they are worth."""
    sources = write(service().timeline())["otherData"]["sources"]
    assert {source["name"]: source["clock_error_us"] for source in sources} == {
        "c": 0.0,
        "t": 100.0,
        "d": 100.0,
    }


@pytest.mark.parametrize(
    "content",
    [
        [],
        {},
        3,
        {"traceEvents": []},
        {"traceEvents": [], "otherData": {"format": "other"}},
        {"traceEvents": [{}], "otherData": {"format": "outrider-timeline-1"}},
        {"traceEvents": [{"ph": "X"}], "otherData": {"format": "outrider-timeline-1"}},
    ],
)
def test_other_files_are_refused(content: object) -> None:
    """Anything else is told from a timeline, and a damaged one from a whole one."""
    with pytest.raises(NotATimeline):
        read(content)


def test_a_file_that_is_no_json(tmp_path: Path) -> None:
    """Says so."""
    file = tmp_path / "x"
    file.write_text("no")
    with pytest.raises(NotATimeline, match="not JSON"):
        load(file)


def test_an_empty_timeline_is_a_file() -> None:
    """Nothing recorded is a file, too."""
    emulated = Timeline(version="1", emulated="h100-8b")
    assert read(json.loads(json.dumps(write(emulated)))) == emulated
    assert isinstance(slice_(0, 1), Slice)
