"""What people see of the demonstration. Plain text where the output is no terminal; nothing at all for programs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain

from rich.console import Console
from rich.table import Table
from rich.text import Text

from outrider.client.cli.shared.attribution import Attribution
from outrider.client.cli.shared.origin import DRAFTER_STYLES, TARGET_STYLE, origin_style
from outrider.client.cli.shared.printing import printable
from outrider.client.measuring.measuring_prompts import Prompt
from outrider.client.messages.results import TextChunk
from outrider.client.timeline.intervals import common, spans, strip, total_us
from outrider.client.timeline.timeline_model import BUSY, DRAFTING, WORK, Slice, Timeline
from outrider.cluster.demo.demo_report import (
    Decoded,
    DemoTotals,
    Pair,
    origins,
    pass_bars,
    share_bar,
    totals,
)

REDRAW_S = 0.08
"""Least seconds between two writes of live text, so that showing it does not slow what is measured."""

STRIP_PASSES = 24
"""About how many target passes the strip of the timeline shows."""


class Screen:
    """Writes to stdout what was decoded, to stderr how it goes."""

    def __init__(self, *, is_silent: bool, use_color: bool) -> None:
        """Args:
        is_silent: Nothing goes to stdout.
        use_color: Colours, where the terminal can.
        """
        self._console = Console(quiet=is_silent, no_color=not use_color, highlight=False)
        self._progress = Console(stderr=True, no_color=not use_color, highlight=False)
        self._drafters: dict[str, None] = {}

    def progress(self, line: str) -> None:
        """A line on how it goes."""
        self._progress.print(line, style="dim", markup=False, soft_wrap=True)

    def say(self, line: str) -> None:
        """A line of the result."""
        self._console.print(line, markup=False, soft_wrap=True)

    def begin(self, prompt: Prompt, temperature: float) -> None:
        """Announces a prompt."""
        shown = prompt.messages[-1].content if prompt.messages else prompt.text or ""
        heading = Text(f"\n{prompt.category}, temperature {temperature:g}  ", style="underline")
        self._console.print(heading)
        self._console.print(
            Text(printable(shown), style="dim"), end="\n" if prompt.messages else ""
        )

    @contextmanager
    def live(self, token_text: Callable[[int], str]) -> Iterator[Callable[[TextChunk], None]]:
        """Gives what takes the chunks of one text and shows it in colours by origin.

        Args:
            token_text: What a token is on its own.
        """
        attribution = Attribution(token_text)
        waiting: list[TextChunk] = []
        shown_s = time.perf_counter()

        def flush() -> None:
            line = Text()
            for chunk in waiting:
                for piece, token in attribution.feed(chunk):
                    if token is not None and token.drafter is not None:
                        self._drafters.setdefault(token.drafter)
                    line.append(printable(piece), style=origin_style(token, list(self._drafters)))
            waiting.clear()
            self._console.print(line, end="", soft_wrap=True)

        def show(chunk: TextChunk) -> None:
            nonlocal shown_s
            waiting.append(chunk)
            if time.perf_counter() - shown_s >= REDRAW_S:
                flush()
                shown_s = time.perf_counter()

        try:
            yield show
        finally:
            flush()
            self._console.print()

    def end(self, pair: Pair) -> None:
        """Sums a text up."""
        fast = pair.speculative
        self._console.print(
            Text(
                f"  {pass_bars(fast.passes)}  {len(fast.tokens)} tokens in {len(fast.passes)} steps, "
                f"{pair.speed_up:.2f} x plain, {sameness(pair)}",
                style="dim",
            ),
            soft_wrap=True,
        )

    def summary(
        self, pairs: Sequence[Pair], streams: Mapping[int, Sequence[Pair]], timeline: Timeline
    ) -> None:
        """The tables, and a strip of the timeline.

        Args:
            pairs: The texts.
            streams: The streams, by their length in tokens.
            timeline: What the actors did while the texts were decoded.
        """
        runs = [pair.speculative for pair in pairs]
        everything = totals(pairs)
        every = totals([*pairs, *chain(*streams.values())])
        self._console.print()
        self._console.print(self._legend(runs))
        self._console.print(_texts_table(pairs))
        self._console.print(_acceptance(everything))
        self._console.print(_shares(everything))
        picture = timeline_strip(pairs, timeline, width=min(100, self._console.width - 24))
        if picture:
            self._console.print(Text(picture))
        if streams:
            self._console.print(_streams_table(streams))
        self.say(
            f"{every.equal} of {every.texts} texts and streams equal plain decoding, token by token; "
            f"{every.mean_tokens_per_pass:.2f} tokens a target pass, speed-up {every.speed_up:.2f}"
        )

    def _legend(self, runs: Sequence[Decoded]) -> Text:
        """What the colours mean, and how many tokens each gave."""
        counts = origins(runs)
        whole = max(1, sum(counts.values()))
        text = Text("proposed by: ")
        text.append(f"target {counts.pop('target', 0) / whole:.0%}", style=TARGET_STYLE)
        for name, count in sorted(counts.items()):
            position = list(self._drafters).index(name) if name in self._drafters else 0
            text.append("  ")
            text.append(
                f"{name} {count / whole:.0%}", style=DRAFTER_STYLES[position % len(DRAFTER_STYLES)]
            )
        text.append("  (every token is the target's own draw)", style="dim")
        return text


def sameness(pair: Pair) -> str:
    """Whether both ways gave the same."""
    position = pair.first_difference
    if position is None:
        return "same text as plain decoding"
    cause = "a near tie" if pair.has_near_tie else "NOT explained by a near tie"
    return f"differs from plain decoding at token {position}, {cause}"


def timeline_strip(pairs: Sequence[Pair], timeline: Timeline, *, width: int) -> str:
    """When target and drafters were busy, for the middle of the last text; empty if the timeline lacks either."""
    run = pairs[-1].speculative
    start_us = run.start_us - timeline.start_unix_us
    end_us = start_us + run.duration_us
    busy: dict[str, dict[str, list[Slice]]] = {WORK: {}, DRAFTING: {}}
    for one in timeline.slices:
        if one.track in busy and one.name in BUSY and start_us <= one.start_us <= end_us:
            busy[one.track].setdefault(one.process, []).append(one)
    drafting = {
        name: found
        for name, found in sorted(busy[DRAFTING].items())
        if any(one.name == "draft" for one in found)
    }
    if not busy[WORK] or not drafting or width < 20:
        return ""
    target, passes = next(iter(busy[WORK].items()))
    middle = passes[len(passes) // 4 :][:STRIP_PASSES]
    left_us, right_us = middle[0].start_us, middle[-1].end_us
    lines = [f"{(right_us - left_us) / 1e3:.0f} ms of the last text:"]
    for name, found in {target: passes, **drafting}.items():
        lines.append(
            f"{name[:16]:>16} {strip(found, start_us=left_us, end_us=right_us, width=width)}"
        )
    drafts = spans(one for found in drafting.values() for one in found)
    if drafts:
        share = total_us(common(spans(passes), drafts)) / total_us(drafts)
        lines.append(f"{share:.0%} of the drafting ran while the target verified")
    return "\n".join(lines)


def _texts_table(pairs: Sequence[Pair]) -> Table:
    table = _table("text", title="decoded plainly and speculatively, with the same seeds")
    for pair in pairs:
        _row(table, pair.category, totals([pair]), f"{pair.temperature:g}")
    table.add_section()
    for temperature in dict.fromkeys(pair.temperature for pair in pairs):
        _row(table, "all", totals(pairs, temperature=temperature), f"{temperature:g}")
    return table


def _streams_table(streams: Mapping[int, Sequence[Pair]]) -> Table:
    table = _table("stream of", title="streams of a short and of a usual length, both ways")
    for length, pairs in streams.items():
        for temperature in dict.fromkeys(pair.temperature for pair in pairs):
            found = totals(pairs, temperature=temperature)
            _row(table, f"{length} tokens", found, f"{temperature:g}")
    return table


def _table(first: str, *, title: str) -> Table:
    """An empty table that fits a terminal of 80 columns."""
    caption = "pass: tokens a target pass; /s: tokens a second"
    table = Table(title=title, caption=caption, show_edge=False, pad_edge=False)
    table.add_column(first, no_wrap=True)
    for heading in ("temp.", "tokens", "same", "pass", "plain/s", "spec./s", "speed-up"):
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _row(table: Table, name: str, found: DemoTotals, temperature: str) -> None:
    same = "yes" if found.equal == found.texts else "no"
    table.add_row(
        name,
        temperature,
        str(found.tokens),
        same if found.texts == 1 else f"{found.equal}/{found.texts}",
        f"{found.mean_tokens_per_pass:.2f}",
        f"{found.plain_tokens_per_s:.0f}",
        f"{found.speculative_tokens_per_s:.0f}",
        f"{found.speed_up:.2f}",
    )


def _acceptance(found: DemoTotals) -> Text:
    lines = ["accepted, by depth in the tree (of the rounds whose tree reached it):"]
    for depth, share in enumerate(found.acceptance_by_depth, start=1):
        lines.append(f"{depth:>4} {share_bar(share, 40)} {share:.0%}")
    return Text("\n".join(lines))


def _shares(found: DemoTotals) -> Text:
    lines = ["where the time of speculative decoding went:"]
    for name, share in found.time_shares.items():
        lines.append(f"{name:>20} {share_bar(share, 40)} {share:.0%}")
    return Text("\n".join(lines))
