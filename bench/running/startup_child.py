"""How long a model takes to load, in a fresh process: `python -m bench.running.startup_child`, a `bench.running.child`.

Asked with {"way": "transformers" or "outrider", "model": folder, "threads": N}, answers the seconds of each part, the resident
memory before and after and the greatest in between, in MiB. Imports of both ways are done before the clock starts.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from outrider.actors.engine.checkpoint.tokenizer_reading import TokenizerReading
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.load.load_engine import load_engine
from outrider.actors.process.logs import LogSettings, configure_logs
from outrider.actors.target.state.target_settings import TargetSettings
from outrider.actors.target.target_worker import TargetWorker

KEPT: list[object] = [PreTrainedModel]
"""What was loaded, so that it is in memory when memory is read; and what loading imports, so that it is there before."""


def main() -> None:
    """Answers until the input ends."""
    configure_logs(LogSettings(), actor="bench")  # On the error stream, which is not the answer.
    for line in sys.stdin:
        order = json.loads(line)
        torch.set_num_threads(order["threads"])
        before = resident_mib()
        way = by_transformers if order["way"] == "transformers" else by_outrider
        seconds = way(order["model"], order["threads"])
        answer: dict[str, Any] = {"seconds": seconds, "before_mib": before}
        answer["after_mib"] = resident_mib()
        # Linux counts KiB.
        answer["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(json.dumps(answer), flush=True)


def by_transformers(model: str, threads: int) -> dict[str, float]:
    """What `from_pretrained` takes, in float32."""
    del threads
    seconds = {}
    began = time.perf_counter()
    KEPT.append(AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32))
    seconds["model"] = time.perf_counter() - began
    began = time.perf_counter()
    KEPT.append(AutoTokenizer.from_pretrained(model))
    seconds["tokenizer"] = time.perf_counter() - began
    return seconds


def by_outrider(model: str, threads: int) -> dict[str, float]:
    """What a target takes until it is ready, in the order in which its actor does it."""
    seconds = {}
    began = time.perf_counter()
    settings = EngineSettings(model=model, num_threads=threads)
    with TokenizerReading(model) as reading:
        engine = load_engine(settings)
        KEPT.append(reading.result())
    seconds["model and tokenizer"] = time.perf_counter() - began
    began = time.perf_counter()
    target = TargetSettings(name="target", incarnation=0, model_name="model", engine=settings)
    worker = TargetWorker(engine, target, lambda outputs: None)
    worker.warm_up()
    seconds["warm-up"] = time.perf_counter() - began
    KEPT.append(worker)
    return seconds


def resident_mib() -> int:
    """Memory of this process; 0 where the system does not tell."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return 0
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 2**20


if __name__ == "__main__":
    main()
