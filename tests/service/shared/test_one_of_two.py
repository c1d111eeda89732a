"""Several coordinators of one real service behind one port: any of them may be lost."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

from tests.service.processes import START_TIMEOUT_S, until
from tests.service.shared.others import Heard

from outrider.client import Client, SamplingOptions

NUM_STREAMS = 6


def test_streams_go_on_when_coordinators_are_killed(third: Heard) -> None:
    """Each stream is resumed at whichever is left, and every text is that of an undisturbed request; those that died return."""
    coordinators = [a for a in third.service.ready["actors"] if a["role"] == "coordinator"]
    assert len(coordinators) == 2
    addresses = [actor["address"] for actor in coordinators]

    def text(seed: int) -> tuple[int, ...]:
        ordered = addresses[seed % 2 :] + addresses[: seed % 2]
        with Client(ordered, timeout_s=200.0) as client:
            options = SamplingOptions(seed=seed, max_tokens=400, ignore_eos=True)
            (output,) = client.generate(tokens=[1, 2, 3], sampling=options).outputs
            return tuple(token.id for token in output.tokens)

    with ThreadPoolExecutor(NUM_STREAMS) as pool, Client(addresses[0]) as client:
        alone = list(pool.map(text, range(NUM_STREAMS)))
        disturbed = [pool.submit(text, seed) for seed in range(NUM_STREAMS)]
        until(lambda: client.status().running >= 2, timeout_s=60.0, what="running requests")
        os.kill(int(coordinators[1]["pid"]), signal.SIGKILL)
        assert [one.result(200.0) for one in disturbed] == alone
        until(
            lambda: sum(a.ready and a.role == "coordinator" for a in client.status().actors) == 2,
            timeout_s=START_TIMEOUT_S,
            what="the coordinator that was killed",
        )
