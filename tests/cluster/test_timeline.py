"""The timeline as a file and as a strip."""

from __future__ import annotations

import json

import pytest

from outrider.actors.trace import TraceRecord
from outrider.cluster.timeline import between, both_us, covered_us, spans, strip, trace_file


def record(start_us: float, duration_us: float, track: str = "target") -> TraceRecord:
    """One thing that took time."""
    return TraceRecord(
        track=track, name="verify", start_us=start_us, duration_us=duration_us, args={"nodes": 3}
    )


def test_file_is_what_the_viewers_read() -> None:
    """Complete events in order, from time 0, on threads that metadata name and order."""
    start_us = 1_800_000_000_000_000.0
    written = trace_file(
        [
            record(start_us + 500.5, 100.25, "draft"),
            record(start_us, 300.0, "target"),
            record(start_us + 10, 5.0, "another"),
        ],
        tracks=("requests", "target"),
    )
    read = json.loads(json.dumps(written))
    events = read["traceEvents"]
    threads = {e["args"]["name"]: e["tid"] for e in events if e["name"] == "thread_name"}
    assert list(threads) == ["target", "another", "draft"]
    orders = {e["tid"]: e["args"]["sort_index"] for e in events if e["name"] == "thread_sort_index"}
    assert [orders[tid] for tid in threads.values()] == sorted(orders.values())
    complete = [e for e in events if e["ph"] == "X"]
    assert [(e["tid"], e["ts"], e["dur"]) for e in complete] == [
        (threads["target"], 0.0, 300.0),
        (threads["another"], 10.0, 5.0),
        (threads["draft"], 500.5, 100.25),
    ]
    assert all(e["pid"] == 1 and e["args"] == {"nodes": 3} for e in complete)
    assert {e["ph"] for e in events} == {"M", "X"}
    assert read["otherData"]["start_unix_us"] == start_us


def test_file_without_records() -> None:
    """Nothing recorded is a file, too."""
    assert [e["name"] for e in trace_file([])["traceEvents"]] == ["process_name"]


def test_between_keeps_what_reaches_into_the_time() -> None:
    """Records at the edges count if some part of them is inside."""
    records = [record(0, 10), record(5, 10), record(18, 10), record(20, 5), record(0, 100)]
    assert between(records, 10, 20) == [records[1], records[2], records[4]]


def test_spans_are_merged_and_covered() -> None:
    """Overlapping and touching records are one span."""
    times = spans([record(20, 5), record(0, 10), record(5, 10), record(15, 1)])
    assert times == [(0, 16), (20, 25)]
    assert covered_us(times, 8, 22) == 8 + 2


def test_time_in_which_both_ran() -> None:
    """Parts common to the spans of two tracks, whatever their number."""
    assert both_us([(0, 10), (20, 30), (40, 41)], [(5, 25), (29, 50)]) == 5 + 5 + 1 + 1
    assert both_us([], [(0, 1)]) == 0


def test_strip_is_dark_where_it_was_busy() -> None:
    """Each character shows the share of its time."""
    records = [record(0, 20), record(25, 5), record(100, 50)]
    assert strip(records, start_us=0, end_us=40, width=4) == "██▒ "
    assert strip([], start_us=0, end_us=1, width=3) == "   "


@pytest.mark.parametrize("width", [1, 7, 100])
def test_strip_has_its_width(width: int) -> None:
    """One character a column."""
    assert len(strip([record(3, 11)], start_us=0, end_us=17, width=width)) == width
