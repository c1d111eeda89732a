"""What a training is refused for before any work: its net, its target, its texts, its folder. A refused one leaves nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.actors.draft import reference_nets as plain
from transformers import (
    BioGptConfig,
    BioGptForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
)

from outrider.actors import demo
from outrider.actors.train.block.dspark_options import DsparkTrainingOptions
from outrider.actors.train.choice.trainer_registry import TRAINERS
from outrider.actors.train.ctc.ctc_options import CtcTrainingOptions
from outrider.actors.train.demo.train_demo import train_demo
from outrider.actors.train.eagle.eagle_options import EagleTrainingOptions
from outrider.actors.train.features.target_shape_checks import check_heads, taps_of
from outrider.actors.train.text.train_tokenizer import load_tokenizer
from outrider.actors.train.trainer_options import TargetTrainerOptions
from outrider.actors.train.training_errors import DataError, TrainError

READS_LAYERS = ["dspark", "ctc", "eagle3"]
OF_ONE_TARGET = [name for name in TRAINERS if issubclass(TRAINERS[name].options, TargetTrainerOptions)]  # fmt: skip


def trained(name: str, out: Path, **given: object) -> None:
    """Runs a trainer on texts that are not there, where nothing else is said."""
    spec = TRAINERS[name]
    spec.run(spec.options(**{"data": out.parent / "no texts", "out": out, **given}))


@pytest.mark.parametrize("name", READS_LAYERS)
@pytest.mark.parametrize(
    ("changes", "given", "message"),
    [
        ({}, {"num_heads": 5}, "num_heads is 5; it must divide the target's width 24"),
        ({}, {"num_heads": 8}, "num_heads is 8; it must divide the target's width 24"),
        ({"hidden_size": 160}, {"num_heads": 7}, "num_heads is 7; .* width 160 into even parts"),
        (
            {"num_hidden_layers": 8},
            {"taps": 30},
            "taps is 30; of the target's 8 blocks layers 2 to 6 .* 1 to 5",
        ),
        ({"num_hidden_layers": 8}, {"taps": 6}, "taps is 6; .* so give 1 to 5"),
        ({"num_hidden_layers": 2}, {}, "taps is 3; of the target's 2 blocks .* 1 to 1"),
    ],
)
def test_nets_that_do_not_fit_the_target(
    tmp_path: Path, name: str, changes: dict[str, int], given: dict[str, int], message: str
) -> None:
    """Before texts are looked for; a net of fewer layers than was asked for is none."""
    target, _, _ = plain.target_folder(tmp_path / "t", **changes)
    with pytest.raises(TrainError, match=message):
        trained(name, tmp_path / "out", target=str(target), **given)


def test_as_many_layers_as_were_asked_for() -> None:
    """In the target, ascending, and none twice; else an error."""
    for num_blocks in range(1, 40):
        most = max(num_blocks - 3, 1 + (num_blocks == 3))
        for count in range(1, most + 1):
            taps = taps_of(count, num_blocks)
            assert len(set(taps)) == count
            assert list(taps) == sorted(taps, key=int)
            assert 0 <= int(taps[0]) <= int(taps[-1]) < num_blocks
        with pytest.raises(ValueError, match=f"give 1 to {most}"):
            taps_of(most + 1, num_blocks)
    check_heads(4, 64)


def test_key_heads_that_do_not_divide_the_heads(tmp_path: Path) -> None:
    """As the other trainers say it, and behind what is wrong with the heads."""
    target, _, _ = plain.target_folder(tmp_path / "t", num_hidden_layers=9)
    with pytest.raises(TrainError, match="num_key_heads is 3; it must divide num_heads 4"):
        trained("eagle3", tmp_path / "out", target=str(target), num_key_heads=3)
    with pytest.raises(ValueError, match="num_key_heads is 0; it must be at least 1"):
        EagleTrainingOptions(data=Path(), out=Path(), num_key_heads=0)


@pytest.mark.parametrize("name", OF_ONE_TARGET)
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"matrix_rate": -1.0}, "matrix_rate is -1.0; give a number above 0"),
        ({"matrix_rate": float("inf")}, "matrix_rate is inf"),
        ({"other_rate": float("nan")}, "other_rate is nan"),
        ({"seed": -1}, "seed is -1; give 0 to 4294967295"),
        ({"seed": 2**32}, "seed is 4294967296"),
    ],
)
def test_rates_and_seeds_that_are_none(name: str, given: dict[str, float], message: str) -> None:
    """Else the first step would find out, when the target has read and written all rows."""
    with pytest.raises(ValueError, match=message):
        TRAINERS[name].options(data=Path(), out=Path(), **given)


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("mlp_speculator", {"own_rate": -0.1}, "own_rate is -0.1; give a number above 0"),
        ("mlp_speculator", {"text_steps": 0, "own_steps": 0}, "nothing is learnt"),
        ("mlp_speculator", {"inputs": "eagle", "tables": "own"}, "needs tables: 'target'"),
        ("eagle3", {"reuse_steps": -1}, "reuse_steps is -1; it must not be negative"),
        ("mlp_speculator", {"prompt_length": 0}, "prompt_length is 0; it must be at least 1"),
        ("dspark", {"prompt_length": 1}, "prompt_length is 1; it must be at least 2"),
        ("eagle3", {"prompt_length": -1}, "prompt_length is -1; it must be at least 2"),
        ("ctc", {"row_length": 32}, "row_length is 32; it must be above prompt_length 32 by more"),
    ],
)
def test_options_of_a_method_that_cannot_be(
    name: str, given: dict[str, object], message: str
) -> None:
    """Known from the options alone."""
    with pytest.raises(ValueError, match=message):
        TRAINERS[name].options(data=Path(), out=Path(), **given)


@dataclass(frozen=True)
class UnknownShape:
    """A target whose shape is known only when it is loaded, as of a hub."""

    head_VD: Any = None
    width: int = 24
    num_blocks: int = 8


@pytest.mark.parametrize(
    "options", [DsparkTrainingOptions, CtcTrainingOptions, EagleTrainingOptions]
)
def test_a_target_that_is_loaded_first(
    tmp_path: Path, tiny_data: Path, monkeypatch: pytest.MonkeyPatch, options: type[Any]
) -> None:  # fmt: skip
    """Then its shape is compared behind that."""
    from outrider.actors.train.features import frozen_target

    monkeypatch.setattr(frozen_target, "target_shape", lambda name: None)
    monkeypatch.setattr(frozen_target, "load_target", lambda name, device: UnknownShape())
    with pytest.raises(TrainError, match="taps is 30"):
        frozen_target.target_of(options(data=tiny_data, out=tmp_path / "out", taps=30))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", OF_ONE_TARGET)
def test_a_draft_net_is_refused_before_texts_are(tmp_path: Path, name: str) -> None:
    """Of two mistakes the target is named: it takes no reading of texts."""
    with pytest.raises(TrainError, match="demo:eagle3 is a draft net of the method eagle3"):
        trained(name, tmp_path / "out", target="demo:eagle3")


@pytest.mark.parametrize("name", OF_ONE_TARGET)
def test_a_refused_training_leaves_no_folder(tmp_path: Path, tiny_data: Path, name: str) -> None:
    """Whether texts are missing or too few, or the target is there and is no model."""
    target, _, _ = plain.target_folder(tmp_path / "t", num_hidden_layers=9, model_type="unknown")
    few = tmp_path / "few.txt"
    few.write_text("One text.\n")
    out = tmp_path / "a" / "out"
    with pytest.raises(DataError, match="no such folder or file"):
        trained(name, out, target=str(target))
    with pytest.raises(DataError, match="too few texts"):
        trained(name, out, target=str(target), data=few)
    with pytest.raises(TrainError, match=r"target .*unknown"):
        trained(name, out, target=str(target), data=tiny_data)
    assert not out.parent.exists()


@pytest.mark.parametrize("name", OF_ONE_TARGET)
def test_rows_longer_than_the_target_reads(tmp_path: Path, tiny_data: Path, name: str) -> None:
    """A target with a table of positions has none for them, and no service goes so far."""
    target = tmp_path / "t"
    shape = LlamaConfig(
        vocab_size=4096,
        hidden_size=64,
        intermediate_size=16,
        num_hidden_layers=9,
        num_attention_heads=2,
        max_position_embeddings=64,
    )
    LlamaForCausalLM(shape).save_pretrained(target)
    load_tokenizer(demo.path("target")).save_pretrained(target)
    out = tmp_path / "out"
    with pytest.raises(TrainError, match=r"row_length is 1.*; the target reads at most 64 tokens"):
        trained(name, out, target=str(target), data=tiny_data)
    assert not out.exists()


@pytest.mark.parametrize("name", ["ctc", "diffusion", "dspark", "eagle3", "mlp_speculator"])
def test_a_target_that_lends_no_tables(tmp_path: Path, tiny_data: Path, name: str) -> None:
    """Drafters would not find its embedding when they are served. Said before any row is made."""
    target, out = tmp_path / "t", tmp_path / "out"
    shape = BioGptConfig(
        vocab_size=4096,
        hidden_size=64,
        intermediate_size=16,
        num_hidden_layers=9,
        num_attention_heads=4,
    )
    BioGptForCausalLM(shape).save_pretrained(target)
    load_tokenizer(demo.path("target")).save_pretrained(target)
    with pytest.raises(
        TrainError, match=r"cannot borrow the target's embedding and head .*; train sorted"
    ):
        trained(name, out, target=str(target), data=tiny_data)
    assert not out.exists()


def test_a_target_that_no_service_serves(tmp_path: Path, tiny_data: Path) -> None:
    """Transformers reads it, and its states could be learnt from; but who would serve what comes of it?"""
    target, out = tmp_path / "t", tmp_path / "out"
    shape = MambaConfig(vocab_size=4096, hidden_size=64, num_hidden_layers=9)
    MambaForCausalLM(shape).save_pretrained(target)
    load_tokenizer(demo.path("target")).save_pretrained(target)
    with pytest.raises(TrainError, match=r"target .* has layers of type linear_attention"):
        trained("sorted", out, target=str(target), data=tiny_data, steps=1, text_rows=2, own_rows=2)
    assert not out.exists()


def test_a_target_that_is_not_whole(tmp_path: Path, tiny_data: Path) -> None:
    """Its own fault, in a sentence: a configuration that contradicts itself, and weights that are missing, which would be random numbers."""
    target, _, _ = plain.target_folder(tmp_path / "t", num_attention_heads=7)
    given = {"target": str(target), "data": tiny_data}
    with pytest.raises(TrainError, match="not a multiple of the number of attention heads"):
        trained("mlp_speculator", tmp_path / "out", **given)
    changed = (target / "config.json").read_text().replace(": 7", ": 4")
    (target / "config.json").write_text(changed)
    load_tokenizer(demo.path("target")).save_pretrained(target)
    with pytest.raises(TrainError, match=r"lacks \d+ weights"):
        trained("mlp_speculator", tmp_path / "out", **given)


def _demo(out: Path) -> None:
    train_demo(out.parent / "no texts", out)


def _dspark(out: Path) -> None:
    trained("dspark", out, target="no/such/folder/")


@pytest.mark.parametrize("run", [_demo, _dspark])
def test_a_file_is_no_folder_for_a_result(tmp_path: Path, run: Callable[[Path], None]) -> None:
    """The first thing that is said, also of a place in a file and of a link that leads nowhere."""
    file = tmp_path / "model.bin"
    file.write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for out in (file, file / "in it", tmp_path / "link"):
        with pytest.raises(TrainError, match=r"out is .*(which|and .*) is a file; a folder"):
            run(out)


@pytest.mark.parametrize("run", [_demo, _dspark])
@pytest.mark.parametrize("out", [Path("/proc/out"), Path("/tmp") / ("x" * 300)])
def test_a_folder_that_cannot_be_made(run: Callable[[Path], None], out: Path) -> None:
    """Root, too, makes none among the processes, and no name is that long."""
    with pytest.raises(TrainError, match=r"out is .*; give another folder"):
        run(out)
