"""`outrider demo`: everything on this machine, and a picture of what speculation did.

Starts an embedded service, decodes varied prompts plainly and then speculatively with the same seeds, then streams of a
short and of a usual length, and compares the outputs token by token. This is a client of its own service: it sees what any
client sees.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from outrider.client.blocking import Client
from outrider.client.timeline.timeline_model import Timeline
from outrider.cluster.config.schema import Config
from outrider.cluster.demo.demo_decode import (
    DemoPlan,
    Interrupted,
    affordable_streams,
    decode_pairs,
    decode_streams,
    demo_plan,
    warm_up,
)
from outrider.cluster.demo.demo_report import Pair, report_as_dict
from outrider.cluster.demo.demo_screen import Screen
from outrider.cluster.demo.demo_timeline import TRACE_S, with_texts, write_trace
from outrider.cluster.process.signals import Ending, ending_by_signal
from outrider.cluster.start.commands import FAILED, CommandFailed, service_config

REQUEST_TIMEOUT_S = 120.0
"""For one text; a slow machine takes seconds."""


def run_demo(
    *,
    max_tokens: int = 64,
    quick: bool = False,
    trace: Path = Path("outrider-trace.json"),
    use_color: bool = True,
    as_json: bool = False,
    targets: Sequence[str] = (),
    drafts: Sequence[str] = (),
    emulate: str | None = None,
) -> int:
    """Runs the demonstration. Returns the exit code: 1 if outputs differ where no near tie explains it; 130 after SIGINT
    and 143 after SIGTERM, which end everything that was started.

    Args:
        max_tokens: Output tokens for each prompt.
        quick: Fewer and shorter texts.
        trace: Gets the timeline.
        use_color: Colour the text by who proposed each token, where the terminal can.
        as_json: Print one JSON object instead of text.
        targets: A target model in place of the shipped one.
        drafts: Draft models in place of the shipped one.
        emulate: Profiles of emulated devices; the models are then laws.

    Raises:
        CommandFailed: The service cannot start, a request failed, or the timeline cannot be written.
    """
    if not trace.absolute().parent.is_dir():
        raise CommandFailed(
            f"--trace {trace}: the folder {trace.absolute().parent} does not exist", 2
        )
    config = service_config(targets=targets, drafts=drafts, listen="127.0.0.1:0", emulate=emulate)
    if config.emulated and not as_json:
        print(
            f"emulated devices: {', '.join(config.emulated)}; the texts are drawn from a law",
            flush=True,
        )
    plan = demo_plan(max_tokens=max_tokens, quick=quick)
    screen = Screen(is_silent=as_json, use_color=use_color)
    with ending_by_signal() as ending:
        try:
            pairs, streams, seen = serve_and_decode(config, plan, screen, ending)
        except Interrupted:
            screen.progress("interrupted")
            return ending.exit_code
    timeline = with_texts(seen, pairs)
    write_trace(trace, timeline)
    if as_json:
        print(
            json.dumps(
                report_as_dict(pairs, streams, trace, emulated=config.emulated), ensure_ascii=False
            )
        )
    else:
        screen.summary(pairs, streams, timeline)
        if config.emulated:
            screen.say(
                f"every time and speed above is emulated: passes took what the profiles "
                f"{' and '.join(config.emulated)} say, asleep"
            )
        screen.say(f"timeline: {trace} (open it at ui.perfetto.dev or chrome://tracing)")
    every = chain(pairs, *streams.values())
    return FAILED if any(pair.is_unexplained for pair in every) else 0


def serve_and_decode(
    config: Config, plan: DemoPlan, screen: Screen, ending: Ending
) -> tuple[list[Pair], dict[int, list[Pair]], Timeline]:
    """Starts the service, decodes everything, and ends the service.

    Returns:
        The texts; the streams by length; and what the actors did while the texts were decoded.

    Raises:
        Interrupted: A signal came.
        CommandFailed: The service cannot start, or a request failed.
    """
    # Only now: Ray takes a second to import, which a mistyped flag should not cost.
    from outrider.client.connection.errors import InvalidRequest, OutriderError
    from outrider.cluster.process.progress_lines import progress_line
    from outrider.cluster.ray.own_node import StartCancelled
    from outrider.cluster.start.launch import ServiceFailed, start_service

    try:
        with (
            start_service(
                config,
                progress=lambda actor: screen.progress(progress_line(actor)),
                is_cancelled=ending.is_set,
            ) as service,
            Client(service.address, timeout_s=REQUEST_TIMEOUT_S) as client,
        ):
            warm_up(client, plan, ending)
            with client.start_trace(seconds=TRACE_S) as recording:
                recording.wait_started()
                pairs = list(decode_pairs(client, plan, screen, ending))
            try:
                seen = recording.result()
            except OutriderError as error:
                # A trace that fails costs the actors' tracks, not the texts.
                screen.progress(f"the timeline lacks the actors: {error}")
                seen = Timeline(start_unix_us=pairs[0].plain.start_us)
            prompts = affordable_streams(plan, pairs)
            screen.progress(
                "short and long streams, both ways"
                if prompts
                else "no streams by length: this target would take too long"
            )
            try:
                streams = decode_streams(client, plan, prompts, ending)
            except InvalidRequest as error:
                screen.progress(f"no streams by length: {error}")
                streams = {}
    except StartCancelled as error:
        raise Interrupted from error
    except (ServiceFailed, OutriderError) as error:
        # A signal to all processes at once, as some supervisors send it, ends the actors before us.
        if ending.is_set():
            raise Interrupted from error
        failed = "" if isinstance(error, ServiceFailed) else "a request failed: "
        raise CommandFailed(f"{failed}{error}") from error
    return pairs, streams, seen


if __name__ == "__main__":
    sys.exit(run_demo())
