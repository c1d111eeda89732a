"""The draws and walks of a pass on the host: at all rows at once where that is cheap, else level by level, at each level one row of every
session whose walk goes on.

Of a tree of sixteen nodes a walk visits about three. With a vocabulary of a language model the other rows would cost most of the time, with that of
an emulated device the calls do. The number of array operations depends on the depth of the walks, not on how many there are. The tokens are
those of `plain_drawing.py`, one row at a time: the plain reference.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.actors.engine.protocol import Engine, Logits
from outrider.actors.engine.staging import wait_for
from outrider.actors.exchange.candidates import POOLED
from outrider.actors.speculation.noise.gumbel import GumbelNoise
from outrider.actors.speculation.trees.path_keys import Int64s
from outrider.actors.target.state.passes import Pass
from outrider.actors.target.state.session_table import SessionTable
from outrider.actors.target.state.target_events import Logprob
from outrider.actors.target.state.target_session import TargetSession
from outrider.actors.target.verify.drawing import check_numbers, draw_rows, logprob_of
from outrider.actors.target.verify.walks import Read, Walks

Float32s = NDArray[np.float32]

CALL_VALUES = 8192
"""Values that are computed in the time that the calls for one more level take, whatever they compute."""


class Family:
    """Where a pass draws, and what was drawn there. Places are its nodes, counted over the pass, and behind them the texts of its entries;
    the place behind the last stands for the end of a walk."""

    def __init__(self, pass_: Pass, remaining_S: Int64s) -> None:
        """Nothing is drawn yet.

        Args:
            pass_: What was run.
            remaining_S: Tokens that sessions may still get.
        """
        roots_E, num_nodes = pass_.roots_E(), len(pass_.tokens_N)
        self.end = num_nodes + len(roots_E)
        self.tokens_N = pass_.tokens_N
        self.entries_P, self.rows_P = np.arange(len(roots_E)), roots_E
        """Entries, and rows of logits."""
        self.depths_P = np.zeros(self.end, np.int64)
        """Tokens from the text to each."""
        if num_nodes:
            entries_N = pass_.entries_N
            starts_N = pass_.starts_E[entries_N]
            rows_N = roots_E[entries_N] + 1 + np.arange(num_nodes) - starts_N
            self.entries_P = np.concatenate((entries_N, self.entries_P))
            self.rows_P = np.concatenate((rows_N, roots_E))
            self.depths_P[:num_nodes] = pass_.depths_N
            self.parents_N = np.where(
                pass_.parents_N < 0, num_nodes + entries_N, starts_N + pass_.parents_N
            )
            self.is_within_N = pass_.depths_N < remaining_S[pass_.rows_E[entries_N]]
        self.drawn_P = np.full(self.end + 1, -1)
        self.margins_P = np.full(self.end + 1, np.inf, np.float32)
        self.bests_P = np.zeros(self.end + 1, np.float32)
        """The score of what was drawn."""
        self.nexts_P = np.full(self.end + 1, self.end)
        """The child that was drawn, of siblings with equal tokens the first."""

    def draw(self, places_A: Int64s, tokens_A: Int64s, margins_A: Float32s) -> None:
        """Takes in what was drawn."""
        self.drawn_P[places_A] = tokens_A
        self.margins_P[places_A] = margins_A
        if not len(self.tokens_N):
            return
        is_drawn_N = (self.drawn_P[self.parents_N] == self.tokens_N) & self.is_within_N
        hits = is_drawn_N.nonzero()[0][::-1]
        self.nexts_P[self.parents_N[hits]] = hits


class HostDraws:
    """Draws and walks of passes."""

    def __init__(
        self,
        engine: Engine,
        table: SessionTable,
        sessions: dict[int, TargetSession],
        call_values: int = CALL_VALUES,
    ) -> None:
        """Makes the noise of the engine's vocabulary.

        Args:
            engine: The target model.
            table: The sessions.
            sessions: By row.
            call_values: As `CALL_VALUES`; 0: always level by level.
        """
        self._device = engine.spec.device
        self._noise = GumbelNoise(engine.spec.vocab_size, torch.device("cpu"))
        self._table = table
        self._sessions = sessions
        self._call_values = call_values

    def start(self, pass_: Pass, logits: Logits) -> Read:
        """Draws and walks every session of a pass that samples by coupled draws, once it is asked for."""
        return lambda: self._drawn(pass_, logits)

    def _drawn(self, pass_: Pass, logits: Logits) -> Walks | None:
        wait_for(self._device)
        entries_B = pass_.decided_as(POOLED)
        if not len(entries_B):
            return None
        family = Family(pass_, self._table.remaining_S)
        logprobs: dict[int, list[Logprob]] = {}
        visited_BT = self._walk(pass_, family, entries_B, logits.values_RV, logprobs)
        near_ties_B = self._table.near_ties_S[pass_.rows_E[entries_B]]
        walks = _walks_of(pass_, family, entries_B, visited_BT, near_ties_B)
        walks.logprobs = logprobs
        return walks

    def _walk(
        self,
        pass_: Pass,
        family: Family,
        entries_B: Int64s,
        values_RV: torch.Tensor,
        logprobs: dict[int, list[Logprob]],
    ) -> Int64s:
        """The places that each walk visits, (B, T)."""
        table, slots_B = self._table, pass_.rows_E[entries_B]
        is_plain = bool(table.plain_S[slots_B].all() and not table.reports_S[slots_B].any())
        spared = int(pass_.depths_N.max(initial=0)) * self._call_values
        is_at_once = is_plain and len(family.tokens_N) * values_RV.shape[1] < spared
        if is_at_once:
            is_decided_E = np.zeros(len(pass_.rows_E), np.bool_)
            is_decided_E[entries_B] = True
            places_A = is_decided_E[family.entries_P].nonzero()[0]
            slots_A = pass_.rows_E[family.entries_P[places_A]]
            scores_AV = self._scores(values_RV, family.rows_P[places_A], slots_A)
            self._perturb(scores_AV, slots_A, family.depths_P[places_A])
            tokens_A, margins_A, family.bests_P[places_A] = draw_rows(scores_AV)
            family.draw(places_A, tokens_A, margins_A)
        paths: dict[int, list[int]] = {}
        visited = [len(pass_.tokens_N) + entries_B]
        while True:
            at_B = visited[-1]
            if not is_at_once:
                depth = len(visited) - 1
                on_way = (at_B < family.end).nonzero()[0] if depth else slice(None)
                at_A, slots_A = at_B[on_way], slots_B[on_way]
                rows_A = family.rows_P[at_A]
                scores_AV = self._scores(values_RV, rows_A, slots_A)
                if not is_plain:
                    self._transform(scores_AV, values_RV, rows_A, slots_A, depth, paths)
                self._perturb(scores_AV, slots_A, depth)
                tokens_A, margins_A, family.bests_P[at_A] = draw_rows(scores_AV)
                family.draw(at_A, tokens_A, margins_A)
                if not is_plain:
                    # There is nothing to report of what is none.
                    check_numbers(family.bests_P[at_A])
                    tokens_A = family.drawn_P[at_A]
                    for slot, token in zip(slots_A.tolist(), tokens_A.tolist(), strict=True):
                        paths.setdefault(slot, []).append(token)
                    self._report(values_RV, rows_A, slots_A, entries_B[on_way], tokens_A, logprobs)
            next_B = family.nexts_P[at_B] if len(family.tokens_N) else None
            if next_B is None or next_B.min() == family.end:
                return np.array(visited).T
            visited.append(next_B)

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

    def _perturb(self, scores_AV: Float32s, slots_A: Int64s, depths_A: Int64s | int) -> None:
        """Adds the noise of sessions that have some, so many tokens below their texts."""
        table = self._table
        noisy = table.noisy_S[slots_A].nonzero()[0]
        slots = slots_A[noisy]
        if not len(slots):
            return
        positions = (table.lengths_S[slots_A] + depths_A)[noisy].astype(np.uint64)
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
        entries_A: Int64s,
        tokens_A: Int64s,
        logprobs: dict[int, list[Logprob]],
    ) -> None:
        """Log-probabilities, where they are wanted."""
        for index in self._table.reports_S[slots_A].nonzero()[0].tolist():
            row, session = int(rows_A[index]), self._sessions[int(slots_A[index])]
            report = logprob_of(
                values_RV[row : row + 1],
                int(tokens_A[index]),
                session.sampling.logprobs or 0,
            )
            logprobs.setdefault(int(entries_A[index]), []).append(report)


def _walks_of(
    pass_: Pass, family: Family, entries_B: Int64s, visited_BT: Int64s, near_ties_B: Any
) -> Walks:
    check_numbers(family.bests_P[visited_BT])
    walks = Walks.empty(len(pass_.rows_E), visited_BT.shape[1])
    is_walked_BT = visited_BT < family.end
    walks.counts_E[entries_B] = is_walked_BT.sum(axis=1)
    walks.tokens_ET[entries_B] = np.where(is_walked_BT, family.drawn_P[visited_BT], 0)
    if visited_BT.shape[1] > 1:
        nodes_BT = visited_BT[:, 1:] - pass_.starts_E[entries_B, None]
        walks.nodes_ET[entries_B, :-1] = np.where(is_walked_BT[:, 1:], nodes_BT, -1)
    is_close_BT = (family.margins_P[visited_BT] < near_ties_B[:, None]) & is_walked_BT
    walks.near_ties_E[entries_B] = is_close_BT.sum(axis=1)
    return walks
