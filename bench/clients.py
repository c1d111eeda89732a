"""Endless clients: each decodes one prompt after the other until it is told to stop. What they get is counted and compared."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager

from bench.prompts import Prompt
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


class Clients:
    """Some clients of one service."""

    def __init__(self, client: AsyncClient, prompts: Sequence[Prompt], *, max_tokens: int) -> None:
        """Args:
        client: What all send through.
        prompts: What they ask for, in turn.
        max_tokens: Of each request; end-of-text is an ordinary token.
        """
        self._client = client
        self._prompts = prompts
        self._sampling = SamplingOptions(
            seed=SEED, temperature=0.8, max_tokens=max_tokens, ignore_eos=True
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

    async def window(self, seconds: float, *, speculates: bool) -> float:
        """Tokens a second over so many seconds, once every request of the other mode has ended."""
        rate, _ = await self.while_(asyncio.sleep(seconds), speculates=speculates)
        return rate

    async def while_(
        self, work: Coroutine[None, None, None], *, speculates: bool
    ) -> tuple[float, float]:
        """Tokens a second while something else is done, and the seconds that it took."""
        self._speculates = speculates
        while self._in_mode[not speculates]:  # noqa: ASYNC110 - a count of our own, for a request or two
            await asyncio.sleep(0.01)
        tokens, began = self._num_tokens, time.perf_counter()
        await work
        took_s = time.perf_counter() - began
        return (self._num_tokens - tokens) / took_s, took_s

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
            **self._prompts[number].request(),
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
