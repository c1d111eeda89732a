"""The trainer of diffusion drafters: what it learns, that it goes on where it was, and what it leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tests.actors.draft.diffusion.small_diffusion import small_net

from outrider.actors.draft.diffusion.diffusion_file import load_diffusion_net
from outrider.actors.draft.on_states.net_folder import NetFolderError
from outrider.actors.train.block.block_objective import Blocks
from outrider.actors.train.diffusion.diffusion_evaluation import diffusion_acceptance
from outrider.actors.train.diffusion.diffusion_objective import diffusion_loss, diffusion_states
from outrider.actors.train.diffusion.diffusion_options import DiffusionTrainingOptions
from outrider.actors.train.features.output_layer import product
from outrider.actors.train.features.training_rows import HeldOut
from outrider.actors.train.methods.diffusion_trainer import run


def test_losses_count_what_is_foreseen_and_nothing_else() -> None:
    """The law of a token that a block is told, and of those before the first, changes nothing; that of every other does."""
    net = small_net()
    tokens = torch.randint(24, (1, 14), generator=torch.Generator().manual_seed(1))
    last = torch.randn(1, 14, 12, generator=torch.Generator().manual_seed(2))
    head = torch.randn(24, 12, generator=torch.Generator().manual_seed(3))

    def loss(last: torch.Tensor, *, told: int = 0, first: int = 12) -> float:
        blocks = Blocks(torch.tensor([[5]]), torch.tensor([[told]]))
        return float(diffusion_loss(net, tokens, last, product(head), blocks, first))

    def changed(place: int) -> torch.Tensor:
        other = last.clone()
        other[0, place] = 0.0
        return other

    # Slots 1 to 3 stand at positions 6 to 8; from `first` on, rows of the text count: those of positions 11 and 12.
    assert [loss(changed(place)) != pytest.approx(loss(last), rel=1e-5) for place in range(14)] == [
        place in (6, 7, 8, 11, 12) for place in range(14)
    ]
    assert loss(changed(6), told=2) == pytest.approx(loss(last, told=2), rel=1e-5)
    # Slot 2 holds the last token that is told, and foresees the first one that is not.
    assert loss(changed(7), told=2) != pytest.approx(loss(last, told=2), rel=1e-5)
    assert loss(torch.roll(last, 1, dims=1)) != pytest.approx(loss(last), rel=1e-3)


@pytest.mark.parametrize("starts", [(0,), (0, 1), (0, 2, 3), (0, 1, 2, 3)])
def test_acceptance_of_a_net_that_agrees_and_of_one_that_does_not(starts: tuple[int, ...]) -> None:
    """By token, in some steps: the net's own draws against themselves, and against those of another place."""
    net = small_net()
    block, at = net.config.block, 5
    tokens = torch.zeros(1, at + block + 1, dtype=torch.int64)
    last = torch.zeros(1, at + block + 1, net.config.width)
    for start in starts:
        blocks = Blocks(torch.tensor([[at]]), torch.tensor([[start]]))
        last[0, at + start : at + block] = diffusion_states(net, tokens, blocks)[1][0, 0, start:]
    head = net.unary(torch.eye(net.config.width)).T
    report = diffusion_acceptance(net, HeldOut(tokens, last, at + 1), product(head), starts)
    assert report.first == (1.0,) * block
    assert report.overlap == pytest.approx((1.0,) * block, abs=1e-3)
    wrong = HeldOut(tokens, last.roll(1, 1), at + 1)
    assert min(diffusion_acceptance(net, wrong, product(head), starts).overlap) < 0.9


def options_of(data: Path, out: Path, **given: object) -> DiffusionTrainingOptions:
    """A training of seconds on the target beside the texts."""
    small = {
        "steps": 4,
        "width": 16,
        "num_layers": 1,
        "num_heads": 2,
        "num_key_heads": 1,
        "inner": 16,
        "block": 4,
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
    return DiffusionTrainingOptions(data=data, out=out, **{**small, **given})  # type: ignore[arg-type]


def test_training_from_files_to_a_folder_that_loads(tiny_data: Path, tmp_path: Path) -> None:
    """It is measured by token in 1, 2 and 4 steps; done again, nothing is; a longer run goes on."""
    result = run(options_of(tiny_data, tmp_path))
    reports = result.report["acceptance"]
    assert [name[:7] for name in reports] == ["1 step", "2 steps", "4 steps"]
    assert len(reports["4 steps, told 0, 1, 2, 3"]["text"]["first"]) == 4
    assert json.loads((tmp_path / "report.json").read_text()) == json.loads(json.dumps(reports))
    net = load_diffusion_net(tmp_path / "diffusion")
    assert net.config.target_fingerprint
    rates = reports["1 step"]["own, T = 1"]
    assert list(net.config.first) == list(rates["first"])
    assert list(net.config.among) == list(rates["among_four"])
    assert "2408.05636" in (tmp_path / "diffusion" / "README.md").read_text()
    assert run(options_of(tiny_data, tmp_path)).report == result.report
    before = net.state_dict()["in_proj.weight"]
    run(options_of(tiny_data, tmp_path, steps=6))
    assert not torch.equal(
        load_diffusion_net(tmp_path / "diffusion").state_dict()["in_proj.weight"], before
    )
    path = tmp_path / "diffusion" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "tables_digest": "0" * 64}))
    with pytest.raises(NetFolderError, match="was trained for another target"):
        load_diffusion_net(tmp_path / "diffusion")
    path.write_text(json.dumps({**config, "among": [0.5]}))
    with pytest.raises(NetFolderError, match="among"):
        load_diffusion_net(tmp_path / "diffusion")


def test_options_that_make_no_net_are_refused() -> None:
    """With the field's name."""
    with pytest.raises(ValueError, match="width"):
        DiffusionTrainingOptions(data=Path(), out=Path(), width=100, num_heads=3)
    with pytest.raises(ValueError, match="num_layers"):
        DiffusionTrainingOptions(data=Path(), out=Path(), num_layers=0)
