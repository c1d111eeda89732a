"""One way of decoding, measured: all its requests, with a line that counts them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from outrider.client.async_client import AsyncClient
from outrider.client.cli.reports.bench_report import BenchPlan, Phase
from outrider.client.measuring.figures import RequestSample
from outrider.client.measuring.measure import measure
from outrider.client.measuring.measuring_prompts import Prompt
from outrider.client.messages.request_options import SpeculationOptions
from outrider.client.messages.results import Event


async def measure_phase(
    client: AsyncClient,
    plan: BenchPlan,
    prompts: Sequence[Prompt],
    seed: int,
    *,
    is_plain: bool,
    on_sample: Callable[[RequestSample], None] = lambda sample: None,
    on_event: Callable[[Event], None] = lambda event: None,
) -> Phase:
    """Runs the prompts once, plainly or as the plan says. Raises and tells as `measure`."""
    samples, wall_s = await measure(
        client,
        prompts,
        seed=seed,
        sampling=plan.sampling,
        speculation=SpeculationOptions(enabled=False) if is_plain else plan.speculation,
        concurrency=plan.concurrency,
        model=plan.model,
        on_sample=on_sample,
        on_event=on_event,
    )
    return Phase(samples=list(samples), wall_s=wall_s)


class ProgressLine:
    """Counts requests on stderr, where somebody watches."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._is_shown = sys.stderr.isatty()

    def step(self, sample: RequestSample) -> None:
        """One more is done."""
        self._done += 1
        if self._is_shown:
            print(f"\r{self._done} of {self._total} requests", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Removes the line."""
        if self._is_shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
