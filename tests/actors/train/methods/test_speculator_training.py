"""The trainer of speculators: what it learns, that it goes on where it was, and what it leaves."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.actors.draft.bench import VOCAB_SIZE
from tests.actors.draft.heads.nets import table_net

from outrider.actors.draft.heads.speculator_config import SpeculatorConfig
from outrider.actors.draft.heads.speculator_file import load_speculator
from outrider.actors.draft.heads.speculator_net import SpeculatorNet, matrix
from outrider.actors.engine.tables.tabular_engine import random_table
from outrider.actors.train.features.output_layer import product
from outrider.actors.train.features.training_rows import HeldOut
from outrider.actors.train.heads.head_evaluation import acceptance
from outrider.actors.train.heads.head_objective import Labels, speculator_loss
from outrider.actors.train.heads.speculator_options import SpeculatorOptions
from outrider.actors.train.loop.result_folder import hold_progress
from outrider.actors.train.methods.mlp_speculator_trainer import run
from outrider.actors.train.training_errors import ResumeError, TrainError

LOG_PROBS_VV = torch.from_numpy(
    random_table(VOCAB_SIZE, 1, seed=1, concentration=0.1).log_probs
).float()
OUTPUT = product(LOG_PROBS_VV.T.contiguous())
"""With one-hot states the target's logits are its table's."""


def written_by_target(rows: int, length: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Texts of a target that is a table, and its states, which are its last tokens."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.zeros(rows, length, dtype=torch.int64)
    for at in range(1, length):
        probs = LOG_PROBS_VV[tokens[:, at - 1]].exp()
        tokens[:, at] = torch.multinomial(probs, 1, generator=generator)[:, 0]
    return tokens, torch.nn.functional.one_hot(tokens, VOCAB_SIZE).float()


def net_of_table(num_stages: int = 3) -> SpeculatorNet:
    """The perfect net, with room for such states."""
    return table_net(LOG_PROBS_VV.numpy(), num_stages, width=VOCAB_SIZE)


def losses(tokens: torch.Tensor, states: torch.Tensor, labels: Labels, first: int = 0) -> float:
    """Of the perfect net."""
    loss = speculator_loss(
        net_of_table(), tokens, states, first=first, labels=labels, output=OUTPUT
    )
    return float(loss)


@pytest.mark.parametrize("first", [0, 9])
def test_a_perfect_net_has_no_loss(first: int) -> None:
    """Against the target's law its loss is zero at every stage; against tokens it is the text's own entropy."""
    tokens, states = written_by_target(8, 40)
    assert losses(tokens, states, "law", first) == pytest.approx(0.0, abs=1e-3)
    text = torch.nn.functional.nll_loss(
        LOG_PROBS_VV[tokens[:, :-1]].flatten(0, 1), tokens[:, 1:].flatten()
    )
    assert losses(tokens, states, "tokens", first) == pytest.approx(3 * float(text), rel=0.15)


@pytest.mark.parametrize("shift", [-1, 1])
def test_a_shift_of_tokens_against_states_is_seen(shift: int) -> None:
    """The usual mistake: the token behind the right one. It must cost what foresight is worth."""
    tokens, states = written_by_target(8, 40)
    shifted = torch.roll(states, shift, dims=1)[:, 2:-2]
    assert losses(tokens[:, 2:-2], shifted, "law") > 1.0


def test_acceptance_of_a_perfect_net_and_of_one_that_knows_nothing() -> None:
    """One accepts everything at every depth; the other what chance gives, and one token a pass is the target's own."""
    tokens, _ = written_by_target(8, 40)
    greedy = tokens.clone()
    for at in range(8, 40):
        greedy[:, at] = LOG_PROBS_VV[greedy[:, at - 1]].argmax(-1)
    held = HeldOut(greedy, torch.nn.functional.one_hot(greedy, VOCAB_SIZE).float(), 8)
    perfect = acceptance(net_of_table(), held, OUTPUT)
    assert perfect.first == perfect.among_four == (1.0, 1.0, 1.0)
    assert perfect.overlap == pytest.approx((1.0, 1.0, 1.0), abs=1e-3)
    assert perfect.tokens_a_pass == 4.0
    ignorant = net_of_table()
    matrix(ignorant.lm_heads[0]).zero_()
    assert max(acceptance(ignorant, held, OUTPUT).overlap) < 0.5


def options_of(data: Path, out: Path, **given: object) -> SpeculatorOptions:
    """A training of seconds on the target beside the texts."""
    small = {
        "heads": 2,
        "inner": 16,
        "text_steps": 4,
        "own_steps": 3,
        "text_rows": 8,
        "own_rows": 8,
        "row_length": 16,
        "prompt_length": 6,
        "rows_per_step": 4,
        "minutes": 0.0,
        "device": "cpu",
        "target": str(data.with_name("small-target")),
    }
    return SpeculatorOptions(data=data, out=out, **{**small, **given})  # type: ignore[arg-type]


def weights_of(folder: Path) -> dict[str, Sequence[float]]:
    """All weights of a speculator."""
    return {name: value.tolist() for name, value in load_speculator(folder).state_dict().items()}


