"""The private folder of a service on this machine: Ray's files and its token. Made at the start, gone at the end.

A process that is killed leaves its folder, and its ready file. So a folder holds a file `owner` that its process keeps
locked: the kernel frees the lock with the process, whatever ends it. A later start removes every folder whose lock is free,
and the ready file that `owner` names. Invariant: `owner` is never there unlocked while its process lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import IO, Self

from outrider.cluster.process.ready_file_writer import remove_if_left

PREFIX = "outrider-"
"""The names of private folders begin so."""

OWNER = "owner"
"""The file that is locked while the folder is in use. Holds JSON: `pid` and `files`."""

MAX_SOCKET_FOLDER = 40
"""Characters of the folder for Ray's files: Linux allows 107 in the name of a socket, and Ray appends up to 65."""

MAX_PARENT = MAX_SOCKET_FOLDER - len(f"/{PREFIX}12345678/ray")
"""Characters of the folder that private folders are made in."""


class PrivateFolder:
    """A folder that only this user can read, in use while this process lives or until `remove`."""

    def __init__(self, path: Path, lock: IO[str]) -> None:
        """Use `make`."""
        self.path = path
        self._lock = lock

    @classmethod
    def make(cls, parent: Path) -> Self:
        """A new one, with a name short enough for sockets.

        Raises:
            OSError: It cannot be made.
        """
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        try:
            # Locked before it bears its name, so that nobody meets it unlocked. Programs that are started do not inherit it.
            new = path / f".{OWNER}"
            lock = new.open("x", encoding="utf-8")
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            folder = cls(path, lock)
            folder.note_files(())
            new.rename(path / OWNER)
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise
        return folder

    def note_files(self, files: Collection[Path]) -> None:
        """Notes the files that go with the service, for whoever has to clear up. To be called before they are written."""
        content = {"pid": os.getpid(), "files": [str(file.absolute()) for file in files]}
        self._lock.seek(0)
        self._lock.truncate()
        json.dump(content, self._lock)
        self._lock.flush()

    def write_token(self) -> Path:
        """Writes a fresh token, readable by this user only. Returns its file."""
        file = self.path / "token"
        with open(file, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as opened:
            opened.write(secrets.token_hex(32))
        return file

    def remove(self) -> None:
        """Removes it with all that it holds. Idempotent."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def temporary_parent() -> Path:
    """The folder that private folders are made in: the temporary one, or `/tmp` if its name is too long for sockets.

    Raises:
        OSError: There is no temporary folder that can be written to.
    """
    parent = tempfile.gettempdir()
    return Path(parent if len(parent) <= MAX_PARENT else "/tmp")


def remove_leftovers(parent: Path) -> None:
    """Removes the folders of this user's services whose process is gone, and the files that they noted.

    Leaves those of living services, and what cannot be removed.
    """
    for path in parent.glob(f"{PREFIX}*"):
        # What others may write to is not followed.
        with contextlib.suppress(OSError):
            state = path.lstat()
            if state.st_uid != os.getuid() or not path.is_dir() or path.is_symlink():
                continue
            with (path / OWNER).open(encoding="utf-8") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove_files(lock.read())
                _remove(path)


def _remove_files(owner: str) -> None:
    """Removes the files that a dead owner has noted, unless they have become another's."""
    try:
        content = json.loads(owner)
        pid, named = content["pid"], [Path(file) for file in content["files"]]
    except (ValueError, KeyError, TypeError):
        return  # killed while it wrote: there were no files yet
    for file in named:
        remove_if_left(file, pid=pid)


def _remove(path: Path) -> None:
    """Removes a folder, the owner last: should something else resist, the next start tries again."""
    for child in path.iterdir():
        if child.name == OWNER:
            continue
        if child.is_dir() and not child.is_symlink():
            shutil.rmtree(child)
        else:
            child.unlink()
    (path / OWNER).unlink()
    path.rmdir()
