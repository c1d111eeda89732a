"""The option of methods whose nets borrow the target's tables of tokens. Without torch: the configuration reads it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BorrowedTables:
    """Of the method."""

    target: str = ""
    """Where the target's embedding and head are: a folder, or demo:NAME. Empty: where the drafter's own configuration says."""
