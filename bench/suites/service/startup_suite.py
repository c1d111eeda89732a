"""How long a target takes to start next to transformers' `from_pretrained`, and how much memory it holds.

By default for a checkpoint with random weights in the shape of Gemma 3 270M, whose vocabulary of 262,144 tokens makes everything
costly that goes by token. Each way runs in fresh processes, by turns; the file is in the system's cache after the first turn, which
is not counted. Memory is written to before each: a virtual machine may have given what was free back to its host, and the first write takes
several times as long then, for whoever comes to it first. Once the parts, with all imports done before; once from the start of a process: a program that loads the model, and
`outrider serve` until it serves.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import psutil
import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, PreTrainedTokenizerFast

from bench.running.bench_service import OUTRIDER
from bench.running.child import Child

RUNS = 3
"""Turns that count; the median is told."""

WAYS = ("transformers", "outrider")

MOST_S = 600.0
"""Longest wait for one start."""

LOAD = """
import sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
AutoTokenizer.from_pretrained(sys.argv[1])
"""
"""A program that loads a model and its tokenizer with transformers."""

POLL_S = 0.02
"""How often it is looked whether a service serves."""

TOUCHED_BYTES = 4 * 2**30
"""Memory that is written to before each start that is timed; more than either way holds at its peak."""

LAYERS, PERIOD = 18, 6
"""Layers, of which every sixth sees the whole text."""


def run(*, target: str | None = None, runs: int = RUNS, is_quick: bool = False) -> Iterator[Any]:
    """Yields one row.

    Args:
        target: Folder of a checkpoint; None: random weights in a temporary folder.
        runs: Turns that count.
        is_quick: One turn of a tiny checkpoint, to see that it works.
    """
    with contextlib.ExitStack() as stack:
        if target is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            write_checkpoint(folder, vocab_size=1_000 if is_quick else 262_144)
            target = str(folder)
        answers: dict[str, list[Any]] = {way: [] for way in WAYS}
        wholes: dict[str, list[float]] = {way: [] for way in WAYS}
        for turn in range(1 + (1 if is_quick else runs)):
            for way in WAYS if turn % 2 else reversed(WAYS):
                touch_memory()
                with Child("bench.running.startup_child") as child:
                    order = {"way": way, "model": target, "threads": 1}
                    answers[way].append(child.ask(order, timeout_s=MOST_S))
                touch_memory()
                wholes[way].append(_script_s(target) if way == WAYS[0] else _service_s(target))
        size = sum(file.stat().st_size for file in Path(target).glob("*.safetensors"))
    row: dict[str, Any] = {
        "file_mib": size // 2**20,
        **{way: median(answers[way][1:]) for way in WAYS},
    }
    for way in WAYS:
        row[way]["process_s"] = round(statistics.median(wholes[way][1:]), 2)
    ours, theirs = row["outrider"], row["transformers"]
    row["ratio"] = round(ours["total_s"] / theirs["total_s"], 2)
    row["process_ratio"] = round(ours["process_s"] / theirs["process_s"], 2)
    print(table(row), file=sys.stderr)
    yield row


def touch_memory() -> None:
    """Writes to memory that programs will get next, half of what is free at most. In a process of its own, as children inherit a peak."""
    size = min(TOUCHED_BYTES, psutil.virtual_memory().available // 2)
    subprocess.run([sys.executable, "-c", f"bytes([1]) * {size}"], check=True)


def median(answers: list[Any]) -> dict[str, Any]:
    """Seconds of each part, their sum, and the memory that loading added, held and at its peak."""
    parts = {
        part: round(statistics.median(answer["seconds"][part] for answer in answers), 2)
        for part in answers[0]["seconds"]
    }
    total = statistics.median(sum(answer["seconds"].values()) for answer in answers)
    held = statistics.median(answer["after_mib"] - answer["before_mib"] for answer in answers)
    peak = statistics.median(answer["peak_mib"] - answer["before_mib"] for answer in answers)
    return {"seconds": parts, "total_s": round(total, 2), "held_mib": held, "peak_mib": peak}


def table(row: dict[str, Any]) -> str:
    """The row as text."""
    lines = [
        "| | parts, s | ready after, s | memory held, MiB | at its peak | from the start of a process, s |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for way in WAYS:
        found = row[way]
        parts = ", ".join(f"{part} {seconds:g}" for part, seconds in found["seconds"].items())
        figures = " | ".join(
            f"{found[key]:g}" for key in ("total_s", "held_mib", "peak_mib", "process_s")
        )
        lines.append(f"| {way} | {parts} | {figures} |")
    return "\n".join([*lines, f"ratio {row['ratio']:g}, of processes {row['process_ratio']:g}"])


def _script_s(model: str) -> float:
    """Seconds of a program that loads a model with transformers, from its start to its end."""
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", LOAD, model], check=True, timeout=MOST_S, capture_output=True
    )
    return time.perf_counter() - began


def _service_s(model: str) -> float:
    """Seconds from the start of `outrider serve` until it serves.

    Raises:
        RuntimeError: It did not.
    """
    with tempfile.TemporaryDirectory() as folder:
        ready, log = Path(folder) / "ready", Path(folder) / "log"
        command = [*OUTRIDER, "serve", "--target", model]
        began = time.perf_counter()
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, "--listen", "127.0.0.1:0", "--ready-file", str(ready)],
                env={"RAY_AUTH_MODE": "token", **os.environ},
                stdout=output,
                stderr=output,
            )
        try:
            while not ready.exists():
                if process.poll() is not None or time.perf_counter() - began > MOST_S:
                    raise RuntimeError(f"the service did not start: {log.read_text()[-2_000:]}")
                time.sleep(POLL_S)
            return time.perf_counter() - began
        finally:
            process.terminate()
            process.wait(MOST_S)


def write_checkpoint(folder: Path, *, vocab_size: int) -> None:
    """A checkpoint with random weights in the shape of Gemma 3 270M, in bfloat16, and a tokenizer with as many tokens."""
    torch.manual_seed(0)
    config = Gemma3TextConfig(
        vocab_size=vocab_size,
        hidden_size=640,
        intermediate_size=2048,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=256,
        query_pre_attn_scalar=256,
        sliding_window=512,
        max_position_embeddings=32_768,
        layer_types=[
            "sliding_attention" if (layer + 1) % PERIOD else "full_attention"
            for layer in range(LAYERS)
        ],
    )
    Gemma3ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)  # type: ignore[no-untyped-call, arg-type, unused-ignore]
    tokenizer = Tokenizer(BPE(*_merges(vocab_size)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)  # type: ignore[no-untyped-call]


def _merges(vocab_size: int) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """A byte-level vocabulary: all bytes, then all words of two letters, of three, and so on, each merged from a shorter one."""
    vocabulary = {byte: i for i, byte in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    letters = [chr(code) for first in "aA" for code in range(ord(first), ord(first) + 26)]
    merges: list[tuple[str, str]] = []
    words = letters
    while True:
        longer = []
        for word, letter in product(words, letters):
            if len(vocabulary) == vocab_size:
                return vocabulary, merges
            vocabulary[word + letter] = len(vocabulary)
            merges.append((word, letter))
            longer.append(word + letter)
        words = longer
