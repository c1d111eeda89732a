"""Block drafters of a few numbers, and a session for one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from tests.actors.draft.bench import CHEAP, Bench, make_attach
from torch import nn

from outrider.actors.draft.block.block_config import BlockConfig
from outrider.actors.draft.block.block_drafter import BlockDrafter
from outrider.actors.draft.block.block_engine import BlockEngine
from outrider.actors.draft.block.block_net import BlockNet
from outrider.actors.draft.block.probed_drafter import ProbedBlockDrafter
from outrider.actors.draft.ctc.ctc_config import CtcConfig
from outrider.actors.draft.ctc.ctc_engine import CtcEngine
from outrider.actors.draft.ctc.ctc_net import CtcNet
from outrider.actors.draft.model.growing_drafter import num_nodes_of
from outrider.actors.draft.state.draft_sessions import DraftSession, DraftSessions
from outrider.actors.engine.protocol import ModelSpec

CPU = torch.device("cpu")


def small_config(**changes: object) -> BlockConfig:
    """A shape that is quick to run."""
    given: dict[str, object] = {
        "vocab_size": 24,
        "width": 24,
        "taps": (1, "norm"),
        "num_layers": 2,
        "num_heads": 2,
        "num_key_heads": 1,
        "head_dim": 6,
        "inner": 20,
        "block": 4,
        "window": 16,
        "rank": 5,
    }
    return BlockConfig(**(given | changes))  # type: ignore[arg-type]


def small_frames(**changes: object) -> CtcConfig:
    """The same with frames."""
    given: dict[str, object] = dataclasses.asdict(small_config(rank=0, has_confidence=False))
    return CtcConfig(**(given | {"labels": 3} | changes))  # type: ignore[arg-type]


def small_net(config: BlockConfig | None = None, *, seed: int = 0) -> BlockNet:
    """A net whose every part has weights that matter."""
    config = config or small_config()
    torch.manual_seed(seed)
    table = torch.randn(config.vocab_size, config.width)
    net_of = CtcNet if isinstance(config, CtcConfig) else BlockNet
    net = net_of(config, embedding_VD=table, head_VD=table)
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.5)
    return net.requires_grad_(False).eval()


def states_of(config: BlockConfig, length: int, *, seed: int = 0) -> NDArray[np.float32]:
    """States of a target at so many positions."""
    numbers = np.random.default_rng(seed)
    shape = (length, len(config.taps), config.width)
    return numbers.standard_normal(shape).astype(np.float32)


def block_drafter(
    net: BlockNet,
    *,
    num_slots: int = 4,
    width: int = 3,
    max_ahead: int = 64,
    drafter_of: type[BlockDrafter] = BlockDrafter,
) -> tuple[DraftSessions, BlockDrafter]:
    """A drafter with a net."""
    spec = ModelSpec(
        name="small",
        vocab_size=net.config.vocab_size,
        max_context=4096,
        eos_token_ids=(),
        fingerprint="small",
        dtype=torch.float32,
        device=CPU,
    )
    room = {"num_slots": num_slots, "max_scratch": 96}
    engine = (
        CtcEngine(net, spec, **room) if isinstance(net, CtcNet) else BlockEngine(net, spec, **room)
    )
    sessions = DraftSessions(num_slots, num_nodes_of(width, max_ahead))
    drafter = drafter_of(sessions, engine, width=width, max_ahead=max_ahead, prefill_chunk=8)
    return sessions, drafter


def probed(net: BlockNet) -> tuple[DraftSessions, ProbedBlockDrafter]:
    """A drafter with a net."""
    sessions, drafter = block_drafter(net, num_slots=16, drafter_of=ProbedBlockDrafter)
    assert isinstance(drafter, ProbedBlockDrafter)
    return sessions, drafter


def attached(
    net: BlockNet, tokens: Sequence[int]
) -> tuple[DraftSessions, ProbedBlockDrafter, DraftSession]:
    """A session of a drafter."""
    sessions, drafter = probed(net)
    session = sessions.add(make_attach(tokens=tuple(tokens)))
    drafter.attach(session)
    return sessions, drafter, session


class BlockBench(Bench):
    """A worker that drafts with a small net."""

    def __init__(
        self,
        net: BlockNet,
        *,
        width: int = 3,
        max_ahead: int = 64,
        drafter_of: type[BlockDrafter] = BlockDrafter,
    ) -> None:
        sessions, self.blocks = block_drafter(
            net, width=width, max_ahead=max_ahead, drafter_of=drafter_of
        )
        super().__init__(sessions, self.blocks, max_ahead=max_ahead, bytes_per_token=CHEAP)
