"""The draws and walks of a pass on the host, level by level: at each level one row of every session whose walk goes on.

Of a tree of sixteen nodes a walk visits about three, so drawing all rows, as a device does (`device_drawing.py`), would cost more. The
number of array operations depends on the depth of the walks, not on how many there are. The tokens are those of
`plain_drawing.py`, one row at a time: the plain reference.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.actors.engine.protocol import Engine, Logits
from outrider.actors.engine.staging import wait_for
from outrider.actors.exchange.candidates import POOLED
from outrider.actors.speculation.noise.gumbel import GumbelNoise
from outrider.actors.speculation.trees.path_keys import Int64s
from outrider.actors.speculation.trees.ragged import sizes_of
from outrider.actors.target.state.passes import Pass
from outrider.actors.target.state.session_table import SessionTable
from outrider.actors.target.state.target_events import Logprob
from outrider.actors.target.state.target_session import TargetSession
from outrider.actors.target.verify.drawing import draw_rows, logprob_of
from outrider.actors.target.verify.walks import Read, Walks

Float32s = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Level:
    """The draws of one level."""

    entries_A: Int64s
    tokens_A: Int64s
    close_A: NDArray[np.bool_]
    """Near ties."""
    next_A: Int64s
    """Node of the token, counted over the pass; -1: the walk ends."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Family:
    """Who draws in a pass. Nodes are numbered over the pass, and the texts of entries follow them as if they were nodes."""

    tokens_N: Int64s
    parents_N: Int64s
    rows_N: Int64s
    """Rows of logits."""
    num_places: int

    @classmethod
    def of(cls, pass_: Pass, roots_E: Int64s) -> Family:
        """That of a pass."""
        counts_E, num_nodes = sizes_of(pass_.starts_E), len(pass_.tokens_N)
        entries_N = np.repeat(np.arange(len(counts_E)), counts_E)
        starts_N = pass_.starts_E[entries_N]
        is_top_N = pass_.parents_N < 0
        return cls(
            tokens_N=pass_.tokens_N,
            parents_N=np.where(is_top_N, num_nodes + entries_N, starts_N + pass_.parents_N),
            rows_N=roots_E[entries_N] + 1 + np.arange(num_nodes) - starts_N,
            num_places=num_nodes + len(counts_E),
        )

    def next(self, places_A: Int64s, tokens_A: Int64s) -> Int64s:
        """The children that were drawn, of siblings with equal tokens the first; -1: there is none."""
        drawn = np.full(self.num_places, -1)
        drawn[places_A] = tokens_A
        hits = (drawn[self.parents_N] == self.tokens_N).nonzero()[0][::-1]
        drawn[places_A] = -1
        drawn[self.parents_N[hits]] = hits
        next_A: Int64s = drawn[places_A]
        return next_A


