"""Diffusion drafters of a few numbers."""

from __future__ import annotations

import torch
from torch import nn

from outrider.actors.draft.diffusion.diffusion_config import DiffusionConfig
from outrider.actors.draft.diffusion.diffusion_drafter import DiffusionDrafter
from outrider.actors.draft.diffusion.diffusion_engine import DiffusionEngine
from outrider.actors.draft.diffusion.diffusion_net import DiffusionNet
from outrider.actors.draft.model.growing_drafter import num_nodes_of
from outrider.actors.draft.state.draft_sessions import DraftSessions
from outrider.actors.engine.protocol import ModelSpec

CPU = torch.device("cpu")


def small_config(**changes: object) -> DiffusionConfig:
    """A shape that is quick to run."""
    given: dict[str, object] = {
        "vocab_size": 24,
        "table_width": 12,
        "width": 16,
        "num_layers": 2,
        "num_heads": 2,
        "num_key_heads": 1,
        "head_dim": 6,
        "inner": 20,
        "block": 4,
        "window": 8,
    }
    return DiffusionConfig(**(given | changes))  # type: ignore[arg-type]


def small_net(config: DiffusionConfig | None = None, *, seed: int = 0) -> DiffusionNet:
    """A net whose every part has weights that matter."""
    config = config or small_config()
    torch.manual_seed(seed)
    table = torch.randn(config.vocab_size, config.table_width)
    net = DiffusionNet(config, embedding_VD=table, head_VD=table)
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.5)
    return net.requires_grad_(False).eval()


def engine_of(net: DiffusionNet, *, num_slots: int = 4) -> DiffusionEngine:
    """An engine of a net."""
    spec = ModelSpec(
        name="small",
        vocab_size=net.config.vocab_size,
        max_context=4096,
        eos_token_ids=(),
        fingerprint="small",
        dtype=torch.float32,
        device=CPU,
    )
    return DiffusionEngine(net, spec, num_slots=num_slots, max_scratch=96)


def diffusion_drafter(
    net: DiffusionNet, *, num_slots: int = 4, width: int = 3, max_ahead: int = 64
) -> tuple[DraftSessions, DiffusionDrafter]:
    """A drafter with a net."""
    sessions = DraftSessions(num_slots, num_nodes_of(width, max_ahead))
    engine = engine_of(net, num_slots=num_slots)
    drafter = DiffusionDrafter(sessions, engine, width=width, max_ahead=max_ahead, prefill_chunk=8)
    return sessions, drafter
