"""Where names of models lead."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.actors.demo import NAMES, path
from outrider.actors.engine.checkpoint.model_source import ModelSource, resolve_model


def test_names_of_each_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table's file, a shipped model, a folder and a hub id are told apart; a folder goes before a hub id."""
    (tmp_path / "owner" / "name").mkdir(parents=True)
    (tmp_path / "owner" / "name" / "config.json").write_text("{}")
    (tmp_path / "t.npz").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    assert resolve_model("tabular:t.npz") == ModelSource(location="t.npz", is_tabular=True)
    assert resolve_model(f"demo:{NAMES[0]}") == ModelSource(location=str(path(NAMES[0])))
    assert resolve_model("owner/name") == ModelSource(location="owner/name")
    assert resolve_model("owner/other") == ModelSource(location="owner/other", is_local=False)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("", "model is empty"),
        ("tabular:", "there is no file"),
        ("demo:", "choose among"),
        ("a/b/c", "there is no such folder"),
        ("/nowhere/at/all", "there is no such folder"),
        ("~/nowhere", "there is no such folder"),
        ("folder", "has no config.json"),
        ("file", "there is no such folder"),
    ],
)
def test_names_that_lead_nowhere(
    model: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is plainly a path, or a folder without a model, is refused without asking a hub."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        resolve_model(model)
