"""`outrider status --watch`: the state of a service again and again, with what happened in between."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from outrider.client.cli.shared.printing import emulation_note, print_line, table_of
from outrider.client.connection.errors import OutriderError, Unauthorized
from outrider.client.messages.service_info import ActorInfo, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What happened between two looks at a service."""

    tokens_per_s: float | None
    """Committed by all targets; None: not known, since an actor has restarted or there was one look only."""

    acceptance: float | None
    """Candidates drawn of those verified; None: there were none."""

    actors: dict[str, tuple[float | None, float | None]]
    """The same by actor."""


def pace(before: Status | None, now: Status, seconds: float) -> Pace:
    """What happened between two looks.

    Args:
        before: The earlier one; None: there was none.
        now: The later one.
        seconds: Between them.
    """
    former = {(a.name, a.incarnation): a for a in before.actors} if before is not None else {}
    tokens = verified = accepted = 0
    is_known = False
    actors: dict[str, tuple[float | None, float | None]] = {}
    for actor in now.actors:
        last = former.get((actor.name, actor.incarnation))
        if last is None or seconds <= 0.0 or not actor.ready:
            continue
        gained = actor.tokens - last.tokens
        tried, drawn = actor.verified - last.verified, actor.accepted - last.accepted
        # A drafter's candidates are counted by targets, which may have restarted.
        share = drawn / tried if tried > 0 and drawn >= 0 else None
        is_target = actor.role == "target"
        actors[actor.name] = (gained / seconds if is_target else None, share)
        if is_target:
            is_known = True
            tokens, verified, accepted = tokens + gained, verified + tried, accepted + drawn
    return Pace(
        tokens_per_s=tokens / seconds if is_known else None,
        acceptance=accepted / verified if verified > 0 else None,
        actors=actors,
    )


def watch(
    look: Callable[[], Status],
    address: str,
    interval_s: float,
    *,
    wait: Callable[[float], None] = time.sleep,
    clock_s: Callable[[], float] = time.monotonic,
    console: Console | None = None,
) -> None:
    """Looks for ever; ends by KeyboardInterrupt. A service that does not answer is told of and asked again.

    Args:
        look: Asks the service.
        address: Where it is, to be shown.
        interval_s: Seconds between looks.
        wait: Waits so long.
        clock_s: Monotonic time.
        console: Where to draw; a line each time if it is no terminal.

    Raises:
        Unauthorized: The service does not admit us, and will not the next time either.
    """
    console = console or Console(highlight=False, markup=False)
    before: Status | None = None
    looked_s = 0.0

    def step() -> RenderableType:
        nonlocal before, looked_s
        try:
            now = look()
        except Unauthorized:
            raise
        except OutriderError as error:
            before = None
            return Text(f"{address}: {error}")
        at_s = clock_s()
        passed = pace(before, now, at_s - looked_s)
        before, looked_s = now, at_s
        return view(now, passed) if console.is_terminal else Text(line(now, passed))

    if not console.is_terminal:
        while True:
            print_line(str(step()))
            wait(interval_s)
    with Live(console=console, auto_refresh=False, transient=False) as live:
        while True:
            live.update(step(), refresh=True)
            wait(interval_s)


def line(status: Status, passed: Pace) -> str:
    """The state as one line."""
    return (
        f"{status.running} running, {status.waiting} waiting, {status.finished} finished; "
        f"{_number(passed.tokens_per_s, '.1f', ' tokens/s')}, {_share(passed.acceptance)} accepted; "
        f"{sum(actor.ready for actor in status.actors)} of {len(status.actors)} actors ready"
        + (f"; {emulation_note(status.emulated)}" if status.emulated else "")
    )


def view(status: Status, passed: Pace) -> RenderableType:
    """The state as a line and a table."""
    accepting = "" if status.accepting else ", accepts no requests"
    head = Text(f"outrider {status.version}, up {status.uptime_s:.0f} s{accepting}")
    table = table_of(
        *("actor", "role", "ready", "sessions", "busy", "tokens/s", "accepted"), names=("actor",)
    )
    for actor in status.actors:
        _add(table, actor, passed)
    problems = [
        Text(f"{actor.name} is not ready: {actor.problem}", style="yellow")
        for actor in status.actors
        if actor.problem
    ]
    replicas = [Text(one) for one in scalable(status)]
    return Group(head, Text(line(status, passed)), Text(), table, *replicas, *problems)


def scalable(status: Status) -> list[str]:
    """A line for every target and drafter whose number of actors may change: how many there are, and why."""
    lines = []
    for one in status.replicas:
        if one.least != one.most:
            wanted = f", {one.wanted} wanted" if one.wanted != one.running else ""
            why = f"; {one.reason}" if one.reason else ""
            bounds = f"{one.least} to {one.most} replicas"
            lines.append(f"{one.role} {one.name}: {one.running} of {bounds}{wanted}{why}")
    return lines


def _add(table: Table, actor: ActorInfo, passed: Pace) -> None:
    tokens, share = passed.actors.get(actor.name, (None, None))
    is_coordinator = actor.role == "coordinator"
    table.add_row(
        Text(actor.name),
        actor.role,
        Text("yes" if actor.ready else "no", style="" if actor.ready else "bold red"),
        f"{actor.sessions}/{actor.capacity}" if actor.capacity else str(actor.sessions),
        "" if is_coordinator else f"{actor.busy:.0%}",
        _number(tokens, ".1f") if actor.role == "target" else "",
        "" if is_coordinator else _share(share),
    )


def _number(value: float | None, form: str, unit: str = "") -> str:
    return f"{'-' if value is None else format(value, form)}{unit}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"
