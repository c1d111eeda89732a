"""Clients: who asks for what, and when. The same requests in every mode, so that outputs can be compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from outrider.actors.speculation.options import Sampling
from outrider.cluster.simulate.coordinator_process import CoordinatorProcess, Key
from outrider.cluster.simulate.heap import Heap
from outrider.cluster.simulate.scenario import Load, Scenario, Wave

A_STEP = 10_000_000
"""Requests of a client that a step of the load has numbers for: those of the next step begin here. So a request is the same in every mode,
whichever step the modes reach it in."""


@dataclass(slots=True)
class Asked:
    """What became of a request."""

    began_s: float
    first_s: float | None = None
    ended_s: float | None = None
    failure: str = ""
    tokens: int = 0


@dataclass(slots=True)
class Answers:
    """What clients got."""

    requests: dict[Key, Asked] = field(default_factory=dict)
    times_s: list[float] = field(default_factory=list)
    """Of deliveries."""
    tokens: list[int] = field(default_factory=list)
    """Of deliveries."""
    keys: list[Key] = field(default_factory=list)
    """Of deliveries: whose they were."""


class Traffic:
    """Asks a coordinator."""

    def __init__(
        self,
        scenario: Scenario,
        heap: Heap,
        coordinator: CoordinatorProcess,
        *,
        vocab_size: int,
        speculates: bool,
    ) -> None:
        self.answers = Answers()
        self.text_of: Callable[[Key, int], tuple[tuple[int, ...], int]] = self._text_of
        """Token ids of a request's prompt, so many, and the seed of its sampling; random ones, unless replaced."""
        self._scenario = scenario
        self._heap = heap
        self._coordinator = coordinator
        self._vocab_size = vocab_size
        self._speculates = speculates
        self._step: Load | None = None
        self._at_work: set[int] = set()
        self._first = 0
        """Number that those of the step begin behind."""
        self._numbers: dict[int, int] = {}
        """Of each client's last request in the step."""

    def start(self) -> None:
        """Plans everything."""
        for index, step in enumerate(self._scenario.load):
            self._heap.at(step.at_s, self._begin(step, index * A_STEP))
        for index, wave in enumerate(self._scenario.waves):
            self._heap.at(wave.at_s, self._wave(index, wave, 0))

    def _begin(self, step: Load, first: int) -> Callable[[], None]:
        def begin() -> None:
            self._step, self._first = step, first
            self._numbers.clear()
            for client in range(step.clients):
                if client not in self._at_work:
                    self._ask_as(client)

        return begin

    def _ask_as(self, client: int) -> None:
        step = self._step
        if step is None or client >= step.clients:
            self._at_work.discard(client)
            return
        self._at_work.add(client)
        number = self._numbers[client] = self._numbers.get(client, self._first) + 1
        self._ask(
            ("client", client, number),
            step.prompt,
            step.tokens,
            step.speculates,
            lambda: self._ask_as(client),
        )

    def _wave(self, index: int, wave: Wave, number: int) -> Callable[[], None]:
        def rise() -> None:
            for each in range(wave.requests):
                key = ("wave", index, number * wave.requests + each)
                self._ask(key, wave.prompt, wave.tokens, True, lambda: None)
            if wave.every_s is not None:
                when = self._heap.now + wave.every_s
                if wave.until_s is None or when < wave.until_s:
                    self._heap.at(when, self._wave(index, wave, number + 1))

        return rise

    def _ask(
        self,
        key: Key,
        prompt: int,
        tokens: int,
        speculates: bool,
        then: Callable[[], None],
    ) -> None:
        prompt_ids, seed = self.text_of(key, prompt)
        asked = self.answers.requests[key] = Asked(self._heap.now)

        def on_tokens(count: int, now: float) -> None:
            if asked.first_s is None:
                asked.first_s = now
            asked.tokens += count
            self.answers.times_s.append(now)
            self.answers.tokens.append(count)
            self.answers.keys.append(key)

        def on_end(now: float, failure: str) -> None:
            asked.ended_s, asked.failure = now, failure
            self._heap.at(now, then)

        self._coordinator.request(
            prompt_ids,
            Sampling(
                seed=seed,
                max_tokens=tokens,
                temperature=self._scenario.temperature,
            ),
            self._scenario.speculation(enabled=self._speculates and speculates),
            on_tokens=on_tokens,
            on_end=on_end,
            key=key,
        )

    def _text_of(self, key: Key, prompt: int) -> tuple[tuple[int, ...], int]:
        kind, client, number = key
        generator = np.random.default_rng([self._scenario.seed, len(kind), client, number])
        ids = tuple(generator.integers(0, self._vocab_size, prompt).tolist())
        return ids, int(generator.integers(0, 1 << 63))
