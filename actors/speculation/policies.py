"""How a request wants its candidates drafted: when drafters stop, where trees begin.

None of these changes which text comes out under coupled sampling, whose draws do not depend on trees. For verifiers that
test frozen trees only what is decided before a token is drawn is allowed (`docs/drafting.md` says why).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class LengthChoice(StrEnum):
    """When a drafter stops drafting further below the text."""

    FULL = "full"
    """As far as there is room."""

    CONFIDENCE = "confidence"
    """As far as entropy and margins make it confident (Sen et al. 2025, arXiv 2508.15371)."""

    DECISION = "decision"
    """As long as a trained model expects acceptance (Lu et al. 2024, arXiv 2409.10644)."""


class RootPolicy(StrEnum):
    """Where the first level of a growing tree comes from."""

    DRAFT = "draft"
    """From the drafters."""

    TARGET = "target"
    """From the drafters and, at once, from the target's own rows (after Lu et al. 2024)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftPolicies:
    """The choices of one request."""

    draft_length: LengthChoice = LengthChoice.FULL
    """When drafters stop."""

    roots: RootPolicy = RootPolicy.DRAFT
    """Where trees begin."""

    aggressiveness: float = 1.0
    """Factor of the length that confidence allows."""

    decision_threshold: float = 0.4
    """Score above which the decision model goes on; the default is that of Lu et al."""
