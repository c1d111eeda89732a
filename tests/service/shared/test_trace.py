"""`outrider trace` against a service as a user starts it: processes of their own, Ray between them."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.service.processes import ServiceProcess, run, until

from outrider.client import Client, SamplingOptions
from outrider.client.blocking_stream import RunningTrace
from outrider.client.timeline.summary import summarise
from outrider.client.timeline.timeline_file import load
from outrider.client.timeline.timeline_model import DRAFTING, REQUESTS, WORK

SAMPLING = SamplingOptions(max_tokens=60, seed=5, ignore_eos=True)


@pytest.fixture
def client(service: ServiceProcess) -> Iterator[Client]:
    """Talks to it."""
    with Client(service.address, timeout_s=300.0) as made:
        yield made


def wait_for_tokens(trace: RunningTrace, number: int) -> None:
    """Waits until the client has the records of so many."""
    until(
        lambda: summarise(trace._trace._reception.timeline()).rounds.committed >= number,
        timeout_s=60.0,
        what=f"the records of {number} tokens",
    )


def test_one_request(service: ServiceProcess, client: Client, tmp_path: Path) -> None:
    """From the command line: a file with every actor on one clock, and a summary in words and for programs."""
    file = tmp_path / "t.json"
    stop = threading.Event()

    def decode() -> None:
        while not stop.is_set():
            client.generate(tokens=[1, 2, 3], sampling=SAMPLING, request_id="mine")

    decoding = threading.Thread(target=decode)
    decoding.start()
    try:
        done = run(
            "trace",
            "-a",
            service.address,
            "-r",
            "mine",
            "-s",
            "60",
            "--nodes",
            "-o",
            str(file),
            "--json",
        )
    finally:
        stop.set()
        decoding.join(300)
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert value["ended"] == "request"
    assert {source["role"] for source in json.loads(file.read_text())["otherData"]["sources"]} == {
        "coordinator",
        "target",
        "drafter",
    }
    timeline = load(file)
    assert {"table", "near"} <= {source.name for source in timeline.sources}
    assert len({source.pid for source in timeline.sources}) == len(timeline.sources)
    assert all(source.clock_error_us is not None for source in timeline.sources)
    for actor in summarise(timeline).actors:
        assert sum(actor.spent_us.values()) == pytest.approx(actor.wall_us)
    told = run("trace", str(file), "--summary")
    assert told.returncode == 0
    assert "request mine" in told.stdout


def test_the_whole_service_while_it_works(
    service: ServiceProcess, client: Client, tmp_path: Path
) -> None:
    """Several requests at a time: each has its track, and all tokens are there."""
    with client.start_trace(seconds=60.0) as trace:
        trace.wait_started()
        threads = [
            threading.Thread(target=client.generate, kwargs={"tokens": [n], "sampling": SAMPLING})
            for n in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
        wait_for_tokens(trace, 3 * 60)
    timeline = trace.result()
    summary = summarise(timeline)
    assert timeline.ended == "it was stopped"
    assert summary.num_lost == 0
    assert summary.rounds.committed == 3 * 60
    assert [one.outcome for one in summary.requests] == ["completed"] * 3
    assert {WORK, DRAFTING} <= {one.track for one in timeline.slices}
    assert sum(one.process == REQUESTS and "outcome" in one.args for one in timeline.slices) == 3


def test_a_target_that_is_killed_meanwhile(service: ServiceProcess, client: Client) -> None:
    """The trace does not hang, keeps what the dead one told, and takes the next start in as another."""
    with client.start_trace(seconds=100.0) as trace:
        trace.wait_started()
        client.generate(tokens=[1, 2, 3], sampling=SAMPLING)
        until(
            lambda: any(actor.role == "target" and actor.pid for actor in client.status().actors),
            timeout_s=60.0,
            what="the target's process",
        )
        # What an actor has not sent when it is killed is lost.
        wait_for_tokens(trace, 60)
        target = next(actor for actor in client.status().actors if actor.role == "target")
        os.kill(target.pid, signal.SIGKILL)
        client.generate(tokens=[4, 5], sampling=SAMPLING)
    timeline = trace.result()
    targets = [source for source in timeline.sources if source.role == "target"]
    assert len(targets) == 2
    assert targets[0].gone
    assert targets[1].incarnation > targets[0].incarnation
    assert not targets[1].gone
    assert summarise(timeline).rounds.committed >= 60


def test_nobody_of_that_name(service: ServiceProcess, tmp_path: Path) -> None:
    """Exit code 2, a reason, and no file."""
    file = tmp_path / "t.json"
    done = run("trace", "-a", service.address, "-r", "nobody", "-s", "0.5", "-o", str(file))
    assert done.returncode == 2
    assert "did not run" in done.stderr
    assert not file.exists()
