"""Options that trainers share. Plain data; each field is a flag of the command line."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTrainerOptions:
    """Of trainers that learn from one target."""

    data: Path
    """Training texts: a folder, or a file of text or JSON lines."""

    out: Path
    """Folder that gets the result, and `progress`."""

    target: str = "demo:target"
    """Folder or hub id of the target, or demo:NAME."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the arithmetic is done."""

    resume: bool = field(default=True, metadata={"flags": ("--resume/--afresh",)})
    """Go on where a former run stopped."""

    minutes: float = 20.0
    """Cut the work to what fits into so many minutes on this machine; 0 is no bound."""

    threads: int = 0
    """Threads of the arithmetic on a CPU; 0: as torch chooses."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.minutes) and self.minutes >= 0.0):
            raise ValueError(f"minutes is {self.minutes}; give a number above 0, or 0 for no bound")
        if self.threads < 0:
            raise ValueError(f"threads is {self.threads}; it must not be negative")
