"""The trainer of CTC drafters: what its losses ask for, that it goes on where it was, and what it leaves."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.actors.draft.block.small_block import small_config, small_frames, small_net, states_of

from outrider.actors.draft.block.block_config import BlockConfig
from outrider.actors.draft.block.block_file import load_block_net
from outrider.actors.draft.ctc.ctc_config import CtcConfig
from outrider.actors.draft.ctc.ctc_net import CtcNet
from outrider.actors.draft.on_states.net_folder import NetFolderError
from outrider.actors.train.ctc.ctc_evaluation import string_acceptance
from outrider.actors.train.ctc.ctc_objective import ctc_loss, prefix_loss
from outrider.actors.train.ctc.ctc_options import CtcTrainingOptions
from outrider.actors.train.features.output_layer import product
from outrider.actors.train.features.training_rows import HeldOut
from outrider.actors.train.methods.ctc_trainer import run


@pytest.mark.parametrize("loss_of", [ctc_loss, prefix_loss])
def test_frames_learn_a_string_with_a_repeat(loss_of: object) -> None:
    """By gradient steps alone the frames come to hold `2 2 1`, a blank between the equal ones, and to say so of no other string."""
    torch.manual_seed(0)
    raw = torch.zeros(1, 6, 5).normal_().requires_grad_()
    labels = torch.tensor([[2, 2, 1]])
    optimizer = torch.optim.Adam([raw], lr=0.3)
    for _ in range(60):
        optimizer.zero_grad()
        loss_of(raw.log_softmax(-1), labels).backward()  # type: ignore[operator]
        optimizer.step()
    best = raw.detach().argmax(-1)[0].tolist()
    kept = [one for at, one in enumerate(best) if at == 0 or one != best[at - 1]]
    assert [one for one in kept if one != 4][:3] == [2, 2, 1]


@pytest.mark.parametrize(
    "config", [small_frames(), small_config(rank=0, has_confidence=False)], ids=["frames", "slots"]
)
def test_acceptance_of_a_net_that_knows_and_of_one_that_does_not(config: BlockConfig) -> None:
    """A net whose slots say the token that the block was begun with: texts of one token are foreseen, others are not; trees hold their chains."""
    net = small_net(config)
    for parameter in net.parameters():
        parameter.mul_(0.01)
    net.norm.weight.fill_(8.0)
    width, vocab = config.width, config.vocab_size
    states = torch.from_numpy(states_of(config, 20))[None].flatten(-2)
    features = torch.cat((states, torch.zeros(1, 20, width)), dim=-1)
    table = net.unary(torch.eye(width)).T

    def passes(text: torch.Tensor) -> float:
        report = string_acceptance(net, HeldOut(text[None], features, 1), product(table))
        assert len(report.first) == config.reach
        assert report.tree_tokens_a_pass is not None
        assert report.tree_tokens_a_pass >= report.tokens_a_pass
        return report.tokens_a_pass

    same = [passes(torch.full((20,), token)) for token in range(vocab)]
    others = [passes((torch.arange(20) * 7 + token) % vocab) for token in range(vocab)]
    assert sum(same) / vocab > 1.5
    assert sum(others) / vocab < 1.3


def options_of(data: Path, out: Path, **given: object) -> CtcTrainingOptions:
    """A training of seconds on the target beside the texts."""
    small = {
        "steps": 4,
        "inner": 16,
        "block": 6,
        "labels": 3,
        "text_rows": 8,
        "own_rows": 8,
        "row_length": 16,
        "prompt_length": 6,
        "rows_per_step": 2,
        "blocks_per_row": 2,
        "minutes": 0.0,
        "device": "cpu",
        "target": str(data.with_name("small-target")),
    }
    return CtcTrainingOptions(data=data, out=out, **{**small, **given})  # type: ignore[arg-type]


def test_training_from_files_to_a_folder_that_loads(tiny_data: Path, tmp_path: Path) -> None:
    """Done again, nothing is; a longer run goes on; by cross-entropy the module is a block drafter of slots, and no CTC drafter."""
    result = run(options_of(tiny_data, tmp_path))
    reports = result.report["acceptance"]
    assert list(reports) == ["ctc"]
    assert len(reports["ctc"]["text"]["first"]) == 3
    assert reports["ctc"]["own, greedy"]["tree_tokens_a_pass"] >= 1.0

    def loaded(folder: str = "ctc") -> CtcNet:
        net = load_block_net(tmp_path / folder, config_of=CtcConfig, net_of=CtcNet)
        assert isinstance(net, CtcNet)
        return net

    net = loaded()
    assert isinstance(net.config, CtcConfig)
    assert net.config.labels == 3
    assert "2412.00061" in (tmp_path / "ctc" / "README.md").read_text()
    assert run(options_of(tiny_data, tmp_path)).report == result.report
    run(options_of(tiny_data, tmp_path, steps=6))
    assert not torch.equal(loaded().fc.weight, net.fc.weight)
    run(options_of(tiny_data, tmp_path / "compared", loss="cross_entropy"))
    assert type(load_block_net(tmp_path / "compared" / "dspark").config) is BlockConfig
    with pytest.raises(NetFolderError, match="not 'ctc'"):
        loaded("compared/dspark")


def test_shapes_that_hold_no_string_are_refused() -> None:
    """With the field's name."""
    with pytest.raises(ValueError, match="labels"):
        CtcTrainingOptions(data=Path(), out=Path(), block=4, labels=5)
    with pytest.raises(ValueError, match="labels"):
        small_frames(labels=9)
    with pytest.raises(ValueError, match="rank"):
        small_frames(rank=2)
