"""Block drafters that find out which token their slots predict: from files that say so, say it wrongly, or do not say it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from structlog.testing import capture_logs
from tests.actors.draft.bench import make_attach
from tests.actors.draft.block.small_block import (
    BlockBench,
    block_drafter,
    small_config,
    small_net,
    states_of,
)
from tests.actors.draft.block.trained_block import counting_table, library_folder, trained
from tests.actors.pair.pair import Pair
from torch import nn

from outrider.actors.draft.block import probed_drafter
from outrider.actors.draft.block.block_drafter import BlockDrafter
from outrider.actors.draft.block.block_file import load_block_net
from outrider.actors.draft.block.block_net import BlockNet
from outrider.actors.draft.block.context_cache import ContextCache
from outrider.actors.draft.block.probed_drafter import ProbedBlockDrafter
from outrider.actors.draft.block.slot_hits import slot_hits
from outrider.actors.draft.state.draft_events import SessionKey
from outrider.actors.draft.state.draft_sessions import DraftSession, DraftSessions
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.train.block.block_objective import Blocks, block_states

TABLE = counting_table()
NOBODY = np.zeros((0, 3), np.bool_)


def probed(net: BlockNet) -> tuple[DraftSessions, ProbedBlockDrafter]:
    """A drafter with a net."""
    sessions, drafter = block_drafter(net, num_slots=16, drafter_of=ProbedBlockDrafter)
    assert isinstance(drafter, ProbedBlockDrafter)
    return sessions, drafter


def texts(
    method: tuple[DraftSessions, BlockDrafter] | None,
    net: BlockNet,
    *,
    temperature: float,
    count: int = 1,
) -> tuple[Pair, list[list[int]]]:
    """Texts of 120 tokens by a real target worker, at the same time."""
    pair = Pair(
        TABLE, TABLE, feedback=None if method is None else net.config.request, method=method
    )
    for session in range(count):
        sampling = Sampling(seed=session, max_tokens=120, temperature=temperature)
        prompt = [session, session + 1]
        pair.open(session, sampling, Speculation(), prompt, is_attached=method is not None)
    pair.run()
    return pair, [pair.texts[session] for session in range(count)]


@cache
def plain_texts(temperature: float) -> list[list[int]]:
    """What plain decoding writes."""
    return texts(None, trained(0), temperature=temperature, count=2)[1]


def accepted(pair: Pair) -> float:
    """Tokens a round."""
    return float(np.mean([len(tokens) for rounds in pair.commits.values() for tokens in rounds]))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("said", [True, False, None])
@pytest.mark.parametrize("first_slot", [0, 1])
def test_the_layout_is_that_of_the_slots_whatever_the_files_say(
    tmp_path: Path, first_slot: int, said: bool | None, temperature: float
) -> None:
    """It is found within the first texts, told, and drafted with; texts are plain decoding's before and after."""
    with capture_logs() as logs:
        net = load_block_net(library_folder(tmp_path / "d", trained(first_slot), said))
        unsaid = [log for log in logs if "sample_from_anchor" in log.get("what", "")]
        assert len(unsaid) == (said is None)
        read = net.config.first_slot
        assert read == (1 if said is False else 0)
        method = probed(net)
        drafter = method[1]
        _, found = texts(method, net, temperature=temperature, count=2)
    assert net.config.first_slot == first_slot
    place = "behind its own place" if first_slot == 0 else "at its own place"
    assert f"each slot predicts the token {place}" in drafter.note
    assert drafter.note.startswith("it was read with") == (read != first_slot)
    told = [log for log in logs if log["event"] == "layout of slots"]
    assert [(log["found"], log["log_level"]) for log in told] == [
        (drafter.note, "info" if read == first_slot else "warning")
    ]
    plain = plain_texts(temperature)
    assert found == plain
    # The same drafter, now that it knows.
    again, found = texts(method, net, temperature=temperature, count=2)
    assert found == plain
    assert accepted(again) > 3.0
    assert drafter.note == told[0]["found"]


@pytest.mark.parametrize("first_slot", [0, 1])
def test_without_it_the_wrong_reading_foresees_next_to_nothing(
    tmp_path: Path, first_slot: int
) -> None:
    """So it is what is found that makes the difference."""
    net = load_block_net(library_folder(tmp_path / "d", trained(first_slot), first_slot == 1))
    pair, _ = texts(block_drafter(net, num_slots=16), net, temperature=0.0)
    assert accepted(pair) < 2.0


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
    cache = ContextCache(net, 2, torch.device("cpu"))
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


def attached(
    net: BlockNet, tokens: Sequence[int]
) -> tuple[DraftSessions, ProbedBlockDrafter, DraftSession]:
    """A session of a drafter."""
    sessions, drafter = probed(net)
    session = sessions.add(make_attach(tokens=tuple(tokens)))
    drafter.attach(session)
    return sessions, drafter, session


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


def trees(bench: BlockBench) -> list[tuple[Sequence[tuple[int, ...]], Sequence[float]]]:
    """Paths and values of the trees of two sessions whose states came one after another."""
    for handle, length in ((7, 9), (8, 6)):
        attach = make_attach(handle=handle, tokens=range(length))
        bench.worker.post(attach)
        bench.settle()
        session = bench.sessions.find(attach.key)
        assert session is not None
        states = states_of(small_config(), length - 1, seed=handle)
        bench.blocks.take_features(session, 0, states)
        bench.settle()
    found = [bench.tree(SessionKey(1, handle)) for handle in (7, 8)]
    return [(tree.paths, tree.values) for tree in found]


def test_trees_are_those_of_the_layout_from_the_moment_that_it_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of other sessions, too, which nothing new is told of: the same as of a drafter that knew it from the start."""
    hits = [NOBODY, np.tile([False, True, False], (64, 1))]
    monkeypatch.setattr(probed_drafter, "slot_hits", lambda *_: hits.pop(0))
    net = small_net(small_config(most_revealed=3))
    bench = BlockBench(net, drafter_of=ProbedBlockDrafter)
    found = trees(bench)
    assert not hits
    known = small_net(small_config(first_slot=1, most_revealed=2))
    assert net.config == known.config
    expected = trees(BlockBench(known))
    for (paths, values), (other_paths, other_values) in zip(found, expected, strict=True):
        assert paths == other_paths
        assert values == pytest.approx(other_values)
        assert len(paths) > 5


def test_a_net_that_is_right_nowhere_is_told_of_and_drafts_on() -> None:
    """One warning after many known tokens; then nothing is scored any more."""
    net = small_net(small_config(block=6, window=128))
    text = np.random.default_rng(3).integers(0, 24, 1500).tolist()
    _, drafter, session = attached(net, text)
    states = states_of(net.config, 1499)
    with capture_logs() as logs:
        for start in range(0, 1499, 60):
            drafter.take_features(session, start, states[start : start + 60])
    told = [log for log in logs if log["event"] == "layout of slots"]
    assert [(log["log_level"], log["found"]) for log in told] == [("warning", drafter.note)]
    assert "no reading of its slots stands out" in drafter.note
    assert net.config.first_slot == 0


def test_blocks_of_two_slots_have_no_layout_that_could_be_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No token of them has a slot by each reading: nothing is scored, and nothing is said."""
    asked = Asked(monkeypatch)
    net = small_net(small_config(block=2))
    _, drafter, session = attached(net, [1] * 300)
    drafter.take_features(session, 0, states_of(net.config, 290))
    assert (asked.anchors, drafter.note) == ([], "")
