"""All draws and walks of a pass at once, for a target whose model runs on a GPU: the host waits once a pass.

The noise and the penalties, biases and filters of each request are those of `drawing.Drawer`, and so are the tokens. Plain
sampling (a temperature of at least 0.1, or greedy), log-probabilities included, needs one wait. Requests with other options go
through their own `SamplingTransform`, all rows of the session at once and on the device too; but penalties and `min_tokens` bring
numbers there from ordinary memory, and `top_k` and `top_p` read some back, which makes the host wait a few times more. Frozen
trees are verified on the host, as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from outrider.actors.engine.protocol import Engine, Logits
from outrider.actors.engine.staging import Int64s, to_device, to_host, wait_for
from outrider.actors.speculation.coupled import Walk
from outrider.actors.speculation.device_walk import (
    Draws,
    at_visited,
    draw_rows,
    top_logprobs,
    walk_rows,
)
from outrider.actors.speculation.noise import GumbelNoise, key_halves
from outrider.actors.speculation.transforms import is_plain
from outrider.actors.target.events import Logprob
from outrider.actors.target.forest import Forest
from outrider.actors.target.plan import Entry
from outrider.actors.target.settings import TargetSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """What a pass decided for one session."""

    walk: Walk
    """The accepted nodes and the tokens to commit."""

    near_ties: int
    """Draws whose margin was small; see `near_ties`."""

    logprobs: list[Logprob]
    """Of each token, if they were asked for; else empty."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _OnDevice:
    """The forest's numbers on the device."""

    logits_rows_R: Tensor
    parents_R: Tensor
    tokens_R: Tensor
    noise_R: Tensor
    temperatures_R1: Tensor
    roots_B: Tensor
    halves_2D: Tensor


class DeviceDraws:
    """Draws and walks of passes, on the engine's device."""

    def __init__(self, engine: Engine) -> None:
        """Makes the noise of the engine's vocabulary."""
        self._device = engine.spec.device
        self._noise = GumbelNoise(engine.spec.vocab_size, self._device)

    @torch.inference_mode()
    def start(
        self, entries: Sequence[Entry], logits: Logits
    ) -> Callable[[], Sequence[Drawn | None]]:
        """Gives the device the draws and walks of every session of a pass that samples by coupled draws.

        Returns:
            Waits for the device, and gives for each entry what was decided; None for prompts and frozen trees.
        """
        forest, planted = Forest(), [False] * len(entries)
        for index, entry in enumerate(entries):
            if not entry.is_prefill and entry.frozen is None:
                forest.add(entry, logits.offsets[index + 1])
                planted[index] = True
        if not forest.entries:
            return lambda: _nothing(entries, self._device)
        # The walks end where the sessions do, whatever happens to these until the device is through.
        limits = [entry.session.remaining for entry in forest.entries]
        read = self._start(forest, limits, logits.values_RV)

        def wait() -> list[Drawn | None]:
            drawn = iter(read())
            return [next(drawn) if is_planted else None for is_planted in planted]

        return wait

    def _start(
        self, forest: Forest, limits: list[int], values_RV: Tensor
    ) -> Callable[[], list[Drawn]]:
        sent = self._send(forest)
        if len(forest.logits_rows) < len(values_RV):
            values_RV = values_RV.index_select(0, sent.logits_rows_R)
        draws = self._draw_rows(forest, sent, values_RV)
        steps = 1 + max(forest.depths)
        visited_BT = walk_rows(draws.tokens_R, sent.parents_R, sent.tokens_R, sent.roots_B, steps)
        tokens_BT = at_visited(draws.tokens_R, visited_BT)
        margins_BT = at_visited(draws.margins_R, visited_BT)
        reported = self._report(forest, values_RV, visited_BT, tokens_BT)
        parts = [visited_BT, tokens_BT, _integers(margins_BT), *reported.values()]
        arriving = to_host(torch.cat([part.reshape(-1) for part in parts]))
        return lambda: _read(forest, limits, arriving().numpy(), steps, tuple(reported))

    def _send(self, forest: Forest) -> _OnDevice:
        """All that the device must know, in one transfer."""
        num_rows, num_trees = len(forest.parents), len(forest.starts)
        parents = np.array(forest.parents, dtype=np.int64)
        parents[parents < 0] = num_rows
        noise = np.array(forest.noise_rows, dtype=np.int64)
        # The row behind the last is no noise.
        noise[noise < 0] = len(forest.seeds)
        temperatures = np.array(forest.temperatures, dtype=np.float32).view(np.int32)
        parts = [
            np.array(forest.logits_rows, dtype=np.int64),
            parents,
            np.array(forest.tokens, dtype=np.int64),
            noise,
            temperatures.astype(np.int64),
            np.array(forest.starts, dtype=np.int64),
            np.array(key_halves(forest.seeds, forest.positions), dtype=np.int64),
        ]
        sizes = [*[num_rows] * 5, num_trees, 2 * len(forest.seeds)]
        sent = torch.split(to_device(np.concatenate(parts), self._device), sizes)
        rows, parents_R, tokens_R, noise_R, temperature_bits, roots_B, halves = sent
        return _OnDevice(
            logits_rows_R=rows,
            parents_R=parents_R,
            tokens_R=tokens_R,
            noise_R=noise_R,
            temperatures_R1=temperature_bits.to(torch.int32).view(torch.float32).unsqueeze(1),
            roots_B=roots_B,
            halves_2D=halves.to(torch.int32).view(2, -1),
        )

    def _draw_rows(self, forest: Forest, sent: _OnDevice, values_RV: Tensor) -> Draws:
        scores_RV = values_RV
        if any(temperature != 1.0 for temperature in forest.temperatures):
            scores_RV = values_RV / sent.temperatures_R1
        for index, entry in enumerate(forest.entries):
            session = entry.session
            if is_plain(session.sampling):
                continue
            rows, paths = forest.rows(index), forest.paths(index)
            num_output = [session.num_output + len(path) for path in paths]
            if scores_RV is values_RV:
                scores_RV = values_RV.clone()
            scores_RV[rows] = session.transform.apply(values_RV[rows], paths, num_output)
        noise_DV = None
        if forest.seeds:
            noise_DV = self._noise.of_keys(sent.halves_2D)
            if -1 in forest.noise_rows:
                noise_DV = torch.nn.functional.pad(noise_DV, (0, 0, 0, 1))
        return draw_rows(scores_RV, noise_DV, sent.noise_R)

    def _report(
        self, forest: Forest, values_RV: Tensor, visited_BT: Tensor, tokens_BT: Tensor
    ) -> dict[int, Tensor]:
        """Log-probabilities along the walks of the sessions that want them, as integers, by tree."""
        reports = {}
        for index, entry in enumerate(forest.entries):
            wanted = entry.session.sampling.logprobs
            if wanted is None:
                continue
            rows_TV = at_visited(values_RV, visited_BT[index])
            report = top_logprobs(rows_TV, tokens_BT[index], wanted)
            chosen_T1, top_TK = report.chosen_N.unsqueeze(1), report.top_NK
            columns = [_integers(chosen_T1), report.top_ids_NK, _integers(top_TK)]
            reports[index] = torch.cat(columns, dim=1)
        return reports


