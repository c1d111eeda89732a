"""Which blocks of a text are scored, and what of them is a hit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.actors.draft.bench import make_attach
from tests.actors.draft.block.small_block import (
    attached,
    small_config,
    small_net,
    states_of,
)
from torch import nn

from outrider.actors.draft.block import probed_drafter
from outrider.actors.draft.block.block_net import BlockNet
from outrider.actors.draft.block.context_cache import ContextCache
from outrider.actors.draft.block.probed_drafter import slot_hits
from outrider.actors.train.block.block_objective import Blocks, block_states

NOBODY = np.zeros((0, 3), np.bool_)


@pytest.mark.parametrize("ids", [None, [4, 0, 2]])
def test_hits_are_those_of_blocks_that_are_trained_on(ids: list[int] | None) -> None:
    """Each reading's slot says the known token by itself, as the trainer computes it; at every place of a text, for heads of few tokens, too."""
    config = small_config(vocab_size=5, width=5, block=6, rank=3)
    torch.manual_seed(2)
    table = torch.randn(5, 5)
    few = None if ids is None else torch.tensor(ids)
    head = table if few is None else table[few]
    net = BlockNet(config, embedding_VD=table, head_VD=head, draft_ids=few)
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.5)
    text = np.random.default_rng(1).integers(0, 5, 30)
    states = states_of(config, 30)
    cache = ContextCache(net.config, net.keys_values, 2, torch.device("cpu"))
    cache.write(1, 14, states[14:])
    anchors = np.arange(15, 29)
    sizes: list[int] = []
    net.norm.register_forward_hook(lambda *given: sizes.append(len(given[2])))
    found = slot_hits(net, cache, 1, text, anchors)
    # Not more at once than drafting for so many sessions takes.
    assert sizes == [8, 6]
    # Rows before the first that was told are seen by nobody, and positions matter by their differences only.
    tokens, rows = torch.from_numpy(text[None, 14:]), torch.from_numpy(states[None, 14:])
    padded = torch.cat((tokens, torch.zeros(1, 6, dtype=torch.int64)), dim=1)
    rows = torch.cat((rows, torch.zeros(1, 6, *rows.shape[2:])), dim=1)
    at = torch.from_numpy(anchors[None] - 14)
    states_ABD = block_states(net, padded, rows, Blocks(at, torch.zeros_like(at)))[0]
    values_A3V = spread(states_ABD[:, :3] @ head.T, few, 5)
    expected = values_A3V.argmax(dim=-1) == tokens[0, at[0] + 1, None]
    assert found.tolist() == expected.tolist()
    assert 0.05 < expected.float().mean() < 0.6


def spread(values: torch.Tensor, ids: torch.Tensor | None, vocab_size: int) -> torch.Tensor:
    """Logits of all tokens."""
    if ids is None:
        return values
    every = torch.full((*values.shape[:-1], vocab_size), -torch.inf)
    every[..., ids] = values
    return every


class Asked:
    """Which blocks are scored, in place of scoring them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.anchors: list[int] = []
        self.texts: list[list[int]] = []
        monkeypatch.setattr(probed_drafter, "slot_hits", self._noted)

    def _noted(
        self,
        net: BlockNet,
        context: object,
        slot: int,
        text: NDArray[np.int64],
        anchors: NDArray[np.int64],
    ) -> NDArray[np.bool_]:
        self.anchors += anchors.tolist()
        self.texts.append(text.tolist())
        return NOBODY


@pytest.mark.parametrize("chunk", [1, 3, 7, 40])
def test_each_known_token_is_asked_about_once(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    """However states come; not before the tokens are known, and never without the state before the block."""
    net = small_net(small_config(block=6, window=64))
    asked = Asked(monkeypatch)
    _, drafter, session = attached(net, [1] * 42)
    states = states_of(net.config, 40)
    for start in range(0, 40, chunk):
        drafter.take_features(session, start, states[start : start + chunk])
        known = min(start + chunk, 40)
        assert all(anchor <= known for anchor in asked.anchors)
    assert asked.anchors == list(range(1, 41))


def test_gaps_long_prompts_and_new_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks behind a gap are left out; of a long prompt the end is asked about; a text that is replaced is asked about again from there on."""
    net = small_net(small_config(block=6, window=256))
    asked = Asked(monkeypatch)
    sessions, drafter, session = attached(net, [1] * 300)
    states = states_of(net.config, 290)
    drafter.take_features(session, 0, states[:200])
    assert asked.anchors == list(range(137, 201))
    asked.anchors.clear()
    drafter.take_features(session, 210, states[210:230])
    # Positions 200 to 209 are not known.
    assert asked.anchors == list(range(211, 231))
    asked.anchors.clear()
    sessions.replace(session.row, 205, [3] * 50)
    drafter.rewrite(session, 205)
    drafter.take_features(session, 205, states[205:220])
    assert asked.anchors == list(range(206, 221))
    assert asked.texts[-1][205:] == [3] * 50
    asked.anchors.clear()
    drafter.detach(session)
    sessions.remove(session)
    _ = sessions.add(make_attach(tokens=(1,) * 20))
    (other,) = sessions
    drafter.attach(other)
    drafter.take_features(other, 0, states[:10])
    assert asked.anchors == list(range(1, 11))


def test_blocks_of_two_slots_have_no_layout_that_could_be_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No token of them has a slot by each reading: nothing is scored, and nothing is said."""
    asked = Asked(monkeypatch)
    net = small_net(small_config(block=2))
    _, drafter, session = attached(net, [1] * 300)
    drafter.take_features(session, 0, states_of(net.config, 290))
    assert (asked.anchors, drafter.note) == ([], "")
