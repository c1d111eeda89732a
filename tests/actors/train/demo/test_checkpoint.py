"""Progress files and model folders."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from outrider.actors.train.demo.recipe import ModelShape, build
from outrider.actors.train.loop.differing_settings import differing
from outrider.actors.train.loop.training_checkpoint import (
    Progress,
    load_progress,
    save_model,
    save_progress,
    weights_digest,
)
from outrider.actors.train.text.train_tokenizer import train_tokenizer
from outrider.actors.train.training_errors import ResumeError

SHAPE = ModelShape(hidden=16, layers=1, heads=2, key_value_heads=1, intermediate=16, vocabulary=262)
SPECIAL = {"bos": 0, "eos": 1, "pad": 2}


def progress(step: int) -> Progress:
    """Some progress."""
    return Progress("run", step, {"w": torch.ones(2)}, [{}], torch.get_rng_state())


def test_progress_comes_back(tmp_path: Path) -> None:
    """What was saved last is what is read."""
    path = tmp_path / "p" / "x.pt"
    for step in (3, 5):
        save_progress(path, progress(step))
    loaded = load_progress(path, "run")
    assert loaded is not None
    assert loaded.step == 5
    assert torch.equal(loaded.model["w"], torch.ones(2))


def test_no_progress_is_none(tmp_path: Path) -> None:
    """A fresh run has nothing to resume."""
    assert load_progress(tmp_path / "x.pt", "run") is None


def test_a_kill_while_writing_leaves_the_last_good_file(tmp_path: Path) -> None:
    """A half-written file beside it is ignored and replaced."""
    path = tmp_path / "x.pt"
    save_progress(path, progress(3))
    (tmp_path / "x.pt.partial").write_bytes(b"half")
    loaded = load_progress(path, "run")
    assert loaded is not None
    assert loaded.step == 3
    save_progress(path, progress(4))
    assert not (tmp_path / "x.pt.partial").exists()


def test_other_settings_are_refused(tmp_path: Path) -> None:
    """Progress of another run is not mixed in."""
    save_progress(tmp_path / "x.pt", progress(3))
    with pytest.raises(ResumeError, match="saved by a run with settings run, this one has other"):
        load_progress(tmp_path / "x.pt", "other")


def test_only_the_settings_that_differ_are_shown(tmp_path: Path) -> None:
    """Of long ones, with the words before them that say what they are."""
    same = " ".join(f"{name}: {len(name)}," for name in ("layers", "heads", "width") * 20)
    save_progress(tmp_path / "x.pt", replace(progress(3), fingerprint=f"{same} rate: 0.1 {same}"))
    with pytest.raises(ResumeError) as caught:
        load_progress(tmp_path / "x.pt", f"{same} rate: 0.2 {same}")
    assert "rate: 0.1, this one has 5, rate: 0.2;" in str(caught.value)
    assert len(str(caught.value)) < 300


def fingerprint(path: str, **changes: object) -> str:
    """Of a run, as trainers write it."""
    shape = {
        "block": 8,
        "scaling": {},
        "target": "a b",
        "taps": [2, 10, 18],
        "width": 160,
    } | changes
    rows = shape.pop("rows", [1280, 1024])
    return (
        f"{json.dumps(shape)} 8x16 of {rows} 0.02 0.003 seed={len(path)} "
        f"on text of {path}, tokens 0 to 144; own writing of {path}, tokens 32 to 144"
    )


@pytest.mark.parametrize(
    ("changes", "saved", "present"),
    [
        ({"taps": [2, 6, 18]}, "taps: [2, 10, 18]", "taps: [2, 6, 18]"),
        ({"taps": [2, 10], "width": 64}, "taps: [2, 10, 18], width: 160", "taps: [2, 10], width: 64"),
        ({"scaling": {"type": [1]}}, "scaling: {}", 'scaling: {"type": [1]}'),
        ({"target": "a c"}, 'target: "a b"', 'target: "a c"'),
        ({"rank": 4}, "no rank", "rank: 4"),
        ({"rows": [1280, 64]}, "8x16 of [1280, 1024]", "8x16 of [1280, 64]"),
    ],
)  # fmt: skip
def test_settings_that_differ_are_named_with_both_whole_values(
    changes: dict[str, object], saved: str, present: str
) -> None:
    """Lists and objects are not cut, and nothing that is the same is told."""
    assert differing(fingerprint("/x y/a"), fingerprint("/x y/a", **changes)) == (saved, present)


def test_paths_with_blanks_and_long_values() -> None:
    """A path is whole; of a value that is very long the beginning and the end are shown."""
    saved, present = differing(fingerprint("/x y z/a"), fingerprint("/x y z/bcd"))
    rows = "text of /x y z/{}, tokens 0 to 144; own writing of /x y z/{}, tokens 32 to 144"
    assert saved == f"seed=8, {rows.format('a', 'a')}"
    assert present == f"seed=10, {rows.format('bcd', 'bcd')}"
    saved, present = differing(
        fingerprint("/x", taps=list(range(500))), fingerprint("/x", taps=[*range(499), 7])
    )
    assert saved.startswith("taps: [0, 1, 2,")
    assert saved.endswith("498, 499]")
    assert present.endswith("498, 7]")
    assert len(saved) < 200


def test_fingerprints_that_differ_in_writing_only() -> None:
    """Something is said nevertheless."""
    assert differing('{"a": 1}', '{"a":1}') == ('{"a": 1}', '{"a":1}')


def test_unreadable_progress_says_what_to_do(tmp_path: Path) -> None:
    """A damaged file is named, with the way out."""
    (tmp_path / "x.pt").write_bytes(b"nonsense")
    with pytest.raises(ResumeError, match=r"x\.pt: unreadable .* delete it"):
        load_progress(tmp_path / "x.pt", "run")


def test_saved_model_is_bfloat16_and_whole(tmp_path: Path) -> None:
    """The folder loads on its own; saving again replaces it and leaves nothing beside it."""
    tokenizer = train_tokenizer(["abc"], 262)
    for seed in (0, 1):
        torch.manual_seed(seed)
        model = build(SHAPE, SPECIAL)
        save_model(tmp_path / "m", model, tokenizer)
    loaded = LlamaForCausalLM.from_pretrained(tmp_path / "m")
    assert loaded.dtype == torch.bfloat16
    assert weights_digest(loaded) == weights_digest(torch.nn.Module.to(model, torch.bfloat16))
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
