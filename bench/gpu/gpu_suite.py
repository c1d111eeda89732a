"""`python -m bench gpu`: passes on a GPU against what its memory allows, with and without graphs.

For Llama-shaped models with random weights (timings do not depend on what weights say): the copy bandwidth of the device; the time
of a plain decoding step against the time that reading the weights and the context once would take; passes over trees of 16, 32 and
64 nodes against a one-token pass; batches of sessions; draws on the device and one at a time. First it is checked that all of it is
right. Writes JSON lines and prints a table.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import transformers

from bench.figures.machine import commit
from bench.gpu.gpu_checks import check_draws, check_noise, compare_logits, tree_logits
from bench.gpu.gpu_model import SHAPES, Room, build_engine, least_bytes, num_parameters
from bench.gpu.gpu_timing import Timing, copy_bandwidth, measure
from bench.gpu.gpu_work import Load, Stand
from bench.report.rows import FOLDER
from outrider.actors.engine.load.load_engine import DTYPES

NODES = (0, 16, 32, 64)
"""Sizes of the trees of a single session; 0 is plain decoding."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the options and runs."""
    parser = argparse.ArgumentParser(prog="python -m bench gpu", description=__doc__)
    parser.add_argument(
        "--device", default="cuda", help="cuda, cuda:N, or cpu to see that it works"
    )
    parser.add_argument("--shape", default="1b,8b", help=f"some of {', '.join(SHAPES)}, by commas")
    parser.add_argument("--dtype", default="bfloat16", choices=list(DTYPES))
    parser.add_argument("--context", type=int, default=1024, help="cached tokens of each session")
    parser.add_argument("--sessions", type=int, default=16, help="of the batches")
    parser.add_argument("--runs", type=int, default=50, help="repetitions of each timing")
    parser.add_argument(
        "--out", type=Path, help="JSON lines; by default results/gpu.jsonl on a GPU"
    )
    args = parser.parse_args(arguments)
    unknown = set(args.shape.split(",")) - set(SHAPES)
    if unknown:
        parser.error(
            f"unknown shape {', '.join(sorted(unknown))}; choose among {', '.join(SHAPES)}"
        )
    device = torch.device(args.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        parser.error("torch finds no CUDA device; --device cpu --shape tiny shows that it works")
    out = args.out or (FOLDER / "gpu.jsonl" if device.type == "cuda" else None)
    rows = []
    for row in run(
        device=device,
        shapes=args.shape.split(","),
        dtype=DTYPES[args.dtype],
        context=args.context,
        sessions=args.sessions,
        runs=args.runs,
    ):
        print(json.dumps(row), flush=True)
        rows.append(row)
        if out is not None:
            # Written again each time, so that what was measured stays if something fails later.
            out.parent.mkdir(exist_ok=True)
            out.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")
    print(table(rows))


def run(
    *,
    device: torch.device,
    shapes: Sequence[str],
    dtype: torch.dtype,
    context: int,
    sessions: int,
    runs: int,
) -> Iterator[dict[str, Any]]:
    """Checks and times.

    Raises:
        Differs: Something is wrong; nothing is timed then.
    """
    common = describe(device)
    if device.type == "cpu":
        # Only to see that it works: beside other work, threads that wait for each other take for ever.
        torch.set_num_threads(1)
    check_noise(device)
    yield from ({**common, **row} for row in _check_float32(device))
    num_bytes = 2**30 if device.type == "cuda" else 2**26
    bandwidth = copy_bandwidth(device, num_bytes=num_bytes, runs=min(runs, 20))
    yield {**common, "what": "copy", "gb_per_s": bandwidth / 1e9}
    for shape in shapes:
        room = Room(
            shape=shape,
            device=device,
            dtype=dtype,
            num_slots=sessions,
            max_context=max(512, 2 * context),
        )
        for row in _time(room, bandwidth, context=context, sessions=sessions, runs=runs):
            yield {**common, "shape": shape, "dtype": str(dtype).removeprefix("torch."), **row}


def describe(device: torch.device) -> dict[str, Any]:
    """The device and the versions of what computes."""
    on_gpu = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if on_gpu else "CPU",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit(),
    }


def _check_float32(device: torch.device) -> Iterator[dict[str, Any]]:
    """A small model, where rounding cannot hide an error."""
    room = Room(shape="tiny", device=device, dtype=torch.float32, num_slots=3, max_context=256)
    plain, _ = build_engine(room, cuda_graphs="off")
    static, _ = build_engine(room, cuda_graphs="on")
    expected, actual = (tree_logits(each, rounds=60, seed=1) for each in (plain, static))
    check_draws(static, rounds=20)
    found = compare_logits(expected, actual, torch.float32)
    yield {"what": "check", "shape": "tiny", "dtype": "float32", **found}


def _time(
    room: Room, bandwidth: float, *, context: int, sessions: int, runs: int
) -> Iterator[dict[str, Any]]:
    loads = [Load(sessions=1, nodes=nodes, context=context) for nodes in NODES]
    loads += [Load(sessions=sessions, nodes=nodes, context=context) for nodes in (0, 4)]
    expected: list[torch.Tensor] = []
    for mode in ("off", "on"):
        engine, model = build_engine(room, cuda_graphs=mode)
        logits = tree_logits(engine, rounds=12, seed=2)
        if mode == "on":
            yield {"what": "check", **compare_logits(expected, logits, room.dtype)}
        expected = logits
        one_token: Timing | None = None
        for load in loads:
            stand = Stand(engine, load)
            # Enough for every shape to be recorded before.
            passes = measure(stand.run_pass, room.device, runs=runs, warm_up=8)
            one_token = one_token or passes
            least = least_bytes(model, context=load.context, sessions=load.sessions)
            yield {
                "what": "pass",
                "graphs": mode == "on",
                "parameters": num_parameters(model),
                **asdict(load),
                **asdict(passes),
                "floor_ms": 1e3 * least / bandwidth,
                "to_floor": passes.wall_ms / (1e3 * least / bandwidth),
                "to_one_token": passes.wall_ms / one_token.wall_ms,
            }
            for where, draw in (("device", stand.draw_on_device), ("host", stand.draw_on_host)):
                draws = measure(draw, room.device, runs=runs, warm_up=3)
                rounds = measure(stand.round_of(draw), room.device, runs=runs, warm_up=3)
                yield {
                    "what": f"draws on the {where}",
                    "graphs": mode == "on",
                    **asdict(load),
                    **asdict(draws),
                    "round_ms": rounds.wall_ms,
                }
            stand.release()
        del engine, model, stand
        gc.collect()
        if room.device.type == "cuda":
            torch.cuda.empty_cache()


COLUMNS = ("shape", "graphs", "sessions", "nodes", "what", "wall ms", "host ms", "floor ms")


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The timings, for reading."""
    lines = [[*COLUMNS, "x floor", "x one token", "round ms"]]
    for row in rows:
        if "wall_ms" not in row:
            continue
        cells = [row["shape"], "yes" if row["graphs"] else "no"]
        cells += [str(row["sessions"]), str(row["nodes"]), row["what"]]
        for name in ("wall_ms", "host_ms", "floor_ms", "to_floor", "to_one_token", "round_ms"):
            cells.append(f"{row[name]:.2f}" if name in row else "")
        lines.append(cells)
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    )


if __name__ == "__main__":
    main()