def _integers(floats: Tensor) -> Tensor:
    """The bits of float32 numbers, so that they travel with integers."""
    return floats.view(torch.int32).to(torch.int64)


def _floats(integers: Int64s) -> list[Any]:
    """The reverse of `_integers`, as (nested) lists."""
    floats: list[Any] = integers.astype(np.int32).view(np.float32).tolist()
    return floats


def _read(
    forest: Forest, limits: list[int], host: Int64s, steps: int, reported: Sequence[int]
) -> list[Drawn]:
    """What came back, tree by tree."""
    num_trees, num_rows = len(forest.starts), len(forest.parents)
    size = num_trees * steps
    visited, tokens, margins = host[: 3 * size].reshape(3, num_trees, steps)
    logprobs: dict[int, list[Logprob]] = {}
    offset = 3 * size
    for index in reported:
        num_top = forest.entries[index].session.sampling.logprobs or 0
        num_top = min(num_top, forest.entries[index].session.transform.vocab_size)
        width = 1 + 2 * num_top
        rows = host[offset : offset + steps * width].reshape(steps, width)
        offset += rows.size
        chosen, top = _floats(rows[:, :1]), _floats(rows[:, 1 + num_top :])
        logprobs[index] = [
            Logprob(chosen=chosen[i][0], top_ids=tuple(ids), top=tuple(top[i]))
            for i, ids in enumerate(rows[:, 1 : 1 + num_top].tolist())
        ]
    drawn = []
    for index in range(num_trees):
        count = int(np.count_nonzero(visited[index] < num_rows))
        # As `coupled.walk`: the last token is always the draw after the last accepted node.
        count = min(count, limits[index])
        first_node = forest.starts[index] + 1
        path = tuple((visited[index, 1:count] - first_node).tolist())
        drawn.append(
            Drawn(
                walk=Walk(path=path, tokens=tuple(tokens[index, :count].tolist())),
                near_ties=sum(
                    margin < forest.entries[index].session.near_tie
                    for margin in _floats(margins[index, :count])
                ),
                logprobs=logprobs.get(index, [])[:count],
            )
        )
    return drawn


def _nothing(entries: Sequence[Entry], device: torch.device) -> list[Drawn | None]:
    wait_for(device)
    return [None] * len(entries)


class HostDraws:
    """Draws nothing ahead: rows are drawn one at a time when the walk reaches them."""

    def start(
        self, entries: Sequence[Entry], logits: Logits
    ) -> Callable[[], Sequence[Drawn | None]]:
        """As `DeviceDraws.start`; nothing was decided for any entry."""
        return lambda: _nothing(entries, logits.values_RV.device)


def draws_of(engine: Engine, settings: TargetSettings) -> DeviceDraws | HostDraws:
    """Where a target draws: on the device, if that is a GPU or an emulated one, or the settings say so."""
    mode, spec = settings.device_draws, engine.spec
    if mode == "off" or (mode == "auto" and spec.device.type != "cuda" and not spec.emulated):
        return HostDraws()
    return DeviceDraws(engine)
