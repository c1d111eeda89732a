"""Many actors on one machine: `python -m bench scale`. Targets and drafters with tables for models start, serve and scale down.

Says how long each part took, what memory an actor takes, and whether texts with drafters are those of plain decoding. Needs no GPU, and
memory for all actors: it refuses to begin without.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from bench.figures import machine
from bench.running.bench_service import OUTRIDER
from outrider.actors.engine.tables.tabular_engine import Table, random_table
from outrider.client import Client, SamplingOptions, SpeculationOptions

VOCAB_SIZE = 64
TOKENS = 256
"""Of each text."""

SLOTS = 4
"""Of each target; a drafter has as many as all of them together."""

IDLE_S = 20.0
"""`downscale_delay_s`: part of the time that scaling down takes."""

ACTOR_MIB = 350
"""What must be free for each actor."""

BOUND_S = 900.0
"""Of each part."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs it once and prints a row of JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench scale", description=__doc__)
    parser.add_argument("--targets", type=int, default=16)
    parser.add_argument("--drafters", type=int, default=32)
    options = parser.parse_args(arguments)
    needed = (options.targets + options.drafters + 1) * ACTOR_MIB
    free = psutil.virtual_memory().available // 2**20
    if free < needed:
        raise SystemExit(f"{needed} MiB must be free for so many actors, and {free} are")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="scale-") as name:
        print(json.dumps(measure(Path(name), options.targets, options.drafters), indent=1))


def measure(folder: Path, num_targets: int, num_drafters: int) -> dict[str, Any]:
    """One service, from its start to its end.

    Args:
        folder: An empty one.
        num_targets: To start; one stays.
        num_drafters: To start; one stays.

    Raises:
        RuntimeError: It did not start, scale or answer as it should.
    """
    row: dict[str, Any] = {"machine": machine.describe(), "targets": num_targets}
    row["drafters"] = num_drafters
    config = folder / "service.json"
    config.write_text(json.dumps(configuration(folder, num_targets, num_drafters)))
    began_s = time.monotonic()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(*OUTRIDER, "serve", "--config", str(config)),
                *("--ready-file", str(folder / "ready")),
            ],
            stdout=log,
            stderr=log,
        )
    try:
        wait(lambda: (folder / "ready").exists(), process, folder, "start")
        row["start_s"] = round(time.monotonic() - began_s, 1)
        address = json.loads((folder / "ready").read_text())["address"]
        with Client(address, timeout_s=BOUND_S) as client:
            row |= memory(process)
            row |= serve(client, num_targets * SLOTS)
            print(json.dumps(row), file=sys.stderr, flush=True)
            since_s = time.monotonic()
            wait(lambda: is_alone(client), process, folder, "scaling down")
            row["scale_down_s"] = round(time.monotonic() - since_s, 1)
            row["of_that_idle_s"] = IDLE_S
            client.generate(tokens=[1, 2, 3], sampling=SamplingOptions(max_tokens=4))
    finally:
        since_s = time.monotonic()
        process.terminate()
        try:
            process.wait(BOUND_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(BOUND_S)
    row["end_s"] = round(time.monotonic() - since_s, 1)
    row["total_s"] = round(time.monotonic() - began_s, 1)
    return row


def configuration(folder: Path, num_targets: int, num_drafters: int) -> dict[str, Any]:
    """Tables on as few CPUs as they need, so that Ray starts no processes ahead for CPUs that are only counted."""
    target = random_table(VOCAB_SIZE, 2, seed=1, concentration=0.05)
    other = random_table(VOCAB_SIZE, 2, seed=2, concentration=0.05)
    mixed = 0.8 * np.exp(target.log_probs) + 0.2 * np.exp(other.log_probs)
    target.save(folder / "target.npz")
    Table(log_probs=np.log(np.maximum(mixed, 1e-30)).astype(np.float32)).save(folder / "draft.npz")
    some = {"num_cpus": 0.02, "num_threads": 1, "min_replicas": 1}
    return {
        "service": {"listen": "127.0.0.1:0"},
        "cluster": {"placement_timeout_s": BOUND_S, "start_timeout_s": BOUND_S, "lease_s": 60.0},
        "targets": [
            {
                "name": "table",
                "model": f"tabular:{folder / 'target.npz'}",
                "num_slots": SLOTS,
                "replicas": num_targets,
                **some,
            }
        ],
        "drafters": [
            {
                "name": "near",
                "model": f"tabular:{folder / 'draft.npz'}",
                "num_slots": 2 * SLOTS,
                "replicas": num_drafters,
                **some,
            }
        ],
        "autoscaling": {"interval_s": 2.0, "upscale_delay_s": 600.0, "downscale_delay_s": IDLE_S},
    }


def serve(client: Client, number: int) -> dict[str, Any]:
    """So many texts at once, with drafters and plainly, which must be the same."""

    def text(seed: int, enabled: bool) -> tuple[tuple[int, ...], int]:
        (output,) = client.generate(
            tokens=[1, 2, 3],
            sampling=SamplingOptions(seed=seed, max_tokens=TOKENS, ignore_eos=True),
            speculation=SpeculationOptions(enabled=enabled),
        ).outputs
        assert output.completion is not None
        ids = tuple(token.id for token in output.tokens)
        return ids, output.completion.speculation.accepted

    took, found = {}, {}
    with ThreadPoolExecutor(number) as pool:
        for enabled in (False, True):
            began_s = time.monotonic()
            found[enabled] = list(pool.map(text, range(number), [enabled] * number))
            took[enabled] = time.monotonic() - began_s
    if [ids for ids, _ in found[False]] != [ids for ids, _ in found[True]]:
        raise RuntimeError("texts with drafters are not those of plain decoding")
    return {
        "texts": number,
        "plain_s": round(took[False], 1),
        "with_drafters_s": round(took[True], 1),
        "accepted": sum(accepted for _, accepted in found[True]),
    }


def is_alone(client: Client) -> bool:
    """Whether one target and one drafter are left. A status of fifty busy actors may take its time."""
    return [one.running for one in client.status(timeout_s=BOUND_S).replicas] == [1, 1]


def memory(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Memory of all processes, and of an actor: with what it shares, and with its share of that (PSS)."""
    actors, total = [], 0
    for one in psutil.Process(process.pid).children(recursive=True):
        info = one.memory_full_info()
        total += info.pss
        if one.name().startswith(("ray::Target", "ray::Draft")):
            actors.append((info.rss, info.pss))
    return {
        "actors_found": len(actors),
        "actor_rss_mib": round(statistics.median(rss for rss, _ in actors) / 2**20),
        "actor_pss_mib": round(statistics.median(pss for _, pss in actors) / 2**20),
        "all_pss_gib": round(total / 2**30, 1),
    }


def wait(
    condition: Callable[[], bool], process: subprocess.Popen[bytes], folder: Path, what: str
) -> None:
    """Waits until something is so.

    Raises:
        RuntimeError: The service ended, or it took too long; with what the service said.
    """
    deadline = time.monotonic() + BOUND_S
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            said = (folder / "log").read_text(errors="replace")[-3000:]
            raise RuntimeError(f"{what}: not within {BOUND_S:g} s, or the service ended:\n{said}")
        time.sleep(0.2)
