"""How long passes of models take, alone in a process and with one thread: `python -m bench.figures.timing`, a `bench.running.child`.

Asked with {"model": ..., "max_context": ..., "context": tokens before the timed rows}, answers {"layers": ..., "curve": [[rows, seconds], ...]}.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from outrider.actors.engine.checkpoint.model_source import resolve_model
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.load.load_engine import load_engine
from outrider.actors.process.logs import LogSettings, configure_logs
from outrider.actors.target.schedule.warm_up import time_passes

MOST_S = 30.0
"""Enough for all turns of a target of 60 ms a pass: with the three of a second, an ideal moved by a fifth from one suite to another."""


def main() -> None:
    """Answers until the input ends."""
    configure_logs(LogSettings(), actor="bench")  # On the error stream, which is not the answer.
    for line in sys.stdin:
        order = json.loads(line)
        engine = load_engine(
            EngineSettings(
                model=order["model"],
                num_slots=1,
                max_context=order["max_context"],
                max_scratch=64,
                num_threads=1,
            )
        )
        curve = time_passes(
            engine,
            time.perf_counter,
            most_rows=engine.max_scratch,
            context=order["context"],
            most_s=MOST_S,
        )
        config = Path(resolve_model(order["model"]).location) / "config.json"
        layers = json.loads(config.read_text(encoding="utf-8"))["num_hidden_layers"]
        print(json.dumps({"layers": layers, "curve": sorted(curve.items())}), flush=True)


if __name__ == "__main__":
    main()
