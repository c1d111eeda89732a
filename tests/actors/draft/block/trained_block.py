"""A block drafter of a few numbers that was trained, in either layout, and its files as the library `speculators` writes them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tests.actors.draft.block.small_block import small_config, small_net
from torch import nn

from outrider.actors.draft.block.block_net import BlockNet
from outrider.actors.engine.tables.token_table import Table
from outrider.actors.train.block.block_objective import Blocks, at_slots, block_states

VOCAB, MASK, BLOCK, STEPS = 12, 11, 6, 160
ROWS, LENGTH = 48, 24


def counting_table(sure: float = 0.97) -> Table:
    """A target that counts: 0, 1, .., 10, 0, .., seldom another of these, and never the mask."""
    laws = np.full((VOCAB, VOCAB), (1.0 - sure) / (MASK - 1))
    laws[np.arange(MASK), (np.arange(MASK) + 1) % MASK] = sure
    laws[MASK, 0] = sure
    laws[:, MASK] = 0.0
    with np.errstate(divide="ignore"):
        return Table(log_probs=np.log(laws / laws.sum(axis=1, keepdims=True)))


@cache
def trained(first_slot: int) -> BlockNet:
    """A net that counts, whose slots predict the token behind their place (0) or at it (1). Its target says 1 everywhere, so slots see the anchor only."""
    config = small_config(
        vocab_size=VOCAB,
        width=VOCAB,
        taps=(1,),
        num_key_heads=2,
        head_dim=8,
        inner=48,
        block=BLOCK,
        rank=0,
        has_confidence=False,
        first_slot=first_slot,
        rope_theta=100.0,
        normed_taps=False,
        mask_token_id=MASK,
    )
    net = small_net(config)
    for parameter in net.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
        else:
            nn.init.ones_(parameter)
    net.requires_grad_(True)
    optimiser = torch.optim.Adam(net.parameters(), lr=5e-3)
    generator = torch.Generator().manual_seed(0)
    states = torch.ones(ROWS, LENGTH, 1, VOCAB)
    for _ in range(STEPS):
        firsts = torch.randint(0, MASK, (ROWS, 1), generator=generator)
        tokens = (firsts + torch.arange(LENGTH)) % MASK
        anchors = torch.randint(1, LENGTH - BLOCK, (ROWS, 1), generator=generator)
        blocks = Blocks(anchors, torch.zeros_like(anchors))
        logits = net.unary(block_states(net, tokens, states, blocks))[:, :, first_slot:]
        labels = at_slots(tokens, blocks, BLOCK, 1 - first_slot)[:, :, first_slot:]
        loss = F.cross_entropy(logits.flatten(0, 2), labels.flatten())
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    assert float(loss.detach()) < 0.3, "it has learned to count"
    return net.requires_grad_(False)


def library_folder(folder: Path, net: BlockNet, said: bool | None) -> Path:
    """The net's files, which say which layout they have, truly or not, or nothing (None)."""
    folder.mkdir()
    config = net.config
    content = {
        "speculators_model_type": "dspark",
        "transformer_layer_config": {
            "vocab_size": VOCAB,
            "hidden_size": VOCAB,
            "num_hidden_layers": config.num_layers,
            "num_attention_heads": config.num_heads,
            "num_key_value_heads": config.num_key_heads,
            "head_dim": config.head_dim,
            "intermediate_size": config.inner,
            "rope_theta": config.rope_theta,
            "layer_types": ["sliding_attention"] * config.num_layers,
            "sliding_window": config.window,
        },
        "sliding_window_non_causal": True,
        "draft_vocab_size": VOCAB,
        "block_size": config.block,
        "mask_token_id": MASK,
        "aux_hidden_state_layer_ids": [1],
        "markov_rank": 0,
        "enable_confidence_head": False,
        **({} if said is None else {"sample_from_anchor": said}),
    }
    (folder / "config.json").write_text(json.dumps(content), encoding="utf-8")
    # The table that `small_net` gives it, for both.
    torch.manual_seed(0)
    table = torch.randn(VOCAB, VOCAB)
    tables = {"embed_tokens.weight": table, "lm_head.weight": table.clone()}
    save_file({**net.state_dict(), **tables}, folder / "model.safetensors")
    return folder
