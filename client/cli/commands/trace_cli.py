"""`outrider trace`: a timeline of one request or of the whole service, and what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from outrider.client.blocking_stream import GenerationStream, RunningTrace
from outrider.client.cli.reports.timeline_report import tell
from outrider.client.cli.shared import flags
from outrider.client.cli.shared.exits import CommandFailure, usage_error
from outrider.client.cli.shared.service_options import ServiceAddress, connecting
from outrider.client.messages.request_options import SamplingOptions, SpeculationOptions
from outrider.client.messages.stream_progress import new_request_id
from outrider.client.timeline.timeline_file import NotATimeline, load, save
from outrider.client.timeline.timeline_model import Timeline

OUT = Path("outrider-trace.json")
WHOLE_S = 5.0
"""Default time for the whole service."""

REQUEST_S = 60.0
"""Default time for a request to come and to end."""


@connecting
@flags.request_options(sampling=("max_tokens", "temperature", "seed"), speculation=("enabled",))
def trace(
    service: ServiceAddress,
    sampling: SamplingOptions,
    speculation: SpeculationOptions,
    file: Annotated[
        Path | None,
        typer.Argument(help="A saved timeline to sum up, instead of taking one."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help=f"Where the timeline goes. Default: {OUT}.")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds",
            "-s",
            help=f"How long. Default: {WHOLE_S:g}; for a request, which ends it, {REQUEST_S:g} at most.",
        ),
    ] = None,
    request_id: Annotated[
        str | None,
        typer.Option("--request-id", "-r", help="Only this request, which runs or is to come."),
    ] = None,
    prompt: Annotated[
        str | None, typer.Option("--prompt", "-p", help="Send this prompt, and trace its request.")
    ] = None,
    model: flags.Model = "",
    nodes: Annotated[
        bool, typer.Option("--nodes", help="Show what became of each candidate, one by one.")
    ] = False,
    summary: Annotated[
        bool, typer.Option("--summary/--no-summary", help="Say what the timeline shows.")
    ] = True,
    as_json: flags.AsJson = False,
) -> None:
    """Record who did what when, for ui.perfetto.dev, and say where the time went."""
    is_asked = bool(model) or (sampling, speculation) != (SamplingOptions(), SpeculationOptions())
    if file is not None:
        given = any(one is not None for one in (out, seconds, request_id, prompt))
        if is_asked or nodes or given:
            raise usage_error("a saved timeline is only summed up; leave out the other options")
        tell(_loaded(file), as_json=as_json)
        return
    if is_asked and prompt is None:
        raise usage_error(
            "--model and the options of sampling and speculation say how --prompt is answered, which is not given"
        )
    path = out or OUT
    if not path.absolute().parent.is_dir():
        raise usage_error(f"--out {path}: the folder {path.absolute().parent} does not exist")
    if path.is_dir():
        raise usage_error(f"--out {path} is a folder; a file is written")
    is_request = prompt is not None or request_id is not None
    name = request_id or (new_request_id() if prompt is not None else "")
    with service.client() as client:
        running = client.start_trace(
            request_id=name,
            seconds=seconds if seconds is not None else REQUEST_S if is_request else WHOLE_S,
            nodes=nodes,
        )
        with running:
            request = None
            if prompt is not None:
                request = client.stream(
                    prompt,
                    model=model,
                    request_id=name,
                    sampling=sampling,
                    speculation=speculation,
                )
            timeline = until_end(running, request)
    _save(timeline, path)
    if summary or as_json:
        tell(timeline, as_json=as_json, path=path)
    if not as_json:
        Console(highlight=False, emoji=False, soft_wrap=True).print(
            f"timeline: {path} (open it at ui.perfetto.dev)", markup=False
        )


def until_end(running: RunningTrace, request: GenerationStream | None = None) -> Timeline:
    """Waits for a trace; Ctrl-C ends it early, and what was recorded counts.

    Args:
        running: The trace.
        request: What is to be traced, sent once recording has begun; None: it comes from elsewhere.
    """
    try:
        if request is not None:
            running.wait_started()
            for _ in request:
                pass
        return running.result()
    except KeyboardInterrupt:
        if request is not None:
            request.cancel()
        running.stop()
        return running.result()


def _loaded(file: Path) -> Timeline:
    try:
        return load(file)
    except (OSError, NotATimeline) as error:
        raise usage_error(f"{file} cannot be read: {error}") from None


def _save(timeline: Timeline, path: Path) -> None:
    try:
        save(timeline, path)
    except OSError as error:
        raise CommandFailure(f"--out {path} cannot be written: {error.strerror}") from None