@pytest.fixture
def whole(tiny_data: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished training, a copy of its own for each test. It is run once."""
    made = tmp_path_factory.getbasetemp() / "finished-speculator"
    if not made.exists():
        run(options_of(tiny_data, tmp_path / "first"))
        (tmp_path / "first").rename(made)
    return Path(shutil.copytree(made, tmp_path / "whole"))


def test_training_from_files_to_a_folder_that_loads(tiny_data: Path, tmp_path: Path) -> None:
    """Both stages are measured by depth; done again, nothing is; cut in two, the result is the same."""
    result = run(options_of(tiny_data, tmp_path / "whole"))
    folder = tmp_path / "whole" / "mlp_speculator"
    reports = result.report["acceptance"]
    assert list(reports) == ["on text", "on its own writing"]
    assert all(len(by["text"]["first"]) == 2 for by in reports.values())
    assert json.loads((folder.parent / "report.json").read_text()) == json.loads(
        json.dumps(reports)
    )
    config = load_speculator(folder).config
    assert config.vocab_size == 4096
    assert config.target_fingerprint
    assert "arXiv 2404.19124" in (folder / "README.md").read_text()
    whole = weights_of(folder)
    assert run(options_of(tiny_data, tmp_path / "whole")).report == result.report
    first = run(options_of(tiny_data, tmp_path / "parts", own_steps=0))
    assert list(first.report["acceptance"]) == ["on text"], "a stage that is left out is not told"
    assert weights_of(tmp_path / "parts" / "mlp_speculator") != whole
    run(options_of(tiny_data, tmp_path / "parts"))
    assert weights_of(tmp_path / "parts" / "mlp_speculator") == whole
    with pytest.raises(ResumeError, match="same settings"):
        run(options_of(tiny_data, tmp_path / "parts", inner=24))


def test_a_bound_on_the_time_cuts_and_still_ends(tiny_data: Path, tmp_path: Path) -> None:
    """With no time at all there is a step of each stage, and a speculator. What was learnt depends on the rows, which stay as many."""
    many = {"text_rows": 80, "own_rows": 80, "text_steps": 400, "own_steps": 400}
    options = options_of(tiny_data, tmp_path, minutes=1e-6, **many)
    first = run(options)
    assert load_speculator(tmp_path / "mlp_speculator").config.inner == 16
    cache = tmp_path / "progress" / "features-text" / "cache.json"
    assert json.loads(cache.read_text())["rows"] == 64
    assert run(options).report == first.report
    assert json.loads(cache.read_text())["rows"] == 64


def test_other_texts_or_rows_are_refused_and_leave_what_is_there(
    tiny_data: Path, whole: Path
) -> None:
    """Also other texts in the same place. Nothing is thrown away, unless all begins again."""
    out = whole
    kept = {file: file.read_bytes() for file in (out / "progress").glob("features-*/*")}
    with pytest.raises(ResumeError, match="room: 8, this one has room: 12; use the same settings"):
        run(options_of(tiny_data, out, text_rows=12))
    file = tiny_data / "prose.jsonl"
    text = file.read_text()
    file.write_text(text.replace("follows", "precedes"))
    with pytest.raises(ResumeError, match=r"digest .* this one has .* digest"):
        run(options_of(tiny_data, out))
    assert {file: file.read_bytes() for file in kept} == kept
    run(options_of(tiny_data, out, text_rows=12, resume=False))
    file.write_text(text)
    run(options_of(tiny_data, out, resume=False))
    assert {file: file.read_bytes() for file in kept} == kept


def test_a_second_stage_of_another_run_is_refused_before_the_first(
    tiny_data: Path, whole: Path
) -> None:
    """What it went on from, or what it is, would be another: nothing has been done by then, and the finished net stays."""
    kept = {file: file.read_bytes() for file in whole.rglob("*") if file.is_file()}
    for given, message in (
        ({"text_steps": 6}, "settings text_steps=4, this one has text_steps=6;"),
        ({"own_steps": 2}, "a run of 3 steps, this one has 2"),
        (
            {"own_rate": 0.5},
            "matrix_rate=0.006 other_rate=0.0009, this one has matrix_rate=0.01 other_rate=0.0015;",
        ),
        ({"own_rows": 12}, "room: 8, this one has room: 12"),
        ({"labels": "tokens"}, "labels=law, this one has labels=tokens;"),
    ):
        with pytest.raises(ResumeError, match=message):
            run(options_of(tiny_data, whole, **given))
        assert {file: file.read_bytes() for file in kept} == kept


def test_one_process_at_a_time(tiny_data: Path, tmp_path: Path) -> None:
    """Two would write the same files; the second is refused while the first is there."""
    hold = f"import sys; from pathlib import Path; from {hold_progress.__module__} import *; hold_progress(Path(sys.argv[1])); print(flush=True); input()"
    command = (sys.executable, "-c", hold, str(tmp_path))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(ResumeError, match="another training is at work"):
            run(options_of(tiny_data, tmp_path))
        other.kill()
    run(options_of(tiny_data, tmp_path))


def test_a_target_without_hidden_states_is_refused(tiny_data: Path, tmp_path: Path) -> None:
    """A table has none."""
    with pytest.raises(TrainError, match="no hidden states"):
        run(options_of(tiny_data, tmp_path, target="law:agree70"))


def test_half_of_what_the_state_says_is_left_after_all_stages() -> None:
    """The weights of state and token (Wertheimer et al. 2024): w_s^2 is 2^(-1/k), and the token has the rest."""
    for stages in (1, 3, 5):
        config = SpeculatorConfig(vocab_size=10, width=4, inner=8, num_stages=stages, tables="own")
        ratio = SpeculatorNet(config).token_ratio
        kept = 2.0 ** (-1.0 / stages)
        assert ratio**2 * kept == pytest.approx((1.0 - kept) * 8 / 2)
        assert np.prod([kept] * stages) == pytest.approx(0.5)
