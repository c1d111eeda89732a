"""The trainer of block drafters: what it learns, that it goes on where it was, and what it leaves."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from tests.actors.draft.block.small_block import small_config, small_net, states_of

from outrider.actors.draft.block.block_file import load_block_net
from outrider.actors.train.block.block_evaluation import block_acceptance
from outrider.actors.train.block.block_objective import (
    Blocks,
    block_loss,
    block_states,
    random_blocks,
)
from outrider.actors.train.block.dspark_options import DsparkTrainingOptions
from outrider.actors.train.features.output_layer import product
from outrider.actors.train.features.target_shape_checks import taps_of
from outrider.actors.train.features.training_rows import HeldOut
from outrider.actors.train.methods.dspark_trainer import run
from outrider.actors.train.training_errors import ResumeError


def test_blocks_lie_in_their_rows_and_half_are_told_nothing() -> None:
    """Every slot has a token to predict, and none that the target was given; what is told leaves slots."""
    generator = torch.Generator().manual_seed(1)
    blocks = random_blocks(
        50, 40, first=9, length=30, block=8, most_revealed=6, generator=generator
    )
    assert int(blocks.anchors_RA.min()) == 8
    assert int(blocks.anchors_RA.max()) == 30 - 8 - 1
    assert int(blocks.revealed_RA.max()) == 6
    assert 0.4 < float((blocks.revealed_RA == 0).float().mean()) < 0.6


def test_losses_count_the_slots_that_predict() -> None:
    """Tokens behind the block, and those that are told, change nothing in the loss of others; a shift of labels does."""
    net = small_net(small_config(most_revealed=2))
    tokens = torch.randint(24, (1, 14), generator=torch.Generator().manual_seed(1))
    states = torch.from_numpy(states_of(net.config, 14))[None]
    last = torch.from_numpy(states_of(net.config, 14, seed=1))[None, :, 0]

    def loss(tokens: torch.Tensor, last: torch.Tensor, told: int = 0) -> float:
        blocks = Blocks(torch.tensor([[5]]), torch.tensor([[told]]))
        return float(block_loss(net, tokens, states, last, blocks, "overlap"))

    other, other_last = tokens.clone(), last.clone()
    other[0, 10:] = 0
    other[0, :5] = 0
    other_last[0, :5] = 0.0
    other_last[0, 9:] = 0.0
    assert loss(other, other_last) == pytest.approx(loss(tokens, last), rel=1e-5)
    other_last[0, 5] = 0.0
    assert loss(other, other_last) != pytest.approx(loss(tokens, last), rel=1e-3)
    # The law at the first slot says what the second one holds, which is told here.
    told = last.clone()
    told[0, 5] = 0.0
    assert loss(tokens, told, told=1) == pytest.approx(loss(tokens, last, told=1), rel=1e-5)
    assert loss(tokens, torch.roll(last, 1, dims=1)) != pytest.approx(loss(tokens, last), rel=1e-3)


def test_acceptance_of_a_net_that_agrees_and_of_one_that_does_not() -> None:
    """By slot: the net's own draws against themselves, and against those of the slot before."""
    net = small_net(small_config(rank=0, has_confidence=False))
    block = net.config.block
    states = torch.from_numpy(states_of(net.config, 12))[None]
    tokens = torch.zeros(1, 12, dtype=torch.int64)
    at = 5
    blocks = Blocks(torch.tensor([[at]]), torch.tensor([[0]]))
    h = block_states(net, tokens, states, blocks)[0, 0]
    last = torch.zeros(1, 12, net.config.width)
    last[0, at : at + block] = h
    features = torch.cat((states.flatten(-2), last), dim=-1)
    held = HeldOut(tokens[:, : at + block + 1], features[:, : at + block + 1], at + 1)
    table = net.unary(torch.eye(net.config.width)).T
    report = block_acceptance(net, held, product(table))
    assert len(report.first) == block
    assert report.first == (1.0,) * block
    assert report.overlap == pytest.approx((1.0,) * block, abs=1e-3)
    late = block_acceptance(net, held, product(table), lag=1)
    assert late.first == (1.0,) * (block - 1)
    shifted = torch.cat((states.flatten(-2), last.roll(1, 1)), dim=-1)
    wrong = HeldOut(held.tokens_BL, shifted[:, : at + block + 1], held.first)
    assert min(block_acceptance(net, wrong, product(table)).overlap) < 0.9


