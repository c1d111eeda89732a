"""Leaves torch out of a process that only cuts texts into tokens.

transformers imports torch wherever it is installed, also for a tokenizer, which does not use it: 2.3 s of processor time and
230 MiB. A module that is None in `sys.modules` counts as not installed (Python's import system), to transformers too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def without_torch() -> Iterator[None]:
    """Meanwhile torch cannot be imported; nothing changes where it has been.

    transformers remembers for the life of the process that there was none. For processes of their own, therefore.
    """
    modules: dict[str, ModuleType | None] = sys.modules  # type: ignore[assignment]  # None is allowed there
    if "torch" in modules:
        yield
        return
    # Else it warns that models cannot be loaded.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    modules["torch"] = None
    try:
        yield
    finally:
        del modules["torch"]
