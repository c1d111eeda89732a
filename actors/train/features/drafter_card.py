"""The card of a drafter that was trained: one frame, in which each method says what it is, its shape and its recipe."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterCard:
    """What one method says of a drafter. Each text is Markdown, wrapped as it is to stand."""

    title: str
    target: str
    """What the target is called where it is served."""
    what: str
    """Method and source, what it reads, and which target it fits."""
    shape: str
    training: str
    """The command that repeats it, and what it does."""
    read: str
    """How the table of what was measured is read; begins behind `on held-out texts, in percent`."""
    measured: str
    """The table."""

    def render(self) -> str:
        """The text of `README.md`: what it is, how it was trained, what was measured, what it is not for."""
        return f"""# {self.title} of `{self.target}`

{self.what}

    outrider serve --target {self.target} --draft FOLDER

**Shape.** {self.shape}

**Training.** {self.training}

**Measured** on held-out texts, in percent{self.read}

{self.measured}

**Limits.** What the target's card says of texts and licences holds for this too: it was trained on the same data, and on the target's writing.
"""


def fits(fingerprint: str) -> str:
    """What a card says of weights that are of use for one target only.

    Args:
        fingerprint: Of that target, hexadecimal.
    """
    return f"It proposes; the target decides. Its weights fit the target with the fingerprint `{fingerprint[:16]}` and no other."
