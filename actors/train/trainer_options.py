"""Options that trainers share. Plain data; each field is a flag of the command line."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

MAX_THREADS = 4096
"""More than any machine has cores."""

MAX_SEED = 2**32 - 1
"""Seeds of single steps are made of it, and have 64 bits."""


@dataclass(frozen=True, kw_only=True)
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
    """Threads of the arithmetic on a CPU; 0: as torch chooses, or one for each of several workers."""

    rows_per_step: int = 8
    """Rows of a step."""

    workers: int = 1
    """Workers that share the rows of each step, on the Ray cluster at RAY_ADDRESS; 1: this process, without Ray."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.minutes) and self.minutes >= 0.0):
            raise ValueError(f"minutes is {self.minutes}; give a number above 0, or 0 for no bound")
        if not 0 <= self.threads <= MAX_THREADS:
            raise ValueError(f"threads is {self.threads}; give 0 to {MAX_THREADS}")
        self._check_positive("rows_per_step")
        if not 1 <= self.workers <= self.rows_per_step:
            raise ValueError(
                f"workers is {self.workers}; give 1 to {self.rows_per_step}, the rows of a step (rows_per_step)"
            )

    def check_target(self, *, width: int, num_blocks: int) -> None:
        """Refuses what goes with no target of this shape; of most trainers, nothing. Asked before the target is loaded, if its shape is known by then.

        Args:
            width: Numbers of its hidden states.
            num_blocks: Its blocks.

        Raises:
            ValueError: An option does not fit; the message says which and why.
        """

    def _check_positive(self, *names: str) -> None:
        """Refuses numbers below 1."""
        for name in names:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")

    def _check_rates(self, *names: str) -> None:
        """Refuses what is no learning rate."""
        for name in names:
            if not 0.0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}; give a number above 0")


@dataclass(frozen=True, kw_only=True)
class TargetRowsOptions(TargetTrainerOptions):
    """Of those that learn from rows of text and of the target's own writing. The numbers of rows are each trainer's own."""

    matrix_rate: float = 0.02
    """Learning rate of the maps (Muon)."""

    other_rate: float = 3e-3
    """Learning rate of everything else (AdamW)."""

    text_rows: int
    """Rows of text whose hidden states are kept."""

    own_rows: int
    """Rows of the target's writing whose hidden states are kept."""

    row_length: int = 144
    """Tokens of a row."""

    prompt_length: int = 32
    """Tokens of a row of its writing that the target is given."""

    seed: int = 0
    """Of the weights and the order."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_positive("text_rows", "own_rows")
        self._check_rates("matrix_rate", "other_rate")
        if not 0 <= self.seed <= MAX_SEED:
            raise ValueError(f"seed is {self.seed}; give 0 to {MAX_SEED}")

    def _check_rows(self, *, least: int, beyond: int) -> None:
        """Refuses rows without room behind their prompt.

        Args:
            least: Tokens of a prompt.
            beyond: Tokens behind it that are not enough.
        """
        if self.prompt_length < least:
            raise ValueError(f"prompt_length is {self.prompt_length}; it must be at least {least}")
        if self.row_length - self.prompt_length <= beyond:
            raise ValueError(
                f"row_length is {self.row_length}; it must be above prompt_length {self.prompt_length} by more than {beyond}"
            )
