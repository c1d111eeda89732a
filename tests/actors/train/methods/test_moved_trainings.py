"""A training whose texts and target lie elsewhere now is the same training, and what it made finds its target from everywhere."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from outrider.actors.draft.block.block_file import load_block_net
from outrider.actors.draft.ctc.ctc_config import CtcConfig
from outrider.actors.draft.ctc.ctc_net import CtcNet
from outrider.actors.draft.diffusion.diffusion_file import load_diffusion_net
from outrider.actors.draft.eagle.eagle_file import load_eagle
from outrider.actors.draft.heads.speculator_file import load_speculator
from outrider.actors.train.choice.trainer_registry import TRAINERS

FEW: dict[str, dict[str, Any]] = {
    "ctc": {"steps": 2, "num_layers": 1, "inner": 16, "block": 4, "labels": 2},
    "diffusion": {"steps": 2, "num_layers": 1, "inner": 16, "block": 4},
    "dspark": {"steps": 2, "num_layers": 1, "inner": 16, "block": 4, "most_revealed": 2},
    "eagle3": {"steps": 2, "reuse_steps": 1, "inner": 16, "num_steps": 2},
    "mlp_speculator": {"text_steps": 2, "own_steps": 1, "heads": 2, "inner": 16},
    "sorted": {"steps": 2, "exits": (1,), "width": 16, "inner": 16, "num_heads": 2},
}
LOADS: dict[str, Any] = {
    "ctc": partial(load_block_net, config_of=CtcConfig, net_of=CtcNet),
    "diffusion": load_diffusion_net,
    "dspark": load_block_net,
    "eagle3": load_eagle,
    "mlp_speculator": load_speculator,
}
"""Of nets that borrow tables of the target."""


@pytest.mark.parametrize("name", FEW)
def test_folders_that_were_moved(
    tmp_path: Path,
    tiny_data: Path,
    small_target: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    """The same command with the new places finds everything done. The target was named as it is seen from the folder at hand."""
    shutil.copytree(small_target, tmp_path / "here" / "model")
    (tmp_path / "there").mkdir()

    def trained(data: Path, target: str) -> Any:
        rows = {"text_rows": 8, "own_rows": 8, "row_length": 24, "prompt_length": 6}
        options = TRAINERS[name].options(
            data=data, out=tmp_path / "out", target=target, minutes=0.0, device="cpu",
            rows_per_step=2, **rows, **FEW[name],
        )  # fmt: skip
        return TRAINERS[name].run(options).report

    def loaded() -> None:
        if name in LOADS:
            LOADS[name](tmp_path / "out" / name)

    monkeypatch.chdir(tmp_path / "here")
    report = trained(tiny_data, "model")
    monkeypatch.chdir(tmp_path)
    loaded()
    for place in (tmp_path / "here" / "model", tiny_data):
        shutil.move(place, tmp_path / "there" / place.name)
    files = [*(tmp_path / "out" / "progress").rglob("*.pt"), *tmp_path.rglob("features.npy")]
    before = {file: file.read_bytes() for file in files}
    assert trained(tmp_path / "there" / tiny_data.name, "there/model") == report
    assert {file: file.read_bytes() for file in files} == before
    loaded()
