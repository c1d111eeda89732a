"""`outrider status` and `outrider models`: who serves what."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from outrider.client.cli.commands.status_watch import scalable, watch
from outrider.client.cli.shared import flags
from outrider.client.cli.shared.exits import ExitCode, usage_error
from outrider.client.cli.shared.printing import (
    emulation_note,
    print_json,
    print_line,
    print_table,
    table_of,
)
from outrider.client.cli.shared.service_options import ServiceAddress, connecting
from outrider.client.connection.errors import InvalidRequest, Unavailable
from outrider.client.connection.ready_file import BadReadyFile, read_ready_file
from outrider.client.connection.timeouts import CALL_TIMEOUT_S
from outrider.client.messages.service_info import Health, ModelInfo, Status


@connecting
def status(
    service: ServiceAddress,
    ready_file: Annotated[
        Path | None,
        typer.Option(
            "--ready-file",
            metavar="FILE",
            help="Ask the service that wrote this file, in place of --address; tells if it was killed.",
        ),
    ] = None,
    timeout_s: flags.TimeoutS = CALL_TIMEOUT_S,
    as_json: flags.AsJson = False,
    watched: Annotated[
        bool, typer.Option("--watch", "-w", help="Show it again and again, until Ctrl-C.")
    ] = False,
    interval_s: Annotated[
        float,
        typer.Option("--interval", metavar="S", min=0.1, max=3_600, help="Seconds between looks."),
    ] = 1.0,
) -> None:
    """Show who serves, and how busy they are.

    With --watch also the tokens committed a second and the share of candidates accepted, since the look before. Without a
    terminal that is a line each time.
    """
    if watched and as_json:
        raise usage_error("--json shows one look; leave out --watch")
    if ready_file is not None:
        service = replace(service, address=address_of(ready_file))
    with service.client() as client:
        if watched:
            # Ctrl-C is how it ends.
            with suppress(KeyboardInterrupt):
                watch(lambda: client.status(timeout_s=timeout_s), service.address, interval_s)
            return
        state = client.status(timeout_s=timeout_s)
        health = client.health(timeout_s=timeout_s)
    if as_json:
        print_json({"health": health, **told(state)})
    else:
        print_status(state, health)


@connecting
def health(service: ServiceAddress, timeout_s: flags.TimeoutS = 5.0) -> None:
    """Ask whether the service serves, for probes: ends with 0 if so, with 1 if it says that it does not, and with 3 if nobody answers.

    Needs no token."""
    with service.client() as client:
        found = client.health(timeout_s=timeout_s)
    print_line(found.replace("_", " "))
    if found is not Health.SERVING:
        raise typer.Exit(ExitCode.FAILURE)


def address_of(ready_file: Path) -> str:
    """Where the service of a ready file listens.

    Raises:
        Unavailable: There is no such file, or its service is gone.
        InvalidRequest: It cannot be read, or is something else.
    """
    try:
        found = read_ready_file(ready_file)
    except FileNotFoundError:
        raise Unavailable(
            f"--ready-file {ready_file} is not there: no service has written it yet, or it has ended"
        ) from None
    except (OSError, BadReadyFile) as error:
        raise InvalidRequest(str(error), field="--ready-file") from error
    if not found.is_alive:
        raise Unavailable(
            f"--ready-file {ready_file} is left over: the service that wrote it (process {found.pid}, at {found.address}) "
            "is gone; start it again"
        )
    return found.address


@connecting
def models(
    service: ServiceAddress,
    timeout_s: flags.TimeoutS = CALL_TIMEOUT_S,
    as_json: flags.AsJson = False,
) -> None:
    """Show the target models, and the drafters, verifiers and selectors that each offers."""
    with service.client() as client:
        known = client.models(timeout_s=timeout_s)
        if as_json:
            print_json({"models": [asdict(model) for model in known]})
        else:
            print_models(known)


def told(state: Status) -> dict[str, Any]:
    """For programs. An actor that is starting has no process that is known; 0 would be that of whoever sends a signal to it."""
    found = asdict(state)
    for actor in found["actors"]:
        actor["pid"] = actor["pid"] or None
    return found


def print_status(state: Status, health: Health) -> None:
    """The state as a line, a table of actors, and why those that are not ready are not."""
    accepting = "accepts requests" if state.accepting else "accepts no requests"
    print_line(
        f"outrider {state.version}: {health.replace('_', ' ')}, {accepting}, up {state.uptime_s:.0f} s; "
        f"{state.running} running, {state.waiting} waiting, {state.finished} finished"
        + (f"; {emulation_note(state.emulated)}" if state.emulated else "")
    )
    table = table_of(
        "actor",
        "role",
        "ready",
        "model",
        "sessions",
        "busy",
        "address",
        "pid",
        names=("actor", "model", "address"),
    )
    for actor in state.actors:
        table.add_row(
            Text(actor.name),
            actor.role,
            "yes" if actor.ready else "no",
            Text(actor.model),
            f"{actor.sessions}/{actor.capacity}" if actor.capacity else "",
            f"{actor.busy:.0%}",
            Text(actor.address),
            str(actor.pid or ""),
        )
    print_table(table)
    print_problems((actor.name, actor.problem) for actor in state.actors)
    for actor in state.actors:
        if actor.note:
            print_line(f"drafter {actor.name}: {actor.note}")
        if actor.feedback_bytes:
            print_line(
                f"drafter {actor.name} was sent {actor.feedback_bytes / 1e6:.1f} MB of the targets' hidden states and likeliest "
                f"tokens; {actor.feedback_dropped} positions were dropped"
            )
    for line in scalable(state):
        print_line(line)
    if state.refused_registrations:
        print_line(
            f"{state.refused_registrations} internal registrations were refused; the last one: {state.last_refusal}"
        )


def print_models(known: tuple[ModelInfo, ...]) -> None:
    """Each model and its drafters."""
    for model in known:
        chat = "chat template" if model.has_chat_template else "no chat template"
        print_line(
            f"{model.name}: {model.vocab_size} tokens, context {model.max_context}, {chat}; "
            f"verifiers {', '.join(marked(model)) or 'none'}; "
            f"draft lengths {', '.join(model.draft_lengths) or 'none'}; roots {', '.join(model.roots) or 'none'}; "
            f"selectors {', '.join(one.name for one in model.selectors) or 'none'}"
            + (f"; {emulation_note(model.emulated)}" if model.emulated else "")
        )
        if not model.drafters:
            continue
        headings = ("drafter", "method", "ready", "draft lengths", "verifiers")
        table = table_of(*headings, names=("drafter", "method", "draft lengths", "verifiers"))
        for drafter in model.drafters:
            table.add_row(
                Text(drafter.name),
                drafter.method,
                "yes" if drafter.ready else "no",
                ", ".join(drafter.draft_lengths),
                ", ".join(drafter.verifiers),
            )
        print_table(table)
        print_problems((drafter.name, drafter.problem) for drafter in model.drafters)


def marked(model: ModelInfo) -> list[str]:
    """The verifiers of a model; those whose text does not follow its law say so."""
    lossy = {one.name for one in model.verifier_infos if not one.lossless}
    return [f"{name} (lossy)" if name in lossy else name for name in model.verifiers]


def print_problems(problems: Iterable[tuple[str, str]]) -> None:
    """A line for everyone who has a problem."""
    for name, problem in problems:
        if problem:
            print_line(f"{name} is not ready: {problem}")
