"""All draws and walks of a pass at once, where the model runs beside the host: the host waits once a pass.

The noise and the penalties, biases and filters of each request are those of `plain_drawing.py`, and so are the tokens. Plain
sampling (a temperature of at least 0.1, or greedy), log-probabilities included, needs one wait. Requests with other options go
through their own `SamplingTransform`, all rows of the session at once and on the device too; but penalties and `min_tokens` bring
numbers there from ordinary memory, and `top_k` and `top_p` read some back, which makes the host wait a few times more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from outrider.actors.engine.protocol import Engine, Logits
from outrider.actors.engine.staging import Int64s, to_device, to_host, wait_for
from outrider.actors.exchange.candidates import POOLED
from outrider.actors.speculation.noise.gumbel import GumbelNoise
from outrider.actors.speculation.noise.seeds import mix_pairs
from outrider.actors.speculation.sampling.logprobs import logprobs_on_device
from outrider.actors.speculation.trees.ragged import ranges, sizes_of, starts_of
from outrider.actors.target.state.passes import Pass
from outrider.actors.target.state.session_table import SessionTable
from outrider.actors.target.state.target_events import Logprob
from outrider.actors.target.state.target_session import TargetSession
from outrider.actors.target.state.target_settings import TargetSettings
from outrider.actors.target.verify.device_walk import (
    Draws,
    at_visited,
    draw_rows,
    walk_rows,
)
from outrider.actors.target.verify.drawing import check_numbers
from outrider.actors.target.verify.host_drawing import HostDraws
from outrider.actors.target.verify.walks import Read, Walks


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Forest:
    """The trees that are drawn at once, a row for each root and candidate. B trees, R rows."""

    entries_B: Int64s
    starts_B: Int64s
    """Row of each root; its candidates' rows follow. One number more than there are trees."""
    logits_R: Int64s
    parents_R: Int64s
    """Row of each parent; the number of rows for a root."""
    tokens_R: Int64s
    depths_R: Int64s
    limits_B: Int64s
    """Tokens that may be committed."""


