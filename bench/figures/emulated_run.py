"""Many requests at once on an emulated device: a window of steady state, in which all of them run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.figures.cpu import process_seconds
from outrider.client import AsyncClient, SamplingOptions, SpeculationOptions
from outrider.client.connection import event_loop
from outrider.client.measuring.figures import total_stats
from outrider.client.messages.results import Completion, SpeculationStats, TextChunk
from outrider.cluster.start.launch import RunningService

REQUEST_S = 300.0
"""Bound on one request."""

SETTLED = 16
"""Tokens that every request has when the window begins: prompts are through, and drafters are at work."""

CLIENT = "client"
"""This process among the processes whose time is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What happened between the moment when every request had its first tokens, and the first end of one."""

    seconds: float
    tokens: int
    """Of all requests, as they came to the client."""

    cpu_s: dict[str, float]
    """Processor time by role, and of the client."""

    stats: SpeculationStats
    """Of the whole requests, all together."""

    outputs: tuple[tuple[int, ...], ...]
    """Token ids of each request."""

    @property
    def tokens_per_s(self) -> float:
        """Of all requests together."""
        return self.tokens / self.seconds

    @property
    def session_rounds(self) -> float:
        """Rounds of all sessions in the window, plain ones included."""
        return self.tokens / self.stats.mean_tokens_per_pass

    @property
    def cpu_us(self) -> dict[str, float]:
        """Microseconds of processor time for each round of a session, by role."""
        return {role: 1e6 * used / self.session_rounds for role, used in self.cpu_s.items()}


def run_window(
    service: RunningService,
    prompts: Sequence[Sequence[int]],
    *,
    enabled: bool,
    temperature: float,
    max_tokens: int,
) -> Window:
    """Decodes all prompts at the same time, each with its position for a seed.

    Args:
        service: Decodes.
        prompts: Token ids.
        enabled: Whether with speculation.
        temperature: Of sampling.
        max_tokens: Of each request.

    Raises:
        RuntimeError: A request ended before all had begun; there was no time in which all of them ran.
    """
    return event_loop.run(
        _run(service, prompts, enabled=enabled, temperature=temperature, max_tokens=max_tokens)
    )


async def _run(
    service: RunningService,
    prompts: Sequence[Sequence[int]],
    *,
    enabled: bool,
    temperature: float,
    max_tokens: int,
) -> Window:
    outputs: list[list[int]] = [[] for _ in prompts]
    stats: list[SpeculationStats] = []
    marks: list[tuple[float, int, dict[str, float]]] = []
    num_settled = 0

    def mark() -> None:
        marks.append((time.perf_counter(), sum(map(len, outputs)), _cpu(service)))

    async def one(client: AsyncClient, number: int) -> None:
        nonlocal num_settled
        output, is_settled = outputs[number], False
        async with client.stream(
            tokens=prompts[number],
            sampling=SamplingOptions(
                temperature=temperature, max_tokens=max_tokens, ignore_eos=True, seed=number
            ),
            speculation=SpeculationOptions(enabled=enabled),
        ) as stream:
            async for event in stream:
                match event:
                    case TextChunk():
                        output.extend(token.id for token in event.tokens)
                        if not is_settled and len(output) >= SETTLED:
                            is_settled, num_settled = True, num_settled + 1
                            if num_settled == len(prompts):
                                mark()
                    case Completion():
                        stats.append(event.speculation)
                        if len(stats) == 1:
                            mark()

    async with (
        AsyncClient(service.address, timeout_s=REQUEST_S) as client,
        asyncio.TaskGroup() as group,
    ):
        for number in range(len(prompts)):
            group.create_task(one(client, number))
    if num_settled < len(prompts) or len(marks) != 2 or marks[0][1] == marks[1][1]:
        raise RuntimeError("the first request ended before all had begun; take longer ones")
    (began, before, cpu_before), (ended, after, cpu_after) = marks
    return Window(
        seconds=ended - began,
        tokens=after - before,
        cpu_s={role: cpu_after[role] - cpu_before[role] for role in cpu_after},
        stats=total_stats(stats),
        outputs=tuple(map(tuple, outputs)),
    )


def _cpu(service: RunningService) -> dict[str, float]:
    seconds = {CLIENT: time.process_time()}
    for actor in service.actors():
        role = actor.role.value
        used = process_seconds(Path(f"/proc/{actor.pid}/stat"))
        seconds[role] = seconds.get(role, 0.0) + used
    return seconds
