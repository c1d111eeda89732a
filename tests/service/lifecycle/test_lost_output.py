"""A service whose output nobody can take any more: its reader has gone, or the disk is full."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import yaml
from tests.service.processes import COMMAND, ServiceProcess, environment, serving

from outrider.client import Client, SamplingOptions, TextChunk

NUM_TOKENS = 100


def test_requests_finish_before_a_service_ends_that_cannot_say_so(tmp_path: Path) -> None:
    """SIGTERM while one runs: it is drained as ever, and so is the exit code."""
    config = {
        "service": {"listen": "127.0.0.1:0"},
        "cluster": {"drain_s": 100.0},
        "targets": [{"model": "law:agree85", "device": "emulated:30ms"}],
        "drafters": [],
    }
    (tmp_path / "service.yaml").write_text(yaml.safe_dump(config))
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [*COMMAND, "serve", "-c", "service.yaml", "--ready-file", "ready"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=writer,
    )
    os.close(writer)
    # For `serving`, which tells what a service said that ended: that goes into the pipe.
    (tmp_path / "log").touch()
    service = ServiceProcess(process, tmp_path)
    with serving(service), Client(service.address, timeout_s=100.0) as client:
        os.close(reader)
        options = SamplingOptions(max_tokens=NUM_TOKENS, ignore_eos=True)
        num_tokens = 0
        for event in client.stream(tokens=[1, 2, 3], sampling=options):
            if isinstance(event, TextChunk):
                if not num_tokens:
                    process.send_signal(signal.SIGTERM)
                num_tokens += len(event.tokens)
        assert num_tokens == NUM_TOKENS
        assert process.wait(100.0) == 0
