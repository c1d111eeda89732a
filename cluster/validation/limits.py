"""What a request is checked against: the model, its drafters, the service's defaults."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.actors.speculation.options import Speculation
from outrider.actors.speculation.policies import LengthChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDrafter:
    """A drafter as far as a request can name it."""

    name: str
    verifiers: tuple[str, ...]
    """What it can serve. Empty: not known yet."""
    draft_lengths: tuple[LengthChoice, ...] = ()
    """Draft length policies that it can serve. Empty: not known yet."""
    mismatch: str = ""
    """Why it cannot serve this model; empty if it can."""

    def can_verify(self, verifier: str) -> bool:
        """True if it serves the verifier, as far as is known."""
        return not self.verifiers or verifier in self.verifiers


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a request is checked against."""

    model: str
    fingerprint: str
    """Of what a text follows from, besides the request."""
    vocab_size: int
    max_context: int
    eos_token_ids: frozenset[int]
    verifiers: tuple[str, ...]
    drafters: tuple[KnownDrafter, ...]
    default_max_tokens: int
    speculation: Speculation
    has_tokenizer: bool
    has_chat_template: bool
    max_token_chars: int | None
