"""The work that is timed: passes over trees, draws, and whole rounds."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from outrider.actors.engine.protocol import Logits, Rows
from outrider.actors.engine.transformers_engine import TransformersEngine
from outrider.actors.speculation import coupled
from outrider.actors.speculation.noise import GumbelNoise, NoiseCache
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.speculation.pool import Selection
from outrider.actors.speculation.transforms import SamplingTransform
from outrider.actors.target.device_drawing import DeviceDraws
from outrider.actors.target.drawing import Drawer
from outrider.actors.target.events import Owner
from outrider.actors.target.plan import Entry
from outrider.actors.target.session import Session

CHUNK = 256
"""Prompt tokens in one pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A batch of trees."""

    sessions: int
    nodes: int
    """Candidates of each session, below its root."""

    context: int
    """Cached rows of each session."""


def session_of(engine: TransformersEngine, *, seed: int, temperature: float) -> Session:
    """A session that has just begun."""
    sampling = Sampling(seed=seed, temperature=temperature, max_tokens=1000)
    spec = engine.spec
    transform = SamplingTransform(
        sampling, vocab_size=spec.vocab_size, prompt=[1], eos_token_ids=(), device=spec.device
    )
    noise = NoiseCache(GumbelNoise(spec.vocab_size, spec.device), seed)
    return Session(
        owner=Owner(stream=1, session=seed),
        handle=seed,
        group=0,
        slot=0,
        prompt=[1],
        committed=(),
        sampling=sampling,
        speculation=Speculation(),
        drafters=(),
        transform=transform,
        noise=noise if transform.uses_noise else None,
        stop_tokens=frozenset(),
    )


def entry_of(session: Session, tokens: list[int], parents: list[int]) -> Entry:
    """A session's tree in a pass."""
    selection = Selection(tokens=tokens, parents=parents, nodes=[], values=[])
    return Entry(session=session, chain=[0], is_prefill=False, selection=selection)


class Stand:
    """An engine with sessions of a context in its slots."""

    def __init__(self, engine: TransformersEngine, load: Load) -> None:
        """Runs the prompts."""
        self._engine = engine
        self._load = load
        self._rng = random.Random(0)
        self._slots = [engine.acquire() for _ in range(load.sessions)]
        for slot in self._slots:
            for start in range(0, load.context, CHUNK):
                count = min(CHUNK, load.context - start)
                rows = Rows(
                    slot=slot,
                    tokens=self._tokens(count),
                    parents=range(-1, count - 1),
                    logits="none",
                )
                engine.forward([rows])
                engine.rebase(slot, range(count))
        # A tree like those that are verified: two children each.
        self._parents = [(node - 1) // 2 if node else -1 for node in range(load.nodes)]
        self._sessions = [
            session_of(engine, seed=slot + 1, temperature=0.8) for slot in self._slots
        ]
        self._draws = DeviceDraws(engine)
        self.logits = self.run_pass()

    def run_pass(self) -> Logits:
        """One pass; its rows are dropped again."""
        parents = [-1, *(1 + parent for parent in self._parents)]
        batch = [
            Rows(slot=slot, tokens=self._tokens(len(parents)), parents=parents)
            for slot in self._slots
        ]
        logits = self._engine.forward(batch)
        for slot in self._slots:
            self._engine.truncate(slot, self._load.context)
        return logits

    def draw_on_device(self) -> None:
        """All draws and walks at once, on the last pass's logits."""
        self._draws.start(self._entries(), self.logits)()

    def draw_on_host(self) -> None:
        """One draw at a time, as each walk reaches it."""
        for index, entry in enumerate(self._entries()):
            selection, session = entry.selection, entry.session
            drawer = Drawer(session, self.logits.of(index), selection.parents, selection.tokens)
            coupled.walk(selection.tokens, selection.parents, drawer, session.remaining)

    def round_of(self, draw: Callable[[], None]) -> Callable[[], None]:
        """A pass and its draws."""

        def run() -> None:
            self.logits = self.run_pass()
            draw()

        return run

    def release(self) -> None:
        """Frees the slots."""
        for slot in self._slots:
            self._engine.release(slot)

    def _tokens(self, count: int) -> list[int]:
        return [self._rng.randrange(self._engine.spec.vocab_size) for _ in range(count)]

    def _entries(self) -> list[Entry]:
        return [
            entry_of(session, self._tokens(self._load.nodes), self._parents)
            for session in self._sessions
        ]
