"""`outrider demo`: a service on this machine, and a client that shows what speculation does.

It sees what any client sees: figures are those of `outrider bench --compare plain`, words on time those of `outrider trace`.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

from outrider.client.async_client import AsyncClient
from outrider.client.cli.reports.bench_phase import ProgressLine, measure_phase
from outrider.client.cli.reports.bench_report import (
    BenchPlan,
    Phase,
    print_report,
    report_as_dict,
    report_of,
)
from outrider.client.cli.reports.timeline_report import as_dict, tell
from outrider.client.cli.shared.printing import TextWriter, print_json, print_line, printable
from outrider.client.connection import event_loop
from outrider.client.connection.errors import OutriderError
from outrider.client.measuring.figures import RequestSample, differences
from outrider.client.measuring.measuring_prompts import BUILT_IN
from outrider.client.messages.request_options import SamplingOptions, SpeculationOptions
from outrider.client.messages.results import Admission, Event, TextChunk
from outrider.client.timeline.summary import summarise
from outrider.client.timeline.timeline_file import save
from outrider.client.timeline.timeline_model import Timeline
from outrider.cluster.config.schema import Config
from outrider.cluster.process.command_failed import FAILED, USAGE, CommandFailed
from outrider.cluster.process.signals import Ending, ending_by_signal
from outrider.cluster.start.commands import service_config

TEMPERATURES = (0.0, 0.8)
"""Greedy, and a usual one: under coupled sampling both gain."""

QUICK_PROMPTS, QUICK_TOKENS = 3, 64
"""With `--quick`: how many prompts, and how long a text is at most."""

TRACE_S = 600.0
"""The timeline ends after this time even if the texts do not."""


def run_demo(
    *,
    max_tokens: int,
    quick: bool,
    trace: Path,
    as_json: bool,
    targets: Sequence[str],
    drafts: Sequence[str],
    emulate: str | None,
) -> int:
    """Runs the demonstration. Returns the exit code: 1 if outputs differ where no near tie explains it; 130 after SIGINT
    and 143 after SIGTERM, which end everything that was started.

    Args:
        max_tokens: Output tokens for each prompt.
        quick: Fewer and shorter texts.
        trace: Gets the timeline of the speculative texts.
        as_json: Print one JSON object; what people read goes to stderr then.
        targets: A target model in place of the shipped one.
        drafts: Draft models in place of the shipped one.
        emulate: Profiles of emulated devices; the models are then laws.

    Raises:
        CommandFailed: The service cannot start, a request failed, or the timeline cannot be written.
    """
    if not (folder := trace.absolute().parent).is_dir():
        raise CommandFailed(f"--trace {trace}: the folder {folder} does not exist", USAGE)
    config = service_config(targets=targets, drafts=drafts, listen="127.0.0.1:0", emulate=emulate)
    num_prompts = QUICK_PROMPTS if quick else len(BUILT_IN)
    max_tokens = min(max_tokens, QUICK_TOKENS) if quick else max_tokens
    with redirect_stdout(sys.stderr) if as_json else nullcontext(), ending_by_signal() as ending:
        ways, timeline = served(config, ending, max_tokens, num_prompts)
        if ending.is_set():
            progress("interrupted")
            return ending.exit_code
        emulated = ", ".join(config.emulated)
        reports = [(one, report_of(one.fast, one.plain, emulated=emulated)) for one in ways]
        for one, found in reports:
            print_report(one.plan, found)
        if timeline is not None:
            try:
                save(timeline, trace)
            except OSError as error:
                raise CommandFailed(f"--trace {trace} cannot be written: {error}") from error
            print_line("where the time of speculative decoding went:")
            tell(timeline, as_json=False)
            print_line(f"timeline: {trace} (open it at ui.perfetto.dev or chrome://tracing)")
        compared = [found.comparison for _, found in reports if found.comparison is not None]
        equal, pairs = sum(one.equal for one in compared), sum(one.pairs for one in compared)
        print_line(f"{equal} of {pairs} texts equal plain decoding, token by token")
        if config.emulated:
            print_line("every time and speed above is emulated; the texts are drawn from a law")
    if as_json:
        timed = timeline and {**as_dict(summarise(timeline)), "file": str(trace)}
        texts = [{**report_as_dict(one.plan, found), "texts": one.texts} for one, found in reports]
        print_json({"by_temperature": texts, "timeline": timed})
    return FAILED if any(one.unexplained for one in compared) else 0


def served(
    config: Config, ending: Ending, max_tokens: int, num_prompts: int
) -> tuple[list[BothWays], Timeline | None]:
    """Starts the service, has everything decoded, and ends the service. A signal cuts it short.

    Raises:
        CommandFailed: The service cannot start, or a request failed.
    """
    # Only now: Ray takes a second to import, which a mistyped flag should not cost.
    from outrider.cluster.ray.own_node import StartCancelled
    from outrider.cluster.roster.actor_status import progress_line
    from outrider.cluster.start.launch import ServiceFailed, start_service

    async def decode(address: str) -> tuple[list[BothWays], Timeline | None]:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        with ending.calling(lambda: loop.call_soon_threadsafe(task.cancel)):
            try:
                async with AsyncClient(address) as client:
                    return await decode_all(client, max_tokens, num_prompts)
            except asyncio.CancelledError:
                failed = "cancelled"
            except OutriderError as error:
                failed = f"a request failed: {error}"
        gc.collect()  # Else what has failed keeps its connection until the service ends, and gRPC writes about that.
        raise CommandFailed(failed)

    try:
        with start_service(
            config,
            progress=lambda actor: progress(progress_line(actor)),
            is_cancelled=ending.is_set,
        ) as service:
            return event_loop.run(decode(service.address))
    except (StartCancelled, ServiceFailed, CommandFailed) as error:
        # A signal to all processes at once, as some supervisors send it, ends the actors before us.
        if ending.is_set():
            return [], None
        raise CommandFailed(str(error)) from error


@dataclass(slots=True)
class BothWays:
    """All prompts at one temperature: a sample a prompt each way, in the order of the prompts."""

    plan: BenchPlan
    writer: TextWriter
    plain: Phase = field(default_factory=Phase)
    fast: Phase = field(default_factory=Phase)
    """Speculative."""

    texts: list[str] = field(default_factory=list)
    """Those of `fast`, as far as they have come."""

    def take(self, event: Event) -> None:
        """Shows an event of speculative decoding, which comes prompt by prompt."""
        match event:
            case Admission():
                self.writer.admit(event)
                prompt = self.plan.prompts[len(self.texts)]
                text = f"{prompt.messages[-1].content}\n" if prompt.messages else prompt.text or ""
                print_line(f"\n{prompt.category}, temperature {self.plan.sampling.temperature:g}")
                print(printable(text), end="", flush=True)
                self.texts.append("")
            case TextChunk():
                self.writer.write(event)
                self.texts[-1] += event.text

    def end(self, fast: RequestSample) -> None:
        """Says below a text what it came to."""
        plain, same = self.plain.samples[fast.prompt], "same text as plain decoding"
        for found in differences([plain], [fast]):
            cause = "a near tie" if found.near_tie else "NOT explained by a near tie"
            same = f"differs from plain decoding at token {found.position}, {cause}"
        print_line(
            f"\n  {len(fast.token_ids)} tokens, {fast.stats.mean_tokens_per_pass:.2f} a target pass, "
            f"{plain.total_s / fast.total_s:.2f} x plain, {same}"
        )


async def decode_all(
    client: AsyncClient, max_tokens: int, num_prompts: int
) -> tuple[list[BothWays], Timeline | None]:
    """Decodes a prompt of each category at each temperature: all plainly and unseen, then all speculatively and shown.

    Returns:
        One entry a temperature; and what the actors did during speculative decoding, None if nothing could be recorded.

    Raises:
        OutriderError: A request failed.
    """
    has_chat = (await client.models())[0].has_chat_template
    usable = [one for one in BUILT_IN if one.messages is None or has_chat]
    first = {one.category: one for one in reversed(usable)}
    prompts = [first[one] for one in dict.fromkeys(each.category for each in usable)][:num_prompts]
    token_texts: dict[int, str] = {}
    writer = TextWriter(lambda token: token_texts.get(token, ""))
    ways = []
    for temperature in TEMPERATURES:
        sampling = SamplingOptions(max_tokens=max_tokens, temperature=temperature)
        plan = BenchPlan(
            prompts=tuple(prompts), sampling=sampling, speculation=SpeculationOptions(enabled=True)
        )
        ways.append(BothWays(plan, writer))
    # Memory, caches and cost estimates are cold at first.
    other = [one for one in usable if one not in prompts][:1]
    for one in ways:
        for is_plain in (True, False):
            await measure_phase(client, one.plan, other, 0, is_plain=is_plain)
    counted = ProgressLine(len(prompts) * len(ways))
    # Recorded as well, and not kept: recording takes time of either way.
    async with client.start_trace(seconds=TRACE_S) as recording:
        await recording.wait_started()
        for one in ways:
            one.plain = await measure_phase(
                client, one.plan, prompts, 0, is_plain=True, on_sample=counted.step
            )
    counted.clear()
    # Asked now, so that no question falls into what is measured.
    ids = {token for one in ways for sample in one.plain.samples for token in sample.token_ids}
    for token in ids:
        token_texts[token] = await client.detokenize([token], skip_special_tokens=True)
    async with client.start_trace(seconds=TRACE_S) as recording:
        await recording.wait_started()
        for one in ways:
            one.fast = await measure_phase(
                client, one.plan, prompts, 0, is_plain=False, on_sample=one.end, on_event=one.take
            )
    try:
        return ways, await recording.result()
    except OutriderError as error:
        progress(f"no timeline: {error}")
        return ways, None


def progress(line: str) -> None:
    """Says how it goes."""
    print(line, file=sys.stderr, flush=True)
