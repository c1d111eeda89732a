"""Whether a draft model and a target model mean the same text by the same token ids. Pure.

The tokenizers decide: models of one tokenizer are often padded to different widths (multiples of 64 or 128), and the ids beyond the
tokenizer's stand for no text. Only where a side states no tokenizer must the widths be equal.
"""

from __future__ import annotations

from dataclasses import dataclass

UNBOUNDED = 1 << 32
"""Token ids that a message can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """What an actor's token ids are."""

    size: int = 0
    """Number of ids, padding included; 0: any."""
    tokenizer: str = ""
    """Fingerprint of the tokenizer; empty: none is stated."""


def difference(drafter: Vocabulary, target: Vocabulary, *, target_name: str) -> str:
    """Why a drafter cannot draft for a target, and what to do; empty if it can.

    Args:
        drafter: Of the drafter; one that states nothing works on any ids.
        target: Of the target.
        target_name: For the message.
    """
    if drafter.tokenizer and target.tokenizer:
        if drafter.tokenizer == target.tokenizer:
            return ""
        return (
            f"its tokenizer ({drafter.tokenizer[:12]}) is not that of {target_name!r} ({target.tokenizer[:12]}); "
            "use a draft model with the target's tokenizer"
        )
    if drafter.size and target.size and drafter.size != target.size:
        silent = "it" if not drafter.tokenizer else repr(target_name)
        return (
            f"it has {drafter.size} token ids, {target_name!r} has {target.size}, and {silent} has no tokenizer that would "
            "tell which ids they share; use checkpoints with a tokenizer each, or of one width"
        )
    return ""
