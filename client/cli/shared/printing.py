"""Writing results: text for people, in colours that say who proposed a token, and JSON for programs."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from functools import cache

from rich.console import Console
from rich.measure import Measurement
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from outrider.client.blocking import Client
from outrider.client.cli.shared.attribution import Attribution
from outrider.client.messages.results import Admission, Completion, Event, Origin, TextChunk, Token

TARGET_STYLE = "bold"
"""The target's own tokens stand out: they are what speculation did not foresee."""

DRAFTER_STYLES = ("green", "cyan", "magenta", "yellow", "blue")
"""By position in `Admission.drafters`; further drafters have them from the start again."""

UNKNOWN_STYLE = "dim"

_CONTROL = {code: "\N{REPLACEMENT CHARACTER}" for code in (*range(0x20), *range(0x7F, 0xA0))}
for _kept in "\n\t":
    del _CONTROL[ord(_kept)]

_UNBOUNDED = 100_000
"""Characters; wider than any table."""


def print_json(value: object) -> None:
    """One JSON value on a line, in ASCII: it is the same in every encoding of a terminal or a pipe.

    What is no finite number is null: JSON has no word for it.
    """
    print(json.dumps(_finite(value)), flush=True)


def _finite(value: object) -> object:
    match value:
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {name: _finite(entry) for name, entry in value.items()}
        case list() | tuple():
            return [_finite(entry) for entry in value]
        case _:
            return value


def table_of(*headings: str, names: Collection[str]) -> Table:
    """An empty table whose cells are never cut: those of the columns `names` are folded where the terminal is narrow."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in headings:
        table.add_column(heading, overflow="fold", no_wrap=heading not in names)
    return table


def print_table(table: Table) -> None:
    """Prints a table, in a pipe as wide as it is: programs that read it want whole lines."""
    console = Console(highlight=False, markup=False, emoji=False)
    unbounded = console.options.update(max_width=_UNBOUNDED)
    width = Measurement.get(console, unbounded, table).maximum
    if not console.is_terminal:
        console.width = max(console.width, width)
    elif console.width < width:
        table.padding = (0, 1, 0, 0)
    console.print(table)


def print_line(text: str) -> None:
    """Prints a line as it is; a terminal wraps it, a pipe gets it whole."""
    Console(highlight=False, emoji=False).print(text, markup=False, soft_wrap=True)


def event_as_dict(event: Event) -> dict[str, object]:
    """One event, with its kind."""
    match event:
        case Admission():
            kind = "admission"
        case TextChunk():
            kind = "chunk"
        case Completion():
            kind = "completion"
    return {"event": kind, **asdict(event)}


def printable(text: str) -> str:
    """The text without control characters, which a model could use to act on the terminal."""
    return text.translate(_CONTROL)


def token_texts(client: Client, model: str) -> Callable[[int], str]:
    """Asks a service what a token is on its own, each once."""

    @cache
    def text(token: int) -> str:
        return client.detokenize([token], model=model, skip_special_tokens=True)

    return text


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


class TextWriter:
    """Writes streamed text as it comes, in colours by origin if asked to."""

    def __init__(self, token_text: Callable[[int], str] | None) -> None:
        """Args:
        token_text: What a token is on its own, to show the origin of each; None shows no origins.
        """
        self._console = Console(highlight=False, soft_wrap=True)
        self._is_terminal = sys.stdout.isatty()
        self._token_text = token_text
        self._attribution = Attribution(token_text or str)
        self._drafters: tuple[str, ...] | None = None
        self.emulated = ""
        """As `Admission.emulated`, once the request is admitted."""

    def admit(self, admission: Admission) -> None:
        """Begins a text. Notes on what the service runs; says what the colours mean unless it was said."""
        self.emulated = admission.emulated
        if self._token_text is not None:
            self._attribution = Attribution(self._token_text)
            if admission.drafters != self._drafters:
                self._console.print(legend(admission.drafters))
        self._drafters = admission.drafters

    def write(self, chunk: TextChunk) -> None:
        """Writes the text of a chunk."""
        if self._token_text is None:
            text = printable(chunk.text) if self._is_terminal else chunk.text
            sys.stdout.write(text)
            sys.stdout.flush()
            return
        # As segments: in a `Text` tabs would become spaces.
        pieces = [
            Segment(
                printable(piece), self._console.get_style(origin_style(token, self._drafters or ()))
            )
            for piece, token in self._attribution.feed(chunk)
        ]
        self._console.print(Segments(pieces), end="")


def emulation_note(emulated: str) -> str:
    """What is said beside every figure of a service on emulated devices."""
    return f"emulated: {emulated}"


def summary_line(completion: Completion, *, emulated: str = "") -> str:
    """What speculation did for a sequence, on one line.

    Args:
        completion: Its end.
        emulated: As `Admission.emulated`.
    """
    stats, timing = completion.speculation, completion.timing
    tokens = completion.usage.completion_tokens
    parts = [f"{tokens} tokens", f"{stats.mean_tokens_per_pass:.2f} a target pass"]
    if stats.verified:
        parts.append(f"{stats.accepted} of {stats.verified} candidates accepted")
    if timing.total_s > 0:
        parts.append(f"{tokens / timing.total_s:.1f} tokens/s")
    parts.append(f"ended by {completion.finish_reason.replace('_', ' ')}")
    if emulated:
        parts.append(emulation_note(emulated))
    return ", ".join(parts)