def test_layers_are_spread_evenly() -> None:
    """From the second block's output to that of the last but two."""
    assert taps_of(3, 20) == (2, 10, 18)
    assert taps_of(5, 36) == (2, 10, 18, 26, 34)
    assert taps_of(1, 2) == (1,)


def options_of(data: Path, out: Path, **given: object) -> DsparkTrainingOptions:
    """A training of seconds on the shipped target."""
    small = {
        "steps": 4,
        "inner": 16,
        "block": 4,
        "most_revealed": 2,
        "rank": 4,
        "num_layers": 1,
        "text_rows": 8,
        "own_rows": 8,
        "row_length": 16,
        "prompt_length": 6,
        "rows_per_step": 2,
        "blocks_per_row": 2,
        "minutes": 0.0,
        "device": "cpu",
    }
    return DsparkTrainingOptions(data=data, out=out, **{**small, **given})  # type: ignore[arg-type]


def test_training_from_files_to_a_folder_that_loads(tiny_data: Path, tmp_path: Path) -> None:
    """It is measured by slot, with states there and late; done again, nothing is; a longer run goes on, one on other texts does not."""
    result = run(options_of(tiny_data, tmp_path))
    reports = result.report["acceptance"]
    late = [f"{count} late, {how}" for count in (1, 2) for how in ("re-rooted", "told")]
    assert list(reports) == ["all states", *late]
    assert len(reports["all states"]["text"]["first"]) == 4
    assert len(reports["2 late, told"]["text"]["first"]) == 2
    assert json.loads((tmp_path / "report.json").read_text()) == json.loads(json.dumps(reports))
    net = load_block_net(tmp_path / "dspark")
    assert net.config.taps == (2, 10, 18)
    assert net.config.target_fingerprint
    assert "2602.06036" in (tmp_path / "dspark" / "README.md").read_text()
    assert run(options_of(tiny_data, tmp_path)).report == result.report
    before = net.state_dict()["fc.weight"]
    run(options_of(tiny_data, tmp_path, steps=6))
    assert not torch.equal(load_block_net(tmp_path / "dspark").state_dict()["fc.weight"], before)
    other = shutil.copytree(tiny_data, tmp_path / "other")
    with (other / "prose.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"book": "b", "module": "m", "title": "More", "text": "One more."}))
    with pytest.raises(ResumeError, match="use the same settings, another output folder"):
        run(options_of(other, tmp_path, steps=6))
    with pytest.raises(
        ResumeError, match=r"settings rows_per_step=\d+, this one has rows_per_step=1;"
    ):
        run(options_of(tiny_data, tmp_path, steps=6, rows_per_step=1))


def test_rank_zero_is_dflash(tiny_data: Path, tmp_path: Path) -> None:
    """No Markov head, no confidence, its own objective; and the bound on the time holds."""
    run(options_of(tiny_data, tmp_path, rank=0, most_revealed=0, steps=400, minutes=1e-6))
    net = load_block_net(tmp_path / "dspark")
    assert net.markov_head is None
    assert net.confidence_head is None


def test_options_that_leave_no_slot_are_refused() -> None:
    """With the field's name."""
    with pytest.raises(ValueError, match="most_revealed"):
        DsparkTrainingOptions(data=Path(), out=Path(), block=4, most_revealed=3)
    with pytest.raises(ValueError, match="num_heads"):
        DsparkTrainingOptions(data=Path(), out=Path(), num_heads=0)
    with pytest.raises(ValueError, match="row_length"):
        DsparkTrainingOptions(data=Path(), out=Path(), row_length=40)
