"""The card of a drafter that was trained: one frame, in which each method says what it is, its shape and its recipe."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, fields

from outrider.actors.train.trainer_options import TargetTrainerOptions

ALWAYS = ("minutes", "seed")
"""Options that a command names, whatever they are."""

NEVER = ("data", "out", "resume", "workers")
"""Options that say where, and how it was gone about, and leave the weights as they are."""


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

**Limits.** It was trained on the texts of `--data`, and on the target's writing. The licences and limits of both hold for it.
"""


def command_of(name: str, options: TargetTrainerOptions) -> str:
    """The command that repeats a training: all that is otherwise than it would be by itself, and how long it might take.

    Args:
        name: Of the trainer.
        options: Its options.
    """
    words = [f"outrider train {name} --data DIR --out DIR"]
    for field in fields(options):
        value = getattr(options, field.name)
        if field.name in NEVER or (value == field.default and field.name not in ALWAYS):
            continue
        named = field.metadata.get("flags", (f"--{field.name.replace('_', '-')}",))[0]
        flag, _, other = named.partition("/")
        if isinstance(value, bool):
            words.append(flag if value else other or flag.replace("--", "--no-", 1))
            continue
        for one in value if isinstance(value, tuple) else (value,):
            words.append(f"{flag} {shlex.quote(str(one))}")
    return " ".join(words)


def fits(fingerprint: str) -> str:
    """What a card says of weights that are of use for one target only.

    Args:
        fingerprint: Of that target, hexadecimal.
    """
    return f"It proposes; the target decides. Its weights fit the target with the fingerprint `{fingerprint[:16]}` and no other."
