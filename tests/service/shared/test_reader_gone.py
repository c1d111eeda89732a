"""A service whose output nobody can take any more: its reader has gone, or the disk is full."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.service.processes import ServiceProcess, ray_folder
from tests.service.shared.others import Heard

from outrider.client import Client, SamplingOptions, SpeculationOptions, TextChunk

NUM_TOKENS = 150
"""Of the text that runs when the service is told to end: three seconds of passes."""


def test_requests_finish_before_a_service_ends_that_cannot_say_so(
    service: ServiceProcess, third: Heard, parent: Path
) -> None:
    """SIGTERM while one runs: it is drained as ever, and so is the exit code. Nothing of it stays."""
    process = third.service.process
    third.reader.kill()
    third.reader.wait(30)
    with Client(third.service.address, timeout_s=100.0) as client:
        options = SamplingOptions(max_tokens=NUM_TOKENS, ignore_eos=True)
        plainly = SpeculationOptions(enabled=False)
        num_tokens = 0
        for event in client.stream(tokens=[1, 2, 3], sampling=options, speculation=plainly):
            if isinstance(event, TextChunk):
                if not num_tokens:
                    process.send_signal(signal.SIGTERM)
                num_tokens += len(event.tokens)
        assert num_tokens == NUM_TOKENS
        assert process.wait(100.0) == 0
    assert not (third.service.folder / "admin").exists()
    assert list(parent.glob("outrider-*")) == [ray_folder(service.family())]