class DeviceDraws:
    """Draws and walks of passes, on the engine's device."""

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
        self._noise = GumbelNoise(engine.spec.vocab_size, self._device)
        self._table = table
        self._sessions = sessions

    @torch.inference_mode()
    def start(self, pass_: Pass, logits: Logits) -> Read:
        """Gives the device the draws and walks of every session of a pass that samples by coupled draws."""
        table = self._table
        entries_B = pass_.decided_as(POOLED)
        if not len(entries_B):
            return lambda: wait_for(self._device)
        forest = _forest(pass_, entries_B, table.remaining_S[pass_.rows_E[entries_B]])
        rows_B = pass_.rows_E[entries_B]
        values_RV = logits.values_RV
        sent = self._send(forest, rows_B)
        if len(forest.logits_R) < len(values_RV):
            values_RV = values_RV.index_select(0, sent["logits"])
        draws = self._draw_rows(pass_, forest, rows_B, sent, values_RV)
        # No walk is longer than the deepest tree.
        steps = 1 + int(forest.depths_R.max())
        visited_BT = walk_rows(
            draws.tokens_R, sent["parents"], sent["tokens"], sent["roots"], steps
        )
        tokens_BT = at_visited(draws.tokens_R, visited_BT)
        told_BT2 = at_visited(torch.stack((draws.margins_R, draws.bests_R), dim=1), visited_BT)
        reported = self._report(pass_, forest, rows_B, values_RV, visited_BT, tokens_BT)
        parts = [visited_BT, tokens_BT, _integers(told_BT2), *reported.values()]
        arriving = to_host(torch.cat([part.reshape(-1) for part in parts]))
        near_ties_B = table.near_ties_S[rows_B]

        def read() -> Walks:
            walks = Walks.empty(len(pass_.rows_E), steps)
            rest = _read_walks(walks, forest, near_ties_B, arriving().numpy(), steps)
            _read_logprobs(walks, forest, reported, rest, steps)
            return walks

        return read

    def _send(self, forest: _Forest, rows_B: Int64s) -> dict[str, Tensor]:
        """All that the device must know, in one transfer."""
        table = self._table
        sizes_B = sizes_of(forest.starts_B)
        temperatures_R = np.repeat(table.divisors_S[rows_B].astype(np.float32), sizes_B)
        parts = {
            "logits": forest.logits_R,
            "parents": forest.parents_R,
            "tokens": forest.tokens_R,
            "temperatures": temperatures_R.view(np.int32).astype(np.int64),
            "roots": forest.starts_B[:-1],
        }
        if table.noisy_S[rows_B].any():
            # Rows of one depth share their noise.
            deepest_B = np.maximum.reduceat(forest.depths_R, forest.starts_B[:-1])
            firsts_B = starts_of(deepest_B + 1)
            positions_D = ranges(table.lengths_S[rows_B], deepest_B + 1)
            seeds_D = np.repeat(table.seeds_S[rows_B], deepest_B + 1)
            keys_D = mix_pairs(seeds_D, positions_D.astype(np.uint64))
            parts["halves"] = np.concatenate(
                [keys_D.astype(np.uint32), (keys_D >> np.uint64(32)).astype(np.uint32)]
            ).view(np.int32)
            noise_R = np.repeat(firsts_B[:-1], sizes_B) + forest.depths_R
            # The row behind the last is no noise.
            is_noisy_R = np.repeat(table.noisy_S[rows_B], sizes_B)
            parts["noise"] = np.where(is_noisy_R, noise_R, len(positions_D))
        sizes = [len(part) for part in parts.values()]
        buffer = np.concatenate([part.astype(np.int64) for part in parts.values()])
        sent = torch.split(to_device(buffer, self._device), sizes)
        return dict(zip(parts, sent, strict=True))

    def _draw_rows(
        self,
        pass_: Pass,
        forest: _Forest,
        rows_B: Int64s,
        sent: dict[str, Tensor],
        values_RV: Tensor,
    ) -> Draws:
        """Scores of each session's own transform, its noise, and the draws."""
        table, scores_RV = self._table, values_RV
        if (table.divisors_S[rows_B] != 1.0).any():
            temperatures_R1 = sent["temperatures"].to(torch.int32).view(torch.float32).unsqueeze(1)
            scores_RV = values_RV / temperatures_R1
        for tree in (~table.plain_S[rows_B]).nonzero()[0].tolist():
            session = self._sessions[int(rows_B[tree])]
            rows = slice(int(forest.starts_B[tree]), int(forest.starts_B[tree + 1]))
            paths = _paths(pass_, int(forest.entries_B[tree]))
            num_output = [session.num_output + len(path) for path in paths]
            if scores_RV is values_RV:
                scores_RV = values_RV.clone()
            scores_RV[rows] = session.transform.apply(values_RV[rows], paths, num_output)
        if "noise" not in sent:
            return draw_rows(scores_RV, None, sent["parents"])
        halves_2D = sent["halves"].to(torch.int32).view(2, -1)
        if self._device.type == "cpu":
            noise_DV = self._noise.of_halves(halves_2D.numpy())
        else:
            noise_DV = self._noise.of_keys(halves_2D)
        if not table.noisy_S[rows_B].all():
            noise_DV = torch.nn.functional.pad(noise_DV, (0, 0, 0, 1))
        return draw_rows(scores_RV, noise_DV, sent["noise"])

    def _report(
        self,
        pass_: Pass,
        forest: _Forest,
        rows_B: Int64s,
        values_RV: Tensor,
        visited_BT: Tensor,
        tokens_BT: Tensor,
    ) -> dict[int, Tensor]:
        """Log-probabilities along the walks of the sessions that want them, as integers, by tree."""
        reports: dict[int, Tensor] = {}
        for tree in self._table.reports_S[rows_B].nonzero()[0].tolist():
            wanted = self._sessions[int(rows_B[tree])].sampling.logprobs or 0
            rows_TV = at_visited(values_RV, visited_BT[tree])
            report = logprobs_on_device(rows_TV, tokens_BT[tree], wanted)
            chosen_T1, top_TK = report.chosen_N.unsqueeze(1), report.top_NK
            columns = [_integers(chosen_T1), report.top_ids_NK, _integers(top_TK)]
            reports[tree] = torch.cat(columns, dim=1)
        return reports


