"""Private folders: who uses one, and what is left of those who were killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from outrider.client.connection.ready_file import read_ready_file
from outrider.cluster.process.private_folder import (
    MAX_PARENT,
    OWNER,
    PREFIX,
    PrivateFolder,
    remove_leftovers,
    temporary_parent,
)
from outrider.cluster.process.ready_file_writer import remove_if_left, written
from outrider.cluster.roster.actor_status import ActorState, ActorStatus
from outrider.cluster.roster.roster import Role
from outrider.cluster.supervise import admin_file

SERVICE = """
import sys, time
from pathlib import Path
from outrider.actors.rpc.credentials import Credentials
from outrider.cluster.process.private_folder import PrivateFolder
from outrider.cluster.process.ready_file_writer import written
from outrider.cluster.supervise import admin_file

folder = PrivateFolder.make(Path(sys.argv[1]))
folder.write_token()
(folder.path / "ray" / "session").mkdir(parents=True)
(folder.path / "ray" / "latest").symlink_to(folder.path / "ray" / "session")
ready = Path(sys.argv[2])
own = ready.with_name(f"{ready.name}-admin")
folder.note_files((ready, own))
admin = admin_file.Admin(address="127.0.0.1:6", credentials=Credentials.fresh())
with admin_file.written(own, admin), written(ready, address="127.0.0.1:5", actors=[]):
    print(folder.path, flush=True)
    time.sleep(100)
"""


@contextmanager
def service(parent: Path, ready: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process with a private folder, a ready file and an admin file, and that folder; killed in the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVICE, str(parent), str(ready)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())
    finally:
        process.kill()
        process.communicate(timeout=60)


def test_leftovers_of_the_killed_go_and_those_of_the_living_stay(tmp_path: Path) -> None:
    """The lock ends with the process, however that ends: its folder, its token, its ready file and its admin file are removed."""
    parent = tmp_path / "t"
    parent.mkdir()
    dead, living = tmp_path / "dead", tmp_path / "living"
    with (
        service(parent, dead) as (process, left),
        service(parent, living) as (_, kept),
    ):
        remove_leftovers(parent)
        assert (left / "token").exists()
        assert read_ready_file(dead).is_alive

        process.kill()
        process.wait(60)
        assert not read_ready_file(dead).is_alive
        remove_leftovers(parent)

        assert list(parent.iterdir()) == [kept]
        assert (kept / "token").exists()
        assert not dead.exists()
        assert not (tmp_path / "dead-admin").exists()
        assert read_ready_file(living).is_alive
        assert admin_file.read(tmp_path / "living-admin").address == "127.0.0.1:6"


def test_ready_file_of_another_is_left_alone(tmp_path: Path) -> None:
    """A path that has meanwhile become another service's, or no ready file at all, is not touched."""
    parent = tmp_path / "t"
    parent.mkdir()
    ready = tmp_path / "ready"
    for content in (json.dumps({"address": "a", "pid": os.getpid()}), "{}", "not JSON"):
        with service(parent, ready) as (process, left):
            process.kill()
            process.wait(60)
        ready.unlink()
        ready.write_text(content)
        remove_leftovers(parent)
        assert not left.exists()
        assert ready.read_text() == content


def test_folders_without_an_owner_are_left_alone(tmp_path: Path) -> None:
    """Nobody knows whether somebody uses them; and links lead elsewhere."""
    (tmp_path / f"{PREFIX}other").mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / OWNER).write_text("{}")
    (tmp_path / f"{PREFIX}link").symlink_to(elsewhere)
    (tmp_path / f"{PREFIX}file").write_text("")
    before = sorted(tmp_path.rglob("*"))
    remove_leftovers(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


def test_folder_whose_owner_was_killed_while_it_wrote(tmp_path: Path) -> None:
    """Half an owner is an owner, and a dead one."""
    folder = tmp_path / f"{PREFIX}half"
    folder.mkdir()
    (folder / OWNER).write_text('{"pid": 1')
    remove_leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_folder_and_token_are_ours_alone(tmp_path: Path) -> None:
    """Nobody else can enter the folder or read the token; the end leaves nothing."""
    folder = PrivateFolder.make(tmp_path)
    token = folder.write_token()
    assert folder.path.stat().st_mode & 0o077 == 0
    assert token.stat().st_mode & 0o077 == 0
    assert len(token.read_text()) == 64
    folder.remove()
    folder.remove()
    assert list(tmp_path.iterdir()) == []


def test_long_names_are_avoided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sockets have short names."""
    for length in (MAX_PARENT, MAX_PARENT + 1):
        monkeypatch.setattr(tempfile, "tempdir", "/" + "x" * (length - 1))
        expected = tempfile.tempdir if length == MAX_PARENT else "/tmp"
        assert str(temporary_parent()) == expected


def test_an_actor_that_is_starting_has_no_process_in_the_file(tmp_path: Path) -> None:
    """A script that ends actors by the file would end itself with a 0."""
    file = tmp_path / "ready"
    actors = [
        ActorStatus(name="a", role=Role.TARGET, model="m", pid=pid, state=state)
        for pid, state in ((0, ActorState.STARTING), (7, ActorState.SERVING))
    ]
    with written(file, address="127.0.0.1:5", actors=actors):
        told = json.loads(file.read_text())["actors"]
    assert [one["pid"] for one in told] == [None, 7]


def test_stale_ready_file_goes_and_a_living_one_is_named(tmp_path: Path) -> None:
    """A start with the path of a file that was left removes it; one in use is somebody's."""
    file = tmp_path / "ready"
    assert remove_if_left(file) is None
    with written(file, address="127.0.0.1:5", actors=[]):
        other = remove_if_left(file)
        assert other is not None
        assert (other.address, other.pid) == ("127.0.0.1:5", os.getpid())
        file.rename(tmp_path / "moved")
        file.write_text((tmp_path / "moved").read_text())
        assert remove_if_left(file) is None
        assert not file.exists()
