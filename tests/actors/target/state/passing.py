"""Sessions in a table and passes over trees below their texts, without a worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.protocol import Batch, Engine, Rows
from outrider.actors.speculation.noise.gumbel import GumbelNoise
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.speculation.trees.ragged import starts_of
from outrider.actors.target.opening import open_session
from outrider.actors.target.state.passes import Pass
from outrider.actors.target.state.target_events import OpenSession, SessionOwner
from outrider.actors.target.state.target_settings import TargetSettings
from outrider.actors.target.state.target_state import TargetState
from outrider.actors.tracing.recorder import Recorder

SETTINGS = TargetSettings(
    name="t", incarnation=1, model_name="m", engine=EngineSettings(model="tabular:x")
)


@dataclass(frozen=True, kw_only=True)
class Tree:
    """What a session has in a pass: candidates below its text, and the last tokens of that."""

    row: int
    tokens: Sequence[int] = ()
    parents: Sequence[int] = ()
    drafters: Sequence[int] = ()
    """Numbers; empty: drafter 0 for all."""
    chain: int = 1
    draws: bool = True
    """False: a part of a prompt."""


class Sessions:
    """A target's state, and sessions opened in it."""

    def __init__(self, engine: Engine) -> None:
        self.state = TargetState(engine, SETTINGS, Recorder())
        self.state.number_of("d")
        self._noise = GumbelNoise(engine.spec.vocab_size, torch.device("cpu"))
        self._count = 0

    def open(
        self,
        sampling: Sampling,
        committed: Sequence[int] = (),
        speculation: Speculation | None = None,
        prompt: Sequence[int] = (1, 2, 3),
    ) -> int:
        """Opens a session; returns its row."""
        self._count += 1
        event = OpenSession(
            owner=SessionOwner(stream=1, session=self._count),
            group=0,
            prompt=tuple(prompt),
            committed=tuple(committed),
            sampling=sampling,
            speculation=speculation or Speculation(),
            drafters={"d": 0},
        )
        return open_session(event, self.state, self._noise, now=0.0).row


def depths_of(parents: Sequence[int]) -> list[int]:
    """Tokens from the text to each node."""
    depths: list[int] = []
    for parent in parents:
        depths.append(1 + (depths[parent] if parent >= 0 else 0))
    return depths


def pass_of(trees: Sequence[Tree]) -> Pass:
    """A pass; logits are wanted of all rows of those that draw. Tokens of texts are not looked at."""
    entries = [
        Rows(
            slot=tree.row,
            tokens=[0] * tree.chain + list(tree.tokens),
            parents=[*range(-1, tree.chain - 1), *(tree.chain + p for p in tree.parents)],
            logits="all" if tree.draws else "none",
        )
        for tree in trees
    ]
    counts = np.array([len(tree.tokens) for tree in trees], np.int64)
    drafters = [d for tree in trees for d in (tree.drafters or [0] * len(tree.tokens))]
    num_nodes = int(counts.sum())
    return Pass(
        batch=Batch.of(entries),
        chains_E=np.array([tree.chain for tree in trees], np.int64),
        draws_E=np.array([tree.draws for tree in trees], np.bool_),
        starts_E=starts_of(counts),
        entries_N=np.arange(len(trees)).repeat(counts),
        tokens_N=np.array([t for tree in trees for t in tree.tokens], np.int64),
        parents_N=np.array([p for tree in trees for p in tree.parents], np.int64),
        depths_N=np.array([d for tree in trees for d in depths_of(tree.parents)], np.int64),
        columns_N=np.arange(num_nodes),
        drafters_N=np.array(drafters, np.int64),
        estimates_N=np.full(num_nodes, 0.5),
        kinds_E=np.zeros(len(trees), np.int64),
        began_s=0.0,
        drafting=True,
        has_prompt=not all(tree.draws for tree in trees),
    )
