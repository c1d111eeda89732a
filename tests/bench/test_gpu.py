"""The GPU bench, on a CPU: that it checks what it should, and times every kind of work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.gpu import gpu_checks, gpu_suite
from bench.gpu.gpu_model import Room, build_engine, least_bytes
from outrider.actors.engine.attention.attention_mask import mask_bits
from outrider.actors.engine.graphs import static_inputs
from outrider.actors.engine.kv.added_rows import AddedRows, Words
from outrider.actors.engine.protocol import Int64s

CPU = torch.device("cpu")


def test_everything_is_timed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each load with and without graphs, in JSON lines and in a table."""
    out = tmp_path / "gpu.jsonl"
    given = "--device cpu --shape tiny --dtype float32 --context 8 --sessions 2 --runs 1"
    gpu_suite.main([*given.split(), "--out", str(out)])
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    timed = {(r["graphs"], r["sessions"], r["nodes"]) for r in rows if r["what"] == "pass"}
    loads = [*((1, nodes) for nodes in gpu_suite.NODES), (2, 0), (2, 4)]
    assert timed == {(graphs, *load) for graphs in (False, True) for load in loads}
    checks = [row for row in rows if row["what"] == "check"]
    assert len(checks) == 2
    assert all(row["logits_error"] < 1e-5 and row["equal_greedy"] == 1.0 for row in checks)
    assert {row["what"] for row in rows} == {
        "check",
        "copy",
        "pass",
        "draws on the device",
        "draws on the host",
    }
    table = capsys.readouterr().out.splitlines()[len(rows) :]
    assert len(table) == 1 + sum("wall_ms" in row for row in rows)


def test_wrong_logits_end_the_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single row too many in sees is noticed."""

    def wrong(added: AddedRows, rows_Q: Int64s, *, firsts_Q: Int64s, **sizes: Any) -> Words:
        bits = sight_bits(added, rows_Q, firsts_Q=firsts_Q, **sizes)
        places_Q = added.cached_B[added.entries_R[rows_Q]] - firsts_Q + 1
        bits[np.arange(len(bits)), places_Q >> 6] |= np.uint64(1) << (places_Q & 63).view(np.uint64)
        return bits

    room = Room(shape="tiny", device=CPU, dtype=torch.float32, num_slots=3, max_context=256)
    engine, _ = build_engine(room, cuda_graphs="off")
    static, _ = build_engine(room, cuda_graphs="on")
    monkeypatch.setattr(static_inputs, "mask_bits", wrong)
    expected, actual = (
        gpu_checks.tree_logits(each, rounds=10, seed=0) for each in (engine, static)
    )
    with pytest.raises(gpu_checks.Differs, match="limit"):
        gpu_checks.compare_logits(expected, actual, torch.float32)


def test_least_bytes_are_those_that_must_be_read() -> None:
    """Weights without the embeddings that are looked up, and the context of each session."""
    room = Room(shape="tiny", device=CPU, dtype=torch.bfloat16, num_slots=1, max_context=256)
    _, model = build_engine(room, cuda_graphs="off")
    hidden, inner, layers, vocab, kv = 64, 128, 2, 512, 32
    layer = 2 * hidden * hidden + 2 * hidden * kv + 3 * hidden * inner + 2 * hidden
    weights = layers * layer + hidden + vocab * hidden
    assert least_bytes(model, context=0, sessions=1) == 2 * weights
    per_row = 2 * layers * kv
    assert least_bytes(model, context=10, sessions=3) == 2 * (weights + 30 * per_row)


def test_a_missing_gpu_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """With what to do instead."""
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(SystemExit):
        gpu_suite.main([])
    assert "--device cpu --shape tiny" in capsys.readouterr().err
