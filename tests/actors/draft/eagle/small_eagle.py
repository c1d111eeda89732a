"""EAGLE-3 nets of a few numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from outrider.actors.draft.eagle.eagle_config import EagleConfig
from outrider.actors.draft.eagle.eagle_drafter import EagleDrafter
from outrider.actors.draft.eagle.eagle_engine import EagleEngine
from outrider.actors.draft.eagle.eagle_net import EagleNet
from outrider.actors.draft.heads.speculator_net import matrix
from outrider.actors.draft.model.growing_drafter import num_nodes_of
from outrider.actors.draft.state.draft_sessions import DraftSessions
from outrider.actors.engine.protocol import ModelSpec


def eagle_config(**changes: object) -> EagleConfig:
    """A shape that is quick to run."""
    given: dict[str, object] = {
        "vocab_size": 24,
        "width": 12,
        "taps": (1, "norm"),
        "target_width": 24,
        "num_heads": 2,
        "num_key_heads": 1,
        "head_dim": 6,
        "inner": 20,
        "num_steps": 3,
        "window": 32,
    }
    return EagleConfig(**(given | changes))  # type: ignore[arg-type]


def eagle_net(
    config: EagleConfig | None = None, *, seed: int = 0, drafted: Sequence[int] | None = None
) -> EagleNet:
    """A net whose every part has weights that matter."""
    config = config or eagle_config()
    torch.manual_seed(seed)
    table = torch.randn(config.vocab_size, config.width)
    ids = None if drafted is None else torch.tensor(drafted)
    net = EagleNet(config, embedding_VD=table, head_VD=table, drafted_ids=ids)
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.5)
    return net.requires_grad_(False).eval()


def eagle_states(config: EagleConfig, length: int, *, seed: int = 0) -> NDArray[np.float32]:
    """States of a target at so many positions."""
    numbers = np.random.default_rng(seed)
    shape = (length, len(config.taps), config.target_width)
    return numbers.standard_normal(shape).astype(np.float32)


def plainly(
    net: EagleNet, features_TLD: NDArray[np.float32], tokens: Sequence[int]
) -> list[torch.Tensor]:
    """The net as its equations say, written to be obviously right: no cache, one row after another, everything before it.

    Args:
        net: Which; without options but `has_head_norms`.
        features_TLD: The target's states of positions 0 to T - 1; further tokens are read with the net's own.
        tokens: Of positions 0 on, more than T.

    Returns:
        s' of the tokens of positions 1 on, (D,) each.
    """
    config, layer = net.config, net.midlayer
    attention = layer.self_attn
    dim, group = config.head_dim, config.num_heads // config.num_key_heads
    assert net.fc is not None
    states = [net.fc(torch.from_numpy(row).flatten()) for row in features_TLD]
    keys: list[torch.Tensor] = []
    values: list[torch.Tensor] = []
    found: list[torch.Tensor] = []

    def normed(vector: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return vector / (vector.square().mean(-1, keepdim=True) + config.eps).sqrt() * weight

    def turned(heads: torch.Tensor, position: int) -> torch.Tensor:
        half = dim // 2
        out = heads.clone()
        for index in range(half):
            angle = torch.tensor(position * config.rope_theta ** (-index / half))
            first, second = heads[:, index], heads[:, index + half]
            out[:, index] = first * angle.cos() - second * angle.sin()
            out[:, index + half] = second * angle.cos() + first * angle.sin()
        return out

    for position in range(1, len(tokens)):
        before = position - 1
        state = states[before] if before < len(states) else found[-1]
        embedded = net.embedded(torch.tensor(tokens[position]))
        row = torch.cat(
            (
                normed(embedded, layer.input_layernorm.weight),
                normed(state, layer.hidden_norm.weight),
            )
        )
        query, key, value = (
            (matrix.weight @ row).view(-1, dim)
            for matrix in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        if config.has_head_norms:
            query = normed(query, matrix(attention.q_norm))
            key = normed(key, matrix(attention.k_norm))
        keys.append(turned(key, position))
        values.append(value)
        query = turned(query, position)
        heads = []
        for head in range(config.num_heads):
            scores = torch.stack([key[head // group] @ query[head] for key in keys]) / dim**0.5
            shares = scores.softmax(0)
            heads.append(sum(s * v[head // group] for s, v in zip(shares, values, strict=True)))
        around = state + attention.o_proj.weight @ torch.cat(heads)
        inner = normed(around, layer.post_attention_layernorm.weight)
        mlp = layer.mlp
        gate = torch.nn.functional.silu(mlp.gate_proj.weight @ inner)
        found.append(around + mlp.down_proj.weight @ (gate * (mlp.up_proj.weight @ inner)))
    return found


def eagle_spec(net: EagleNet) -> ModelSpec:
    """What an engine says of it."""
    return ModelSpec(
        name="eagle",
        vocab_size=net.config.vocab_size,
        max_context=4096,
        eos_token_ids=(),
        fingerprint="",
        dtype=torch.float32,
        device=torch.device("cpu"),
    )


def eagle_drafter(
    net: EagleNet, *, inject_from: int | None = None, width: int = 3, max_ahead: int = 64
) -> tuple[DraftSessions, EagleDrafter]:
    """A drafter with a net."""
    engine = EagleEngine(
        net,
        eagle_spec(net),
        num_slots=4,
        max_scratch=96,
        inject_from=inject_from,
    )
    sessions = DraftSessions(4, num_nodes_of(width, max_ahead))
    drafter = EagleDrafter(sessions, engine, width=width, max_ahead=max_ahead, prefill_chunk=8)
    return sessions, drafter