def _forest(pass_: Pass, entries_B: Int64s, limits_B: Int64s) -> _Forest:
    counts_B = sizes_of(pass_.starts_E)[entries_B]
    starts_B = starts_of(counts_B + 1)
    num_rows = int(starts_B[-1])
    nodes_N = ranges(pass_.starts_E[:-1][entries_B], counts_B)
    at = ranges(starts_B[:-1] + 1, counts_B)
    parents_R = np.full(num_rows, num_rows)
    parents_R[at] = pass_.parents_N[nodes_N] + 1 + np.repeat(starts_B[:-1], counts_B)
    tokens_R = np.full(num_rows, -1)
    tokens_R[at] = pass_.tokens_N[nodes_N]
    depths_R = np.zeros(num_rows, np.int64)
    depths_R[at] = pass_.depths_N[nodes_N]
    return _Forest(
        entries_B=entries_B,
        starts_B=starts_B,
        logits_R=ranges(pass_.roots_E()[entries_B], counts_B + 1),
        parents_R=parents_R,
        tokens_R=tokens_R,
        depths_R=depths_R,
        limits_B=limits_B,
    )


def _paths(pass_: Pass, entry: int) -> list[list[int]]:
    """The candidate tokens down to each row of a tree."""
    nodes = slice(int(pass_.starts_E[entry]), int(pass_.starts_E[entry + 1]))
    paths: list[list[int]] = [[]]
    for token, parent in zip(
        pass_.tokens_N[nodes].tolist(), pass_.parents_N[nodes].tolist(), strict=True
    ):
        paths.append([*paths[parent + 1], token])
    return paths


def _integers(floats: Tensor) -> Tensor:
    """The bits of float32 numbers, so that they travel with integers."""
    return floats.view(torch.int32).to(torch.int64)


def _floats(integers: Int64s) -> Any:
    """The reverse of `_integers`."""
    return integers.astype(np.int32).view(np.float32)


def _read_walks(
    walks: Walks, forest: _Forest, near_ties_B: Any, host: Int64s, steps: int
) -> Int64s:
    """Notes what was decided; returns what else came."""
    num_trees, num_rows = len(forest.entries_B), len(forest.parents_R)
    size = num_trees * steps
    visited_BT, tokens_BT = host[: 2 * size].reshape(2, num_trees, steps)
    told_BT2 = _floats(host[2 * size : 4 * size].reshape(num_trees, steps, 2))
    # As `coupled.walk`: the last token is always the draw after the last accepted node.
    counts_B = np.minimum((visited_BT < num_rows).sum(axis=1), forest.limits_B)
    is_walked_BT = np.arange(steps) < counts_B[:, None]
    walks.counts_E[forest.entries_B] = counts_B
    walks.tokens_ET[forest.entries_B] = np.where(is_walked_BT, tokens_BT, 0)
    nodes_BT = visited_BT[:, 1:] - forest.starts_B[:-1, None] - 1
    walks.nodes_ET[forest.entries_B, : steps - 1] = np.where(is_walked_BT[:, 1:], nodes_BT, -1)
    check_numbers(told_BT2[..., 1][is_walked_BT])
    close_BT = (told_BT2[..., 0] < near_ties_B[:, None]) & is_walked_BT
    walks.near_ties_E[forest.entries_B] = close_BT.sum(axis=1)
    return host[4 * size :]


def _read_logprobs(
    walks: Walks, forest: _Forest, reported: dict[int, Tensor], host: Int64s, steps: int
) -> None:
    for tree, shape in reported.items():
        width = shape.shape[1]
        num_top = (width - 1) // 2
        rows, host = host[: steps * width].reshape(steps, width), host[steps * width :]
        entry = int(forest.entries_B[tree])
        chosen, top = _floats(rows[:, :1]).tolist(), _floats(rows[:, 1 + num_top :]).tolist()
        walks.logprobs[entry] = [
            Logprob(chosen=chosen[i][0], top_ids=tuple(ids), top=tuple(top[i]))
            for i, ids in enumerate(rows[:, 1 : 1 + num_top].tolist())
        ][: int(walks.counts_E[entry])]


def draws_of(
    engine: Engine,
    settings: TargetSettings,
    table: SessionTable,
    sessions: dict[int, TargetSession],
) -> DeviceDraws | HostDraws:
    """Where a target draws: on the device, if that is a GPU or the settings say so."""
    mode, device = settings.device_draws, engine.spec.device
    if mode == "off" or (mode == "auto" and device.type != "cuda"):
        return HostDraws(engine, table, sessions)
    return DeviceDraws(engine, table, sessions)
