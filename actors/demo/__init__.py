"""The demonstration models that come with the package; see README.md beside this file."""

from __future__ import annotations

from pathlib import Path

DRAFTS = ("draft", "draft-small")
"""Draft models."""

HEADS = ("ctc", "diffusion", "dspark", "eagle3", "mlp_speculator")
"""Draft nets that borrow the target's tables of tokens; `draft/heads`, `draft/block`, `draft/ctc`, `draft/diffusion` and `draft/eagle` load them."""

NESTED = ("sorted",)
"""A draft model of several sizes; by itself it is one of the deepest."""

NAMES = ("target", *DRAFTS, *NESTED)
"""Language models."""


def path(name: str) -> Path:
    """Folder of a shipped checkpoint, target and draft models loadable with `transformers`.

    Raises:
        ValueError: not one of `NAMES` or `HEADS`.
    """
    if name not in (*NAMES, *HEADS):
        raise ValueError(
            f"demonstration model {name!r}: choose among {', '.join((*NAMES, *HEADS))}"
        )
    return Path(__file__).resolve().parent / name
