"""Times of work on a device, as the host and as the device see it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from outrider.actors.engine.staging import wait_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Medians over repetitions, each from an idle device to an idle device."""

    wall_ms: float
    """From the call until its results are there."""

    host_ms: float
    """Until the call returned; on a GPU the work goes on."""

    device_ms: float | None
    """Between events around the work on the device, gaps included; None on a CPU."""

    spread: float
    """Half the distance between the quartiles of the wall times, relative to their median."""

    num_runs: int


def measure(work: Callable[[], object], device: torch.device, *, runs: int, warm_up: int) -> Timing:
    """Times work that leaves everything as it was."""
    for _ in range(warm_up):
        work()
    walls, hosts, devices = [], [], []
    on_gpu = device.type == "cuda"
    for _ in range(runs):
        wait_for(device)
        if on_gpu:
            started, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]  # untyped in torch
        began = time.perf_counter()
        if on_gpu:
            started.record()
        work()
        hosts.append(time.perf_counter() - began)
        if on_gpu:
            ended.record()
        wait_for(device)
        walls.append(time.perf_counter() - began)
        if on_gpu:
            devices.append(started.elapsed_time(ended))
    quartiles = statistics.quantiles(walls, n=4) if runs > 1 else [walls[0]] * 3
    return Timing(
        wall_ms=1e3 * statistics.median(walls),
        host_ms=1e3 * statistics.median(hosts),
        device_ms=statistics.median(devices) if on_gpu else None,
        spread=(quartiles[2] - quartiles[0]) / 2.0 / statistics.median(walls),
        num_runs=runs,
    )


def copy_bandwidth(device: torch.device, *, num_bytes: int, runs: int) -> float:
    """Bytes a second that a copy within the device's memory reads and writes, both counted: the ceiling for reading."""
    source = torch.randint(0, 1 << 30, (num_bytes // 4,), dtype=torch.int32, device=device)
    target = torch.empty_like(source)
    timing = measure(lambda: target.copy_(source), device, runs=runs, warm_up=3)
    took_ms = timing.device_ms if timing.device_ms is not None else timing.wall_ms
    return 2.0 * source.numel() * 4 / (took_ms * 1e-3)