class HostDraws:
    """Draws and walks of passes."""

    def __init__(
        self, engine: Engine, table: SessionTable, sessions: dict[int, TargetSession]
    ) -> None:
        """Makes the noise of the engine's vocabulary.

        Args:
            engine: The target model.
            table: The sessions.
            sessions: By row.
        """
        self._device = engine.spec.device
        self._noise = GumbelNoise(engine.spec.vocab_size, torch.device("cpu"))
        self._table = table
        self._sessions = sessions

    def start(self, pass_: Pass, logits: Logits) -> Read:
        """Draws and walks every session of a pass that samples by coupled draws: all is done when this returns."""
        wait_for(self._device)
        entries_B = pass_.decided_as(POOLED)
        if not len(entries_B):
            return lambda: None
        logprobs: dict[int, list[Logprob]] = {}
        levels = self._levels(pass_, entries_B, logits.values_RV, logprobs)
        walks = _walks_of(pass_, levels, logprobs)
        return lambda: walks

    def _levels(
        self,
        pass_: Pass,
        entries_A: Int64s,
        values_RV: torch.Tensor,
        logprobs: dict[int, list[Logprob]],
    ) -> list[_Level]:
        table, roots_E, num_nodes = self._table, pass_.roots_E(), len(pass_.tokens_N)
        family = Family.of(pass_, roots_E) if num_nodes else None
        slots_A, places_A, rows_A = (
            pass_.rows_E[entries_A],
            num_nodes + entries_A,
            roots_E[entries_A],
        )
        is_plain = bool(table.plain_S[slots_A].all() and not table.reports_S[slots_A].any())
        paths: dict[int, list[int]] = {}
        levels: list[_Level] = []
        while len(entries_A):
            depth = len(levels)
            scores_AV = self._scores(values_RV, rows_A, slots_A)
            if not is_plain:
                self._transform(scores_AV, values_RV, rows_A, slots_A, depth, paths)
            self._perturb(scores_AV, slots_A, depth)
            tokens_A, margins_A = draw_rows(scores_AV)
            next_A = np.full(len(entries_A), -1)
            if family is not None:
                goes_on = table.ends_S[slots_A] - table.lengths_S[slots_A] > depth + 1
                next_A = np.where(goes_on, family.next(places_A, tokens_A), -1)
            levels.append(
                _Level(
                    entries_A=entries_A,
                    tokens_A=tokens_A,
                    close_A=margins_A < table.near_ties_S[slots_A],
                    next_A=next_A,
                )
            )
            if not is_plain:
                for slot, token in zip(slots_A.tolist(), tokens_A.tolist(), strict=True):
                    paths.setdefault(slot, []).append(token)
                self._report(values_RV, rows_A, slots_A, levels[-1], logprobs)
            if family is None:
                break
            stays = (next_A >= 0).nonzero()[0]
            entries_A, slots_A, places_A = entries_A[stays], slots_A[stays], next_A[stays]
            rows_A = family.rows_N[places_A]
        return levels

    def _scores(self, values_RV: torch.Tensor, rows_A: Int64s, slots_A: Int64s) -> Float32s:
        """Rows over their temperatures: a copy, of those that have no other options."""
        scores_AV: Float32s = values_RV[torch.from_numpy(rows_A)].cpu().numpy()
        scores_AV /= self._table.divisors_S[slots_A].astype(np.float32)[:, None]
        return scores_AV

    def _transform(
        self,
        scores_AV: Float32s,
        values_RV: torch.Tensor,
        rows_A: Int64s,
        slots_A: Int64s,
        depth: int,
        paths: dict[int, list[int]],
    ) -> None:
        """Puts in the scores of sessions with other options, each by its own transform."""
        for index in (~self._table.plain_S[slots_A]).nonzero()[0].tolist():
            row, session = int(rows_A[index]), self._sessions[int(slots_A[index])]
            scored_1V = session.transform.apply(
                values_RV[row : row + 1],
                [paths.get(session.row, [])],
                [session.num_output + depth],
            )
            scores_AV[index] = scored_1V[0].cpu().numpy()

    def _perturb(self, scores_AV: Float32s, slots_A: Int64s, depth: int) -> None:
        """Adds the noise of sessions that have some."""
        table = self._table
        noisy = table.noisy_S[slots_A].nonzero()[0]
        slots = slots_A[noisy]
        if not len(slots):
            return
        positions = (table.lengths_S[slots] + depth).astype(np.uint64)
        noise = self._noise.of_pairs(table.seeds_S[slots], positions).numpy()
        if len(slots) == len(slots_A):
            scores_AV += noise
        else:
            scores_AV[noisy] += noise

    def _report(
        self,
        values_RV: torch.Tensor,
        rows_A: Int64s,
        slots_A: Int64s,
        level: _Level,
        logprobs: dict[int, list[Logprob]],
    ) -> None:
        """Log-probabilities, where they are wanted."""
        for index in self._table.reports_S[slots_A].nonzero()[0].tolist():
            row, session = int(rows_A[index]), self._sessions[int(slots_A[index])]
            report = logprob_of(
                values_RV[row : row + 1],
                int(level.tokens_A[index]),
                session.sampling.logprobs or 0,
            )
            logprobs.setdefault(int(level.entries_A[index]), []).append(report)


def _walks_of(pass_: Pass, levels: list[_Level], logprobs: dict[int, list[Logprob]]) -> Walks:
    walks = Walks.empty(len(pass_.rows_E), len(levels))
    walks.logprobs = logprobs
    for depth, level in enumerate(levels):
        entries = level.entries_A
        walks.counts_E[entries] = depth + 1
        walks.tokens_ET[entries, depth] = level.tokens_A
        nodes_A = level.next_A - pass_.starts_E[entries]
        walks.nodes_ET[entries, depth] = np.where(level.next_A >= 0, nodes_A, -1)
        walks.near_ties_E[entries] += level.close_A
    return walks
