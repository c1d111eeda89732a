"""`python -m bench gpu-served`: the whole service with target and drafter on one GPU, plain and speculative, at several loads.

The models are of a real size with random weights (`served_pair.py`). All requests run at once, and only the time counts in which all of
them do. Beside the service stands the device alone: a one-token pass of as many sessions, timed before the service starts. Texts of
the two ways are compared; in half precision they may part at near ties, as plain decoding does between loads (docs/exactness.md).
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from bench.figures.emulated_run import Window, run_window
from bench.gpu.gpu_model import MAX_SCRATCH, SHAPES, num_parameters
from bench.gpu.gpu_suite import describe
from bench.gpu.gpu_timing import measure
from bench.gpu.gpu_work import Load, Stand
from bench.gpu.served_pair import ServedPair, write_pair
from bench.report.rows import FOLDER
from bench.report.rows import spread as spread_of
from bench.running.bench_service import pair_config
from bench.suites.service.emulated_suite import DRAFTING
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.load.load_engine import DTYPES
from outrider.actors.engine.models.transformers_engine import TransformersEngine
from outrider.actors.engine.turn_taking import compute_device
from outrider.cluster.config.schema import parse_config
from outrider.cluster.start.launch import RunningService, start_service

MAX_TOKENS = 256
"""Of each request."""

PROMPT_TOKENS = 16
"""Of each prompt."""

MAX_CONTEXT = 512
VOCABULARY = 4_000
"""Token ids of prompts are below."""

SETTLING = 3
"""Windows before those that count, so that the service knows whether drafting pays at this load."""

SHARE = 0.45
"""Of the GPU for each of the two processes."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the options and runs."""
    parser = argparse.ArgumentParser(prog="python -m bench gpu-served", description=__doc__)
    parser.add_argument("--device", default="cuda", help="cuda, or cpu to see that it works")
    parser.add_argument("--shape", default="8b", choices=list(SHAPES))
    parser.add_argument("--dtype", default="bfloat16", choices=list(DTYPES))
    parser.add_argument("--levels", default="1,4,16,64", help="requests at once, by commas")
    parser.add_argument(
        "--drafting",
        default=",".join(DRAFTING),
        help="always, adaptive: whether drafters may rest where that is faster",
    )
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--runs", type=int, default=3, help="of each way")
    parser.add_argument("--folder", type=Path, help="keeps the models there, and finds them again")
    parser.add_argument("--out", type=Path, help="JSON lines; by default results/gpu_served.jsonl")
    args = parser.parse_args(arguments)
    device = torch.device(args.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        parser.error("torch finds no CUDA device; --device cpu --shape tiny shows that it works")
    out = args.out or (FOLDER / "gpu_served.jsonl" if device.type == "cuda" else None)
    rows = []
    for row in run(
        device=device,
        shape=args.shape,
        dtype=args.dtype,
        levels=[int(level) for level in args.levels.split(",")],
        drafting=args.drafting.split(","),
        temperature=args.temperature,
        runs=args.runs,
        folder=args.folder,
    ):
        print(json.dumps(row), flush=True)
        rows.append(row)
        if out is not None:
            # Written again each time, so that what was measured stays if something fails later.
            out.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")


def run(
    *,
    device: torch.device,
    shape: str,
    dtype: str,
    levels: Sequence[int],
    drafting: Sequence[str],
    temperature: float,
    runs: int,
    folder: Path | None = None,
) -> Iterator[dict[str, Any]]:
    """One row for each way of drafting and number of requests."""
    common = {**describe(device), "shape": shape, "dtype": dtype, "temperature": temperature}
    with TemporaryDirectory() as passing:
        pair = write_pair(
            folder or Path(passing),
            shape=shape,
            device=device,
            dtype=DTYPES[dtype],
            max_context=MAX_CONTEXT,
        )
        passes, parameters = _passes_alone(pair, device, DTYPES[dtype], levels)
        both: dict[str, Any] = {
            "device": device.type,
            "dtype": dtype,
            "num_slots": max(levels),
            "max_context": MAX_CONTEXT,
        }
        if device.type == "cuda":
            both["num_gpus"] = SHARE
        for way in drafting:
            config = pair_config(pair.target, pair.draft, both=both, service={"max_waiting": 256})
            config["speculation"]["adaptive"] = DRAFTING[way]
            with start_service(parse_config(config, source="the benchmark")) as service:
                for level in levels:
                    yield {
                        **common,
                        "parameters": parameters,
                        "mps": device.type == "cuda" and not compute_device(device).name,
                        "drafting": way,
                        "level": level,
                        "pass_ms": passes[level],
                        **_measure(service, level, passes[level], temperature, runs),
                    }


def _passes_alone(
    pair: ServedPair, device: torch.device, dtype: torch.dtype, levels: Sequence[int]
) -> tuple[dict[int, float], int]:
    """Milliseconds of a plain round of so many sessions, pass and draws, without any service; and the parameters of the target."""
    if device.type == "cpu":
        # As in the service; and beside other work, threads that wait for each other take for ever.
        torch.set_num_threads(1)
    with torch.device(device):
        model = AutoModelForCausalLM.from_pretrained(pair.target, dtype=dtype)
    settings = EngineSettings(
        model=str(pair.target),
        num_slots=max(levels),
        max_context=MAX_CONTEXT,
        max_scratch=MAX_SCRATCH,
    )
    engine = TransformersEngine(model, settings, name="alone", fingerprint="random")
    found, parameters = {}, num_parameters(model)
    for level in levels:
        stand = Stand(engine, Load(sessions=level, nodes=0, context=MAX_TOKENS // 2))
        timing = measure(stand.round_of(stand.draw_on_device), device, runs=30, warm_up=8)
        found[level] = timing.wall_ms
        stand.release()
    del engine, model, stand
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return found, parameters


def _window(service: RunningService, level: int, *, enabled: bool, temperature: float) -> Window:
    prompts = np.random.default_rng(0).integers(VOCABULARY, size=(level, PROMPT_TOKENS)).tolist()
    return run_window(
        service, prompts, enabled=enabled, temperature=temperature, max_tokens=MAX_TOKENS
    )


def _measure(
    service: RunningService, level: int, pass_ms: float, temperature: float, runs: int
) -> dict[str, Any]:
    for _ in range(SETTLING):
        _window(service, level, enabled=True, temperature=temperature)
    ways: dict[bool, list[Window]] = {False: [], True: []}
    for number in range(runs):
        for enabled in (False, True) if number % 2 == 0 else (True, False):
            ways[enabled].append(_window(service, level, enabled=enabled, temperature=temperature))
    unit = 1e3 * level / pass_ms
    plain, fast = (_told(ways[enabled], unit) for enabled in (False, True))
    return {
        "max_tokens": MAX_TOKENS,
        "runs": runs,
        "plain": plain,
        "speculative": fast,
        "speed_up": fast["tokens_per_s"] / plain["tokens_per_s"],
        "different": _different(ways[False][0], ways[True][0]),
        "different_plain": _different(ways[False][0], ways[False][-1]),
        "near_ties": ways[True][0].stats.near_ties,
    }


def _different(one: Window, other: Window) -> int:
    """Texts that are not equal."""
    return sum(a != b for a, b in zip(one.outputs, other.outputs, strict=True))


def _told(windows: Sequence[Window], unit: float) -> dict[str, Any]:
    rates = [window.tokens_per_s for window in windows]
    return {
        "tokens_per_s": statistics.median(rates),
        "spread": spread_of(rates),
        "units": statistics.median(rates) / unit,
        "tokens_per_round": statistics.median(
            window.stats.mean_tokens_per_pass for window in windows
        ),
        "cpu_us": {
            role: statistics.median(window.cpu_us[role] for window in windows)
            for role in windows[0].cpu_us
        },
    }


if __name__ == "__main__":
    main()
