"""The archive that becomes the job's folder: a folder of this machine, and files carried along.

Made here and not by Ray's client, which would have put the whole folder into an archive before it finds it too large, and
cannot add a file that lies elsewhere. What is left out is Ray's choice: `.gitignore`, `.rayignore`, `excludes`; and links that lead
back to a folder around them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

from outrider.cluster.jobs.arguments import Carried
from outrider.cluster.process.command_failed import USAGE, CommandFailed

_SILENT = logging.getLogger("outrider.jobs.package")
_SILENT.disabled = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """What goes into the archive."""

    folder: Path | None
    members: tuple[tuple[Path, str], ...]
    """Files of the folder, and their names in it."""

    carried: tuple[Carried, ...]

    size: int
    """Bytes. The archive is not compressed, and is larger by a little for each file."""

    bound: int
    """Bytes that are too many."""

    @property
    def names(self) -> frozenset[str]:
        """What it holds of the folder: files and empty folders."""
        return frozenset(name for _, name in self.members)

    def carrying(self, carried: Sequence[Carried]) -> Package:
        """The same with files from elsewhere, which go before those of the folder with their names.

        Raises:
            CommandFailed: Too much.
        """
        taken = {file.name for file in carried}
        members = tuple(member for member in self.members if member[1] not in taken)
        left = sum(path.stat().st_size for path, name in self.members if name in taken)
        size = self.size - left + sum(file.size for file in carried)
        _check(size, self.bound, self.folder)
        return replace(self, members=members, carried=tuple(carried), size=size)

    def as_dict(self) -> dict[str, object]:
        """For `--dry-run`."""
        return {
            "folder": str(self.folder) if self.folder is not None else None,
            "files": len(self.members) + len(self.carried),
            "bytes": self.size,
            "carried": [file.as_dict() for file in self.carried],
        }

    def write(self, path: Path) -> None:
        """Writes the archive. The same content makes the same archive, which Ray does not take twice.

        Raises:
            CommandFailed: A file cannot be read.
        """
        try:
            with ZipFile(path, "w", strict_timestamps=False) as archive:
                for source, name in self.members:
                    archive.write(source, name)
                for file in self.carried:
                    if file.source is not None:
                        archive.write(file.source, file.name)
                    else:
                        archive.writestr(ZipInfo(file.name), file.content)
        except OSError as error:
            raise CommandFailed(f"cannot make the job's archive: {error}", USAGE) from error


def collect(
    folder: Path | None, *, excludes: Sequence[str] = (), limit: int | None = None
) -> Package:
    """Looks what there is to send.

    Args:
        folder: A folder, or None for nothing yet.
        excludes: Patterns as in `.gitignore`, beside those of the folder's own such files and Ray's.
        limit: Bytes that are too many; None is Ray's bound.

    Raises:
        CommandFailed: Too much, or something cannot be read.
    """
    from ray._private.ray_constants import get_runtime_env_default_excludes
    from ray._private.runtime_env import packaging

    # Ray's own walk, so that what is left out does not depend on who packs.
    walk: Any = packaging
    bound = walk.GCS_STORAGE_MAX_SIZE if limit is None else limit
    members: list[tuple[Path, str]] = []
    size = 0

    def take(path: Path) -> None:
        nonlocal size
        assert folder is not None
        name = str(path.relative_to(folder))
        if any("\ud800" <= char <= "\udfff" for char in name):
            raise CommandFailed(
                f"--working-dir {folder}: the name {name!r} is no UTF-8, which an archive needs",
                USAGE,
            )
        is_empty_folder = path.is_dir() and next(path.iterdir(), None) is None
        if name == "." or not (path.is_file() or is_empty_folder):
            return
        members.append((path, name))
        size += path.stat().st_size if path.is_file() else 0
        _check(size, bound, folder)

    if folder is not None:
        folder = folder.absolute()
        respects_git = os.environ.get("RAY_RUNTIME_ENV_IGNORE_GITIGNORE", "0") != "1"
        try:
            left_out = walk._get_excludes(folder, [*get_runtime_env_default_excludes(), *excludes])
            walk._dir_travel(
                folder,
                [left_out, _is_circle],
                take,
                include_gitignore=respects_git,
                logger=_SILENT,
            )
        except OSError as error:
            raise CommandFailed(f"--working-dir {folder}: {error}", USAGE) from error
        except (IndexError, ValueError) as error:
            raise CommandFailed(
                f"--working-dir {folder}: .gitignore, .rayignore or `excludes` (--runtime-env) there cannot be read: {error}",
                USAGE,
            ) from error
    members.sort(key=lambda member: member[1])
    return Package(folder=folder, members=tuple(members), carried=(), size=size, bound=bound)


def _is_circle(path: Path) -> bool:
    """Whether it is a link to a folder that it lies in, whose copy would have no end."""
    if not path.is_symlink():
        return False
    target = os.path.realpath(path)
    return any(os.path.realpath(folder) == target for folder in path.parents)


def _check(size: int, bound: int, folder: Path | None) -> None:
    if size < bound:
        return
    what = f"the working directory {folder}" if folder is not None else "what the job is to take"
    raise CommandFailed(
        f"{what} is too large: Ray takes less than {bound / 2**20:.0f} MiB; leave files out by .rayignore or `excludes` "
        "(--runtime-env), or put them on storage of the cluster (--paths-on-cluster)",
        USAGE,
    )
