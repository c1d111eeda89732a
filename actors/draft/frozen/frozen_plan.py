"""What the drafter of frozen trees runs in its next pass, for whom, and how large a tree may get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outrider.actors.draft.frozen.frozen_levels import FrozenSession
from outrider.actors.draft.model.fitting import STAND_IN
from outrider.actors.draft.state.draft_sessions import DraftSession
from outrider.actors.draft.trees.frozen_rounds import ROOT
from outrider.actors.engine.protocol import Engine, Rows
from outrider.actors.speculation.choice.tree_shape import shape_of
from outrider.actors.speculation.trees.level_shapes import LevelShape

AHEAD = 1
"""Rounds drafted below predictions. The second prediction is right so rarely that its passes only delay others."""

MAX_PASS_NODES = 64
"""Nodes of all sessions in one draft pass, unless one session alone needs more. Counted by the shapes of trees: whose turn it is must not
depend on how many tokens there were to draw."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One session's part of a pass: committed tokens (`nodes` empty) or nodes to run."""

    session: DraftSession
    state: FrozenSession
    rows: Rows
    nodes: tuple[int, ...] = ()
    planned: int = 0
    """Nodes that there are where no row has fewer tokens than it should have children."""


class SampledPlanner:
    """Puts passes together."""

    def __init__(self, engine: Engine, *, prefill_chunk: int, ahead: int) -> None:
        """
        Args:
            engine: The draft model.
            prefill_chunk: Committed tokens in one pass, at most.
            ahead: Rounds drafted below predictions.
        """
        self._engine = engine
        self._prefill_chunk = min(prefill_chunk, engine.max_scratch)
        self._ahead = ahead
        self._turn = 0

    def entries(
        self, sessions: list[DraftSession], states: Mapping[DraftSession, FrozenSession]
    ) -> Sequence[Entry]:
        """The parts of the next pass: sessions whose next tree is missing first, then those that draft ahead."""
        missing: list[Entry] = []
        ahead: list[Entry] = []
        prefill_left = self._prefill_chunk
        for session in self._in_turn(sessions):
            state = states[session]
            if not state.rounds.rounds:
                entry = self._catch_up(session, state, prefill_left)
                if entry is not None:
                    prefill_left -= len(entry.rows.tokens)
                    missing.append(entry)
            elif not state.rounds.rounds[-1].is_frozen:
                last = state.rounds.rounds[-1]
                entry = self._expand(session, state, last.frontier, last.planned_frontier)
                (missing if len(state.rounds.rounds) == 1 else ahead).append(entry)
            elif self._may_predict(session, state):
                ahead.append(self._expand(session, state, [state.rounds.best_leaf()], 1))
        return _bounded([*missing, *ahead])

    def shape(self, session: DraftSession, length: int) -> LevelShape:
        """Shape of a tree below so many tokens, for which target and draft model have room."""
        end = min(session.final_length - 1, self._engine.spec.max_context)
        shape = shape_of(session.speculation, end - length)
        while shape.num_internal + 1 > self._engine.max_scratch:
            shape = shape.prefix(shape.depth - 1)
        return shape

    def _in_turn(self, sessions: list[DraftSession]) -> list[DraftSession]:
        """The sessions, each first now and then, so that a full pass leaves out another one each time."""
        self._turn += 1
        first = self._turn % len(sessions) if sessions else 0
        return sessions[first:] + sessions[:first]

    def _may_predict(self, session: DraftSession, state: FrozenSession) -> bool:
        if len(state.rounds.rounds) > self._ahead:
            return False
        last = state.rounds.rounds[-1]
        shape = self.shape(session, last.length + last.shape.depth + 1)
        # The leaf's row, the predicted token's, and those below it.
        num_rows = state.rounds.num_run + 1 + shape.num_internal
        return shape.depth > 0 and num_rows <= self._engine.max_scratch

    def _catch_up(self, session: DraftSession, state: FrozenSession, room: int) -> Entry | None:
        if room < 1 or not self.shape(session, session.length).depth:
            return None
        vocab_size = self._engine.spec.vocab_size
        text = session.tokens[state.cached : state.cached + room]
        tokens = [token if token < vocab_size else STAND_IN for token in text]
        is_last = state.cached + len(tokens) == session.length
        rows = Rows(
            slot=state.slot,
            tokens=tokens,
            parents=range(-1, len(tokens) - 1),
            logits="last" if is_last else "none",
        )
        return Entry(session=session, state=state, rows=rows)

    def _expand(
        self, session: DraftSession, state: FrozenSession, nodes: Sequence[int], planned: int
    ) -> Entry:
        rounds = state.rounds
        rows = Rows(
            slot=state.slot,
            tokens=[rounds.tokens[node] for node in nodes],
            parents=[
                ROOT if rounds.parents[node] == ROOT else rounds.scratch[rounds.parents[node]]
                for node in nodes
            ],
        )
        return Entry(session=session, state=state, rows=rows, nodes=tuple(nodes), planned=planned)


def _bounded(entries: Sequence[Entry]) -> list[Entry]:
    """The first entries, as many as the nodes of one pass allow; at least one."""
    bounded: list[Entry] = []
    num_nodes = 0
    for entry in entries:
        num_nodes += entry.planned
        if bounded and num_nodes > MAX_PASS_NODES:
            break
        bounded.append(entry)
    return bounded
