"""What a drafter's model takes for a block of L tokens: one denoising step of the diffusion drafter, or L passes of the autoregressive one.

Processor time of one thread, behind a text of one window; growing trees is not in it. The shipped diffusion net is run with blocks that it was not trained for:
what it says then is of no use, what it takes is the same. The two take turns, and the median of the rounds counts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from outrider.actors.draft.diffusion.diffusion_engine import DiffusionEngine
from outrider.actors.draft.diffusion.diffusion_file import load_diffusion_net
from outrider.actors.draft.diffusion.diffusion_net import DiffusionNet
from outrider.actors.engine.checkpoint.model_source import resolve_model
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.load.load_engine import load_engine
from outrider.actors.engine.protocol import Batch, Engine, ModelSpec, Moves

KEYS = ("block",)
"""What tells rows apart."""

BLOCKS = (4, 8, 16)

LAST = 1
"""Index of `protocol.WANTS`."""


def run(
    *, draft: str = "demo:draft", runs: int | None = None, is_quick: bool = False
) -> Iterator[dict[str, Any]]:
    """One row for each length of a block.

    Args:
        draft: The autoregressive draft model.
        runs: Rounds of each.
        is_quick: A few rounds.
    """
    torch.set_num_threads(1)
    net = load_diffusion_net(Path(resolve_model("demo:diffusion").location))
    settings = EngineSettings(model=draft, num_slots=1, max_context=512, num_threads=1)
    chains = load_engine(settings)
    count = runs or (5 if is_quick else 200)
    for block in BLOCKS:
        blocks = _engine(net, block)
        took: dict[str, list[float]] = {"diffusion_ms": [], "autoregressive_ms": []}
        for _ in range(count):
            took["diffusion_ms"].append(_passes(blocks, net.config.window, 1))
            took["autoregressive_ms"].append(_passes(chains, net.config.window, block))
        yield {
            "block": block,
            "runs": count,
            **{name: median(values) for name, values in took.items()},
        }


def _engine(net: DiffusionNet, block: int) -> DiffusionEngine:
    """The shipped net for blocks of another length: no weight depends on it."""
    config = replace(net.config, block=block, first=(), among=())
    longer = DiffusionNet(config, **net.tables)
    longer.load_state_dict(net.state_dict())
    spec = ModelSpec(
        name="demo:diffusion",
        vocab_size=config.vocab_size,
        max_context=4096,
        eos_token_ids=(),
        fingerprint="",
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    return DiffusionEngine(
        longer.requires_grad_(False).eval(), spec, num_slots=1, max_scratch=config.window
    )


def _passes(engine: Engine, length: int, count: int) -> float:
    """Milliseconds of so many passes of a token behind a text of so many."""
    slot = engine.acquire()
    _read(engine, slot, length)
    began = time.thread_time()
    for _ in range(count):
        _read(engine, slot, 1)
    seconds = time.thread_time() - began
    engine.release(slot)
    return 1e3 * seconds


def _read(engine: Engine, slot: int, count: int) -> None:
    engine.forward(
        Batch(
            slots_E=np.array([slot]),
            starts_E=np.array([0, count]),
            tokens_R=np.arange(count) % 1000 + 3,
            parents_R=np.arange(-1, count - 1),
            wanted_E=np.array([LAST]),
        )
    )
    engine.rebase(Moves.one(slot, range(count)))
