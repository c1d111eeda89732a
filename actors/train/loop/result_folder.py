"""The folder of a result (`--out`): whether it can be made is known before any work, a run that is refused leaves none, and one at a time writes it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from outrider.actors.train.training_errors import ResumeError, TrainError


def check_folder(out: Path, option: str = "out") -> None:
    """Refuses a place where there can be no folder. Leaves none: whatever is first written there makes it.

    Args:
        out: The place.
        option: What names it, for messages.

    Raises:
        TrainError: It is a file or lies in one, its name is none, or nothing can be written there.
    """
    try:
        os.lstat(out)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise TrainError(f"{option} is {out}: {error.strerror}; give another folder") from error
    nearest = next(one for one in (out, *out.absolute().parents) if os.path.lexists(one))
    if not nearest.is_dir():
        which = "which" if nearest == out else f"and {nearest}"
        raise TrainError(
            f"{option} is {out}, {which} is a file; a folder is needed, which gets the result and the progress"
        )
    try:
        # Rights alone do not tell: not those of root, nor where a file system holds no folders of ours.
        with tempfile.TemporaryDirectory(prefix=".outrider-", dir=nearest):
            pass
    except OSError as error:
        raise TrainError(
            f"{option} is {out}, and nothing can be written in {nearest} ({error.strerror}); give another folder"
        ) from error


def hold_progress(out: Path) -> None:
    """Keeps other processes from writing the same progress until this one ends, however it does. Within a process nobody is kept from anything.

    Raises:
        ResumeError: Another process holds it.
    """
    import fcntl  # POSIX only

    folder = out / "progress"
    folder.mkdir(parents=True, exist_ok=True)
    # Never closed: the lock is the process's, and goes with it.
    held = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:
        os.close(held)
        raise ResumeError(
            f"out is {out}, where another training is at work; wait for its end, or give another folder"
        ) from error


def forget_progress(out: Path, parts: Iterable[str]) -> None:
    """Takes away what former runs have learnt: a run that begins again and is then killed must not go on with it.

    Args:
        out: The folder of the result.
        parts: Names of files of progress, without their ending; a star stands for any text.
    """
    for part in parts:
        for file in (out / "progress").glob(f"{part}.pt"):
            file.unlink()
