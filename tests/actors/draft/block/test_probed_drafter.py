"""Block drafters that find out which token their slots predict: from files that say so, say it wrongly, or do not say it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from structlog.testing import capture_logs
from tests.actors.draft.bench import make_attach
from tests.actors.draft.block.small_block import (
    BlockBench,
    attached,
    block_drafter,
    probed,
    small_config,
    small_net,
    states_of,
)
from tests.actors.draft.block.trained_block import counting_table, library_folder, trained
from tests.actors.pair.pair import Pair

from outrider.actors.draft.block import probed_drafter
from outrider.actors.draft.block.block_drafter import BlockDrafter
from outrider.actors.draft.block.block_file import load_block_net
from outrider.actors.draft.block.block_net import BlockNet
from outrider.actors.draft.block.probed_drafter import ProbedBlockDrafter
from outrider.actors.draft.state.draft_events import SessionKey
from outrider.actors.draft.state.draft_sessions import DraftSessions
from outrider.actors.speculation.options import Sampling, Speculation

TABLE = counting_table()
NOBODY = np.zeros((0, 3), np.bool_)


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


@pytest.mark.parametrize(
    ("first_slot", "said", "temperature"),
    [
        (0, True, 0.0),
        (0, False, 0.8),
        (0, None, 0.0),
        (1, True, 0.8),
        (1, False, 0.0),
        (1, None, 0.8),
    ],
)
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
