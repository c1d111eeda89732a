"""The demonstration models that come with the package; see README.md beside this file."""

from __future__ import annotations

from pathlib import Path

DRAFTS = ("draft", "draft-small")
"""Draft models."""

HEADS = ("dspark", "mlp_speculator")
"""Heads that draft from the target's hidden states; `draft/heads` and `draft/block` load them."""

NAMES = ("target", *DRAFTS)
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
