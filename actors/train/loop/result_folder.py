"""The folder of a result (`--out`): whether it can be made is known before any work, and a run that is refused leaves none."""

from __future__ import annotations

import os
from pathlib import Path

from outrider.actors.train.training_errors import TrainError


def check_folder(out: Path) -> None:
    """Refuses a place where there can be no folder. Makes none: whatever is first written there does.

    Raises:
        TrainError: It is a file or lies in one, or nothing may be written there.
    """
    nearest = next(one for one in (out, *out.absolute().parents) if os.path.lexists(one))
    if not nearest.is_dir():
        which = "which" if nearest == out else f"and {nearest}"
        raise TrainError(
            f"out is {out}, {which} is a file; a folder is needed, which gets the result and the progress"
        )
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise TrainError(
            f"out is {out}, and nothing may be written in {nearest}; give another folder"
        )
