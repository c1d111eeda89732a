"""A batch over four Ray nodes that is killed twice: once its own process, once a whole node with a target and shards on it.

Nodes, service and links are those of `bench.network.cluster_nodes`. What counts is the output: each record once, every text that of plain decoding. The
same command is started again after the first kill; the second one it must survive by itself.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.network.cluster_nodes import HEAD, TARGETS, Cluster, cluster
from bench.network.ray_nodes import NodeFailed
from bench.running.bench_prompts import Prompt, load
from bench.running.bench_service import OUTRIDER

NUM_RECORDS = 2000
NUM_SHARDS = 4
MAX_TOKENS = 12
"""Of a record: what is tried is the book-keeping."""

NUM_PLAIN = 96
"""Records that are decoded plainly, too."""

WHOLE_S = 1800.0
"""Bound on everything that is waited for."""

SHARD = "(Shard"
"""What Ray calls a process of ours that sends a part of a batch."""


class BatchFailed(RuntimeError):
    """The command ended otherwise than it should; carries what it said."""


def run(*, is_quick: bool = False) -> Iterator[dict[str, Any]]:
    """One row.

    Args:
        is_quick: A fortieth of the records, and few of them plainly.
    """
    count, plain = (NUM_RECORDS // 40, 8) if is_quick else (NUM_RECORDS, NUM_PLAIN)
    with (
        tempfile.TemporaryDirectory(prefix="outrider-batch-") as folder,
        cluster(delay_s=0.5e-3, bits_per_s=1e9, num_drafters=2) as made,
    ):
        yield killed_twice(made, Path(folder), count=count, num_plain=plain)


def killed_twice(made: Cluster, folder: Path, *, count: int, num_plain: int) -> dict[str, Any]:
    """Runs a batch to its end through both kills.

    Args:
        made: Where. One of its nodes with a target is lost.
        folder: For input and output; every node reaches it.
        count: Records.
        num_plain: Of them, decoded plainly as well in the end.

    Returns:
        What became of each record, and when.

    Raises:
        BatchFailed: It did not come to its end.
    """
    source, out = folder / "in.jsonl", folder / "out.jsonl"
    write_records(source, load(), count)
    began = time.monotonic()
    with _start(made, source, out) as process:
        _until(lambda: num_answers(out) >= count // 5, process, "a fifth of the answers")
        process.kill()
    killed_s, kept = time.monotonic() - began, num_answers(out)
    with _start(made, source, out, "--baseline", str(num_plain)) as process:
        _until(lambda: num_answers(out) >= count // 2, process, "half of the answers")
        lost_node = _node_with_a_shard(made, process)
        before = num_answers(out)
        lost_s = time.monotonic() - began
        made.nodes.lose(lost_node)
        said, errors = process.communicate(timeout=WHOLE_S)
    whole_s = time.monotonic() - began
    if process.returncode != 0:
        raise BatchFailed(f"exit code {process.returncode}: {said[-2000:]}\n{errors[-4000:]}")
    summary = json.loads(out.with_suffix(".summary").read_text())
    lines = [json.loads(line) for line in out.read_bytes().splitlines()]
    seen = Counter(line["custom_id"] for line in lines)
    return {
        "records": count,
        "shards": NUM_SHARDS,
        "max_tokens": MAX_TOKENS,
        "process_killed": {"after_s": round(killed_s, 1), "answers": kept},
        "node_killed": {"name": lost_node, "after_s": round(lost_s, 1), "answers": before},
        "wall_s": round(whole_s, 1),
        "last_run_s": round(summary["wall_s"], 1),
        "tokens_per_s": summary["tokens_per_s"],
        "lost": count - len(seen),
        "duplicates": sum(times - 1 for times in seen.values()),
        "failed": sum(line["error"] is not None for line in lines),
        "fingerprints": len({_fingerprint(line) for line in lines}),
        "parts_left": out.with_name(f"{out.name}.parts").exists(),
        "baseline": summary["baseline"],
    }


def write_records(file: Path, prompts: Sequence[Prompt], count: int) -> None:
    """An input of so many records, from the prompts in turn."""
    with file.open("w", encoding="utf-8") as lines:
        for number in range(count):
            prompt = prompts[number % len(prompts)]
            body: dict[str, Any] = {"prompt": prompt.text}
            if prompt.messages:
                turns = [{"role": role, "content": said} for role, said in prompt.messages]
                body = {"messages": turns}
            body |= {"max_tokens": MAX_TOKENS, "metadata": {"category": prompt.category}}
            url = "/v1/chat/completions" if "messages" in body else "/v1/completions"
            record = {"custom_id": f"r{number}", "method": "POST", "url": url, "body": body}
            lines.write(json.dumps(record) + "\n")


def num_answers(out: Path) -> int:
    """Records that have an answer on disk, in the output or in its parts."""
    files = [out, *out.with_name(f"{out.name}.parts").glob("*")]
    found: set[str] = set()
    for file in files:
        with suppress(FileNotFoundError):  # parts go when they have become the output
            whole = [line for line in file.read_bytes().splitlines(keepends=True)]
            found |= {json.loads(line)["id"] for line in whole if line.endswith(b"\n")}
    return len(found)


def _start(made: Cluster, source: Path, out: Path, *options: str) -> subprocess.Popen[str]:
    """The command on the head node, in the Ray cluster."""
    command = [
        *(*made.network.hosts[HEAD].prefix, *OUTRIDER, "batch"),
        *(str(source), str(out), "--address", made.address, "--shards", str(NUM_SHARDS)),
        *("--summary", str(out.with_suffix(".summary")), *options),
    ]
    environment = {**made.nodes.environment, "RAY_ADDRESS": made.nodes.address}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _node_with_a_shard(made: Cluster, process: subprocess.Popen[str]) -> str:
    """A node that holds a target and sends."""

    def found() -> list[str]:
        return [name for name in TARGETS if any(SHARD in one for one in made.nodes.names(name))]

    _until(lambda: bool(found()), process, "a shard beside a target")
    return found()[-1]


def _until(is_so: Callable[[], bool], process: subprocess.Popen[str], what: str) -> None:
    """Waits for something while the command runs.

    Raises:
        BatchFailed: It ended before.
        NodeFailed: It is not so within the time.
    """
    deadline = time.monotonic() + WHOLE_S
    while not is_so():
        if process.poll() is not None:
            raise BatchFailed(f"it ended before there was {what}: {process.communicate()}")
        if time.monotonic() > deadline:
            process.kill()
            raise NodeFailed(f"no {what} after {WHOLE_S:g} s")
        time.sleep(0.2)


def _fingerprint(line: dict[str, Any]) -> str:
    body = (line["response"] or {}).get("body", {})
    return str(body.get("system_fingerprint"))
