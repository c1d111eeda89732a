"""A batch over a Ray of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.client.batch.lines import chat, completion, read, write

if TYPE_CHECKING:
    from tests.client.conftest import FakeService

pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
pytest.importorskip("ray")

PLAIN = (sys.executable, "-c", "from outrider.client.cli import main; main()")
NUM_LINES = 61
PROMPT = "a\u2028b\u0085c"
"""Holds what ends a line of a text, and none of JSON Lines."""

SCRIPT = """
import os, sys
os.environ["RAY_AUTH_MODE"] = "disabled"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
import ray
ray.init(
    address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1",
    object_store_memory=400_000_000,
)
from outrider.client.cli import main
os.chdir(os.environ["FOLDER"])
try:
    main()
finally:
    ray.shutdown()
"""
"""The command inside a Ray, as a Ray job is; in another folder than Ray's workers."""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs `outrider batch` inside a Ray of its own."""
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, "batch", *arguments],
        env={**environment(), "FOLDER": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def environment() -> dict[str, str]:
    """Ours without what it says of Ray, and with the source tree importable by its workers, too."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return {**kept, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_shards_go_on_where_a_run_has_ended(fake: FakeService, tmp_path: Path) -> None:
    """Answers of an earlier run, in the output and in a part, stay; each record is there once, and no part is left."""
    records = [
        (chat if number % 3 == 0 else partial(completion, prompt=PROMPT))(f"r{number}")
        for number in range(NUM_LINES - 1)
    ]
    lines = [json.dumps(record, ensure_ascii=False).encode() for record in records]
    source = write(tmp_path / "in.jsonl", *lines, b"{\xff")
    out, summary = tmp_path / "out.jsonl", tmp_path / "summary.json"
    reference = tmp_path / "reference.jsonl"
    command = ("-a", fake.address, "--concurrency", "4")
    done = subprocess.run(
        [*PLAIN, "batch", str(source), str(reference), *command],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 1, done.stderr  # the faulty line
    lines = reference.read_bytes().splitlines(keepends=True)
    out.write_bytes(b"".join(lines[:20]) + lines[20][:30])
    parts = tmp_path / "out.jsonl.parts"
    parts.mkdir()
    (parts / "part.jsonl").write_bytes(b"".join(lines[10:30]))
    asked = len(fake.requests)
    (tmp_path / "token").write_text("of-mine\n")
    sharded = ("--shards", "2", "--summary", str(summary), "--token-file", "token")
    done = run(tmp_path, source.name, out.name, *command, *sharded)
    assert f"31 of {NUM_LINES} records" in done.stdout, done.stderr
    assert done.returncode == 1, done.stderr
    told = {line["id"]: (line["custom_id"], line["error"]) for line in read(out)}
    assert told == {line["id"]: (line["custom_id"], line["error"]) for line in read(reference)}
    assert len(read(out)) == NUM_LINES
    assert not parts.exists()
    assert len(fake.requests) - asked <= 31
    value = json.loads(summary.read_text())
    assert (value["done_before"], value["total"]["ok"], value["total"]["failed"]) == (30, 60, 1)
