"""Speculators that are known exactly: one that is a table, and one whose weights are random."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tests.actors.draft.bench import VOCAB_SIZE

from outrider.actors.draft.heads.speculator_config import SpeculatorConfig
from outrider.actors.draft.heads.speculator_net import SpeculatorNet, matrix
from outrider.actors.engine.protocol import ModelSpec

WIDTH = 12
"""Of the hidden states of the target that there is not."""


def random_net(**shape: Any) -> SpeculatorNet:
    """A net that draws on everything that it is given."""
    torch.manual_seed(3)
    given = {"tables": "own", "inner": 16, "num_stages": 3, **shape}
    config = SpeculatorConfig(vocab_size=VOCAB_SIZE, width=WIDTH, **given)
    tables = {}
    if config.tables == "target":
        tables = {name: torch.randn(VOCAB_SIZE, WIDTH) for name in ("embedding_VD", "head_VD")}
    net = SpeculatorNet(config, **tables)
    net.requires_grad_(False)
    for head in net.lm_heads:
        matrix(head).mul_(3.0)
    return net.eval()


def table_net(
    log_probs_VV: NDArray[np.floating], num_stages: int = 3, *, width: int = WIDTH
) -> SpeculatorNet:
    """A net that says of every text what the table says of its last token, whatever the target says."""
    size = len(log_probs_VV)
    config = SpeculatorConfig(
        vocab_size=size, width=width, inner=size, num_stages=num_stages, tables="own"
    )
    net = SpeculatorNet(config).requires_grad_(False).eval()
    assert net.first is not None
    net.first.weight.zero_()
    matrix(net.later[0]).zero_()
    matrix(net.embeddings[0]).copy_(torch.eye(size))
    # The norm makes the one that stands there the root of the width, which gelu leaves as it is.
    matrix(net.lm_heads[0]).copy_(torch.from_numpy(log_probs_VV.T / math.sqrt(size)))
    return net


def spec_of_net(net: SpeculatorNet) -> ModelSpec:
    """What an engine says of it."""
    return ModelSpec(
        name="net",
        vocab_size=net.config.vocab_size,
        max_context=600,
        eos_token_ids=(),
        fingerprint="",
        dtype=torch.float32,
        device=torch.device("cpu"),
    )


def rolled_out(
    net: SpeculatorNet, feature_D: NDArray[np.float32], tokens: Sequence[int]
) -> torch.Tensor:
    """Logits after tokens that follow a hidden state, one stage a token. Shape (V,)."""
    states = torch.from_numpy(feature_D)
    for stage, token in enumerate(tokens):
        states = net.stage(stage, states, torch.tensor(token))
    return net.logits(len(tokens) - 1, states)
