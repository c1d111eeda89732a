"""The file that tells scripts where a service is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from outrider.cluster.actor_status import ActorStatus
from outrider.cluster.ready_file import write_ready_file
from outrider.cluster.roster import Role

ACTOR = ActorStatus(name="t", role=Role.TARGET, model="m", address="127.0.0.1:1", pid=7)


def test_content_is_what_a_script_needs(tmp_path: Path) -> None:
    """The address, and who runs where."""
    file = tmp_path / "ready"
    write_ready_file(file, address="127.0.0.1:5", metrics="127.0.0.1:6", actors=[ACTOR])
    content = json.loads(file.read_text())

    assert content["address"] == "127.0.0.1:5"
    assert content["metrics"] == "127.0.0.1:6"
    assert content["pid"] == os.getpid()
    assert content["actors"] == [
        {
            "name": "t",
            "role": "target",
            "model": "m",
            "address": "127.0.0.1:1",
            "pid": 7,
            "incarnation": 0,
        }
    ]


def test_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    """An older file of the same name does not survive in part."""
    file = tmp_path / "ready"
    file.write_text("x" * 10_000)
    write_ready_file(file, address="a", actors=[])

    assert json.loads(file.read_text())["address"] == "a"
    assert list(tmp_path.iterdir()) == [file]


def test_missing_folder_is_an_error(tmp_path: Path) -> None:
    """It is not made, for it may be a slip of the pen."""
    with pytest.raises(FileNotFoundError):
        write_ready_file(tmp_path / "no" / "ready", address="a", actors=[])
