"""The work that is timed: passes over trees, draws, and whole rounds."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.models.transformers_engine import TransformersEngine
from outrider.actors.engine.protocol import Batch, Logits, Moves, Rows
from outrider.actors.speculation.noise.gumbel import GumbelNoise
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.speculation.trees.ragged import starts_of
from outrider.actors.target.opening import open_session
from outrider.actors.target.state.passes import OWN, Pass
from outrider.actors.target.state.target_events import OpenSession, SessionOwner
from outrider.actors.target.state.target_settings import TargetSettings
from outrider.actors.target.state.target_state import TargetState
from outrider.actors.target.verify.device_drawing import DeviceDraws
from outrider.actors.target.verify.host_drawing import HostDraws
from outrider.actors.tracing.recorder import Recorder

CHUNK = 256
"""Prompt tokens in one pass."""

MAX_TOKENS = 64
"""That a session may still commit: more than any walk is long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A batch of trees."""

    sessions: int
    nodes: int
    """Candidates of each session, below its root."""

    context: int
    """Cached rows of each session."""


SETTINGS = TargetSettings(
    name="bench", incarnation=1, model_name="bench", engine=EngineSettings(model="bench")
)


def open_in(state: TargetState, prompt: Sequence[int], *, seed: int, temperature: float) -> int:
    """Opens a session; returns its row."""
    spec = state.engine.spec
    event = OpenSession(
        owner=SessionOwner(stream=1, session=seed),
        group=0,
        prompt=prompt,
        committed=(),
        sampling=Sampling(seed=seed, temperature=temperature, max_tokens=MAX_TOKENS),
        speculation=Speculation(),
        drafters={},
    )
    return open_session(event, state, GumbelNoise(spec.vocab_size, spec.device), now=0.0).row


def _depths(parents: Sequence[int]) -> list[int]:
    depths: list[int] = []
    for parent in parents:
        depths.append(1 + (depths[parent] if parent >= 0 else 0))
    return depths


def pass_over(rows: Sequence[int], trees: Sequence[tuple[list[int], list[int]]]) -> Pass:
    """A pass over the last token of each session, which is 0, and a tree below it: tokens and parents."""
    entries = [
        Rows(slot=row, tokens=[0, *tokens], parents=[-1, *(1 + parent for parent in parents)])
        for row, (tokens, parents) in zip(rows, trees, strict=True)
    ]
    counts = np.array([len(tokens) for tokens, _ in trees], np.int64)
    num_nodes = int(counts.sum())
    return Pass(
        batch=Batch.of(entries),
        chains_E=np.ones(len(rows), np.int64),
        draws_E=np.ones(len(rows), np.bool_),
        starts_E=starts_of(counts),
        entries_N=np.arange(len(trees)).repeat(counts),
        tokens_N=np.array([token for tokens, _ in trees for token in tokens], np.int64),
        parents_N=np.array([parent for _, parents in trees for parent in parents], np.int64),
        depths_N=np.array([d for _, parents in trees for d in _depths(parents)], np.int64),
        columns_N=np.arange(num_nodes),
        drafters_N=np.full(num_nodes, OWN),
        estimates_N=np.ones(num_nodes),
        kinds_E=np.zeros(len(rows), np.int64),
        began_s=0.0,
        drafting=True,
        has_prompt=False,
    )


class Stand:
    """An engine with sessions of a context in its slots."""

    def __init__(self, engine: TransformersEngine, load: Load) -> None:
        """Runs the prompts."""
        self._engine = engine
        self._load = load
        self._rng = random.Random(0)
        self._state = TargetState(engine, SETTINGS, Recorder())
        self._rows = []
        for number in range(load.sessions):
            prompt = [*self._tokens(load.context), 0]
            row = open_in(self._state, prompt, seed=number + 1, temperature=0.8)
            self._rows.append(row)
            for start in range(0, load.context, CHUNK):
                tokens = prompt[start : min(start + CHUNK, load.context)]
                count = len(tokens)
                rows = Rows(slot=row, tokens=tokens, parents=range(-1, count - 1), logits="none")
                engine.forward([rows])
                engine.rebase(Moves.one(row, range(count)))
        # A tree like those that are verified: two children each.
        self._parents = [(node - 1) // 2 if node else -1 for node in range(load.nodes)]
        self._draws = DeviceDraws(engine, self._state.table, self._state.sessions)
        self._host_draws = HostDraws(engine, self._state.table, self._state.sessions)
        self._pass = self._next_pass()
        self.logits = self.run_pass()

    def run_pass(self) -> Logits:
        """One pass; its rows are dropped again."""
        self._pass = self._next_pass()
        logits = self._engine.forward(self._pass.batch)
        for row in self._rows:
            self._engine.truncate(row, self._load.context)
        return logits

    def draw_on_device(self) -> None:
        """All draws and walks at once, on the last pass's logits."""
        self._draws.start(self._pass, self.logits)()

    def draw_on_host(self) -> None:
        """A level of draws at a time, as walks reach them."""
        self._host_draws.start(self._pass, self.logits)()

    def round_of(self, draw: Callable[[], None]) -> Callable[[], None]:
        """A pass and its draws."""

        def run() -> None:
            self.logits = self.run_pass()
            draw()

        return run

    def release(self) -> None:
        """Frees the slots."""
        for row in self._rows:
            self._engine.release(row)

    def _tokens(self, count: int) -> list[int]:
        return [self._rng.randrange(self._engine.spec.vocab_size) for _ in range(count)]

    def _next_pass(self) -> Pass:
        nodes = self._load.nodes
        return pass_over(self._rows, [(self._tokens(nodes), self._parents) for _ in self._rows])
