"""The file that tells scripts where a service is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from outrider.client.connection.ready_file import BadReadyFile, read_ready_file
from outrider.cluster.process.ready_file_writer import written
from outrider.cluster.roster.actor_status import ActorStatus
from outrider.cluster.roster.roster import Role

ACTOR = ActorStatus(name="t", role=Role.TARGET, model="m", address="127.0.0.1:1", pid=7)


def test_content_is_what_a_script_needs(tmp_path: Path) -> None:
    """The address, and who runs where; gone at the end."""
    file = tmp_path / "ready"
    with written(file, address="127.0.0.1:5", metrics="127.0.0.1:6", actors=[ACTOR]):
        content = json.loads(file.read_text())
    assert not file.exists()

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
    with written(file, address="a", actors=[]):
        assert json.loads(file.read_text())["address"] == "a"
        assert list(tmp_path.iterdir()) == [file]


def test_missing_folder_is_an_error(tmp_path: Path) -> None:
    """It is not made, for it may be a slip of the pen."""
    with (
        pytest.raises(FileNotFoundError),
        written(tmp_path / "no" / "ready", address="a", actors=[]),
    ):
        pytest.fail("nothing was written")


def test_life_of_the_service_is_told(tmp_path: Path) -> None:
    """Alive as long as whoever wrote it holds it; a copy is nobody's."""
    file, copy = tmp_path / "ready", tmp_path / "copy"
    with written(file, address="127.0.0.1:5", actors=[]):
        copy.write_bytes(file.read_bytes())
        for _ in range(2):
            assert read_ready_file(file).is_alive
    found = read_ready_file(copy)
    assert (found.address, found.pid, found.is_alive) == ("127.0.0.1:5", os.getpid(), False)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "3", "{}", '{"address": "a"}', '{"address": 1, "pid": 2}', "\xff"]
)
def test_other_files_are_told(content: str, tmp_path: Path) -> None:
    """What no service has written is not taken for its file."""
    file = tmp_path / "ready"
    file.write_bytes(content.encode("latin-1"))
    with pytest.raises(BadReadyFile, match="not the ready file"):
        read_ready_file(file)
