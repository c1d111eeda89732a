"""The option of methods whose nets borrow the target's tables of tokens. Without torch: the configuration reads it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BorrowedTables:
    """Of the method."""

    target: str = ""
    """Where the target's embedding and head are: a folder, a hub id, or demo:NAME. Empty: where the drafter's own
    configuration says; for another project's checkpoint, which says nothing, the service's target if it has one only."""
