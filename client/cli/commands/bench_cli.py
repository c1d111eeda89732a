"""`outrider bench`: how fast a service is, and whether speculation pays."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from outrider.client.cli.reports.bench_phase import ProgressLine, measure_phase
from outrider.client.cli.reports.bench_report import (
    BenchPlan,
    BenchReport,
    Phase,
    print_report,
    report_as_dict,
    report_of,
)
from outrider.client.cli.shared import flags
from outrider.client.cli.shared.exits import ExitCode, usage_error
from outrider.client.cli.shared.printing import print_json
from outrider.client.cli.shared.service_options import ServiceAddress, connecting
from outrider.client.connection import event_loop
from outrider.client.connection.wanted import shown
from outrider.client.measuring.measuring_prompts import BUILT_IN, read_prompts
from outrider.client.messages.request_options import SamplingOptions, SpeculationOptions


class BaselineChoice(StrEnum):
    """What to compare with."""

    PLAIN = "plain"
    """The same prompts and seeds through the same service, with speculation off."""


@connecting
@flags.request_options(sampling=("ignore_eos",))
def bench(
    service: ServiceAddress,
    sampling: SamplingOptions,
    speculation: SpeculationOptions,
    model: flags.Model = "",
    prompts: Annotated[
        Path | None,
        typer.Option(
            "--prompts",
            metavar="FILE",
            help="One text a line, or .jsonl with prompt, tokens or messages. Default: a varied few.",
        ),
    ] = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, max=4096, help="Requests at once.")
    ] = 1,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", "-n", min=1, help="Output tokens of a request.")
    ] = 64,
    temperature: Annotated[
        float, typer.Option("--temperature", "-t", min=0.0, help="0 is greedy.")
    ] = 0.0,
    seeds: Annotated[
        str, typer.Option("--seeds", metavar="SEED,SEED,...", help="Each prompt runs with each.")
    ] = "0",
    runs: Annotated[int, typer.Option("--runs", min=1, help="How often to do it all.")] = 1,
    warm_up: Annotated[
        int, typer.Option("--warm-up", min=0, help="Requests before the clock starts.")
    ] = 2,
    compare_with: Annotated[
        BaselineChoice | None,
        typer.Option(
            "--compare",
            help="Decode plainly too, check that the outputs are equal, give the ratio.",
        ),
    ] = None,
    timeout_s: flags.TimeoutS = flags.TIMEOUT_DEFAULT,
    as_json: flags.AsJson = False,
) -> None:
    """Measure time to first token, time per token, tokens per second and acceptance.

    Ends with 1 if outputs differ that should be equal, and no near tie explains it.
    """
    if compare_with is not None and speculation.enabled is False:
        raise usage_error("--compare plain with --plain would compare plain decoding with itself")
    plan = BenchPlan(
        prompts=read_prompts(prompts) if prompts is not None else BUILT_IN,
        seeds=parse_seeds(seeds),
        runs=runs,
        concurrency=concurrency,
        sampling=replace(sampling, max_tokens=max_tokens, temperature=temperature),
        speculation=speculation,
        model=model,
        compare_plain=compare_with is not None,
    )
    report = event_loop.run(run(plan, service=service, timeout_s=timeout_s, warm_up=warm_up))
    if as_json:
        print_json(report_as_dict(plan, report))
    else:
        print_report(plan, report)
    if report.comparison is not None and report.comparison.unexplained:
        raise typer.Exit(ExitCode.FAILURE)


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds from a list with commas.

    Raises:
        CommandFailure: An entry is not a number, or appears twice.
    """
    try:
        seeds = tuple(int(seed) for seed in text.split(","))
    except ValueError:
        raise usage_error(
            f"--seeds {shown(text)} is not a list of numbers, for instance 0,1,2"
        ) from None
    if len(set(seeds)) < len(seeds):
        raise usage_error(f"--seeds {shown(text)} names a seed twice; --runs repeats measurements")
    return seeds


async def run(
    plan: BenchPlan, *, service: ServiceAddress, timeout_s: float, warm_up: int
) -> BenchReport:
    """Measures by plan. Plain and speculative decoding take turns, and swap who goes first."""
    speculative, plain = Phase(), Phase()
    speed_ups = []
    total = len(plan.prompts) * len(plan.seeds) * plan.runs * (2 if plan.compare_plain else 1)
    progress = ProgressLine(total)
    async with AsyncExitStack() as held:
        held.callback(progress.clear)
        client = await held.enter_async_context(service.async_client(timeout_s=timeout_s))
        known = await client.models()
        for _ in range(warm_up):
            await measure_phase(client, plan, plan.prompts[:1], plan.seeds[0], is_plain=False)
        for run_number in range(plan.runs):
            tokens, walls = [0, 0], [0.0, 0.0]
            for turn, seed in enumerate(plan.seeds, start=run_number):
                order = (True, False) if turn % 2 == 0 else (False, True)
                for is_plain in order if plan.compare_plain else (False,):
                    part = await measure_phase(
                        client, plan, plan.prompts, seed, is_plain=is_plain, on_sample=progress.step
                    )
                    phase = plain if is_plain else speculative
                    phase.samples.extend(part.samples)
                    phase.wall_s += part.wall_s
                    tokens[is_plain] += sum(len(sample.token_ids) for sample in part.samples)
                    walls[is_plain] += part.wall_s
            if plan.compare_plain and tokens[True]:
                speed_ups.append((tokens[False] / walls[False]) / (tokens[True] / walls[True]))
    return report_of(
        speculative,
        plain if plan.compare_plain else None,
        speed_up_by_run=speed_ups,
        emulated=next((m.emulated for m in known if plan.model in ("", m.name)), ""),
        must_equal=plan.must_equal,
    )
