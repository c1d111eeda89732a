"""Endless clients: each decodes one prompt after the other until it is told to stop. What they get is counted and compared."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from outrider.client import (
    Admission,
    AsyncClient,
    OutriderError,
    SamplingOptions,
    SpeculationOptions,
    TextChunk,
)

SEED = 1
"""Of every request."""

TIMEOUT_S = 300.0
"""Of one request."""

SLICE_S = 3.0
"""Of decoding one way before the other has its turn."""

LEAST_SLICES = 4
"""Of each way in a comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Two ways of decoding by turns, while something else was done."""

    took_s: float
    """Until the other thing was done, by the end of a slice."""

    plain: tuple[float, ...]
    """Tokens a second of each slice."""

    speculative: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Speculative over plain: of the means, since every token counts."""
        return statistics.mean(self.speculative) / statistics.mean(self.plain)


class Clients:
    """Some clients of one service."""

    def __init__(
        self,
        client: AsyncClient,
        prompts: Sequence[Mapping[str, Any]],
        *,
        temperature: float,
        max_tokens: int,
    ) -> None:
        """Args:
        client: What all send through.
        prompts: What they ask for, in turn: arguments for the client.
        temperature: Of sampling.
        max_tokens: Of each request; end-of-text is an ordinary token.
        """
        self._client = client
        self._prompts = prompts
        self._sampling = SamplingOptions(
            seed=SEED, temperature=temperature, max_tokens=max_tokens, ignore_eos=True
        )
        self._expected: dict[int, tuple[int, ...]] = {}
        self._speculates = False
        self._in_mode: dict[bool, int] = {True: 0, False: 0}
        self._is_over = False
        self._num_tokens = 0
        self.num_done = 0
        """Requests that ended as they should."""
        self.num_different = 0
        """Of them, those with another text than the first time."""
        self.failures: list[str] = []
        """What the others ended with."""
        self.fingerprints: set[str] = set()
        """Of the models that answered."""

    async def learn(self) -> None:
        """Decodes each prompt once, plainly: what is to come out each time."""
        for number in range(len(self._prompts)):
            self._expected[number] = await self._decode(number, speculates=False)

    @asynccontextmanager
    async def running(self, count: int) -> AsyncIterator[None]:
        """So many clients at work; at the end each finishes its request."""
        numbers = itertools.cycle(range(len(self._prompts)))
        tasks = [asyncio.create_task(self._work(numbers)) for _ in range(count)]
        try:
            yield
        finally:
            self._is_over = True
            await asyncio.gather(*tasks)

    async def compare(self, work: Coroutine[None, None, None]) -> Compared:
        """Decodes plainly and by speculation by turns while something else is done, and for `LEAST_SLICES` of each in any case."""
        began = time.perf_counter()
        task = asyncio.create_task(work)
        rates: dict[bool, list[float]] = {False: [], True: []}
        took_s = None
        for speculates in itertools.cycle((True, False, False, True)):
            rates[speculates].append(await self._slice(speculates))
            if task.done() and took_s is None:
                took_s = time.perf_counter() - began
            if took_s is not None and min(map(len, rates.values())) >= LEAST_SLICES:
                break
        await task
        return Compared(
            took_s=took_s or 0.0,
            plain=tuple(rates[False]),
            speculative=tuple(rates[True]),
        )

    async def _slice(self, speculates: bool) -> float:
        """Tokens a second over `SLICE_S`, once every request of the other mode has ended."""
        self._speculates = speculates
        while self._in_mode[not speculates]:  # noqa: ASYNC110 - a count of our own, for a request or two
            await asyncio.sleep(0.01)
        tokens, began = self._num_tokens, time.perf_counter()
        await asyncio.sleep(SLICE_S)
        return (self._num_tokens - tokens) / (time.perf_counter() - began)

    async def _work(self, numbers: itertools.cycle[int]) -> None:
        while not self._is_over:
            number, speculates = next(numbers), self._speculates
            self._in_mode[speculates] += 1
            try:
                said = await self._decode(number, speculates=speculates)
            except OutriderError as error:
                self.failures.append(f"{type(error).__name__}: {error.message}")
                await asyncio.sleep(0.1)
                continue
            finally:
                self._in_mode[speculates] -= 1
            self.num_done += 1
            self.num_different += said != self._expected[number]

    async def _decode(self, number: int, *, speculates: bool) -> tuple[int, ...]:
        said: list[int] = []
        async for event in self._client.stream(
            **self._prompts[number],
            sampling=self._sampling,
            speculation=SpeculationOptions(enabled=speculates),
            timeout_s=TIMEOUT_S,
        ):
            if isinstance(event, TextChunk):
                said += [token.id for token in event.tokens]
                self._num_tokens += len(event.tokens)
            elif isinstance(event, Admission):
                self.fingerprints.add(event.model_fingerprint)
        return tuple(said)
