"""The file of a decision model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.actors.speculation.choice.test_decision import random_decision

from outrider.actors import demo
from outrider.actors.draft.stopping.decision_place import FILE_NAME
from outrider.actors.draft.stopping.stop_model_file import (
    find_decision,
    read_decision,
    save_decision,
)


def test_what_is_saved_is_found(tmp_path: Path) -> None:
    """With six digits of each weight, in a few kilobytes."""
    model = random_decision(4)
    path = save_decision(tmp_path, model, draft="abc", report={"area": 0.7})
    found = find_decision(tmp_path, "abc")
    assert found is not None
    assert np.allclose(found.hidden_FH, model.hidden_FH, rtol=1e-5)
    assert np.allclose(found.output_H, model.output_H, rtol=1e-5)
    assert path.stat().st_size < 12_000
    assert [file.name for file in tmp_path.iterdir()] == [FILE_NAME]


def test_a_model_of_another_draft_model_is_not_used(tmp_path: Path) -> None:
    """Nor is one where there is none."""
    assert find_decision(tmp_path, "abc") is None
    assert find_decision(None, "abc") is None
    save_decision(tmp_path, random_decision(4), draft="abc", report=None)
    assert find_decision(tmp_path, "other") is None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"version": 2}', "null"])
def test_other_files_are_refused(tmp_path: Path, content: str) -> None:
    """With the path and what to do."""
    path = tmp_path / FILE_NAME
    path.write_text(content)
    with pytest.raises(ValueError, match=r"decision.json is not a decision model.*outrider train"):
        read_decision(path)


def test_misshapen_weights_are_refused(tmp_path: Path) -> None:
    """The shape is named."""
    path = save_decision(tmp_path, random_decision(4), draft="abc", report=None)
    content = json.loads(path.read_text())
    content["output_H"] = content["output_H"][:-1]
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="output_H has shape"):
        read_decision(path)


@pytest.mark.parametrize("name", demo.DRAFTS)
def test_shipped_decision_models_can_be_read(name: str) -> None:
    """Each shipped draft model has one; `outrider train decision` makes it again."""
    model, draft = read_decision(demo.path(name) / FILE_NAME)
    assert len(draft) == 64
    assert 0.0 < float(model.scores(np.zeros((1, 11), dtype=np.float32))[0]) < 1.0
