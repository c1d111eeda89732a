"""Colours that say who proposed a token."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from outrider.client.messages.results import Origin, Token

TARGET_STYLE = "bold"
"""The target's own tokens stand out: they are what speculation did not foresee."""

DRAFTER_STYLES = ("green", "cyan", "magenta", "yellow", "blue")
"""By position in `Admission.drafters`; further drafters have them from the start again."""

UNKNOWN_STYLE = "dim"


def origin_style(token: Token | None, drafters: Sequence[str]) -> str:
    """The style of a token's text."""
    if token is None or token.origin is Origin.UNKNOWN:
        return UNKNOWN_STYLE
    if token.origin is Origin.TARGET:
        return TARGET_STYLE
    position = drafters.index(token.drafter) if token.drafter in drafters else 0
    return DRAFTER_STYLES[position % len(DRAFTER_STYLES)]


def legend(drafters: Sequence[str]) -> Text:
    """Says what the colours mean."""
    text = Text()
    text.append("target", style=TARGET_STYLE)
    for position, name in enumerate(drafters):
        text.append("  ")
        text.append(name, style=DRAFTER_STYLES[position % len(DRAFTER_STYLES)])
    return text
