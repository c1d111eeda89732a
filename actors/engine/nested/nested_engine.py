"""A model whose first layers are models of their own: each row leaves at the first exit that is sure of what comes next.

Source: S2D, Kavehzadeh et al. 2024, arXiv 2407.01955. The layers between two exits are a *stage* (`layer_stage.py`). All rows of a pass are run
by the first stage. A row whose logits are wanted leaves there if the likeliest token of the exit's law has more than the threshold, or
if its slot may go no deeper; the others are run by the next stage, and so on.

**The law of a row is a function of its text alone**: of the exit's largest probability, and so of the tokens before the row. Neither the other rows
of the pass nor what will be drawn from the law has a say. So to whoever draws candidates this is one draft model like any other, and
every verifier may divide by its probabilities. (In the paper's trees a whole level leaves where its surest row does.)

**Rows that left early** have no keys and values in later stages. Their states are kept, and they are run there when a row below them goes deeper, before it
and in the same pass, so a later stage always has all that its rows see. Invariants of a slot, for each stage but the first:

- Its cached rows are the first ones of the text. If some are missing, it has no scratch rows.
- With a scratch row it has the row's parent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.actors.engine.models.llama_weights import LlamaWeights
from outrider.actors.engine.nested.exit_layers import check_exits
from outrider.actors.engine.nested.layer_stage import LayerStage, StageRoom
from outrider.actors.engine.protocol import Logits, ModelSpec, Moves, Rows

Int64s = NDArray[np.int64]

NOT_RUN = -1


@dataclass(slots=True, kw_only=True)
class _Going:
    """Rows of one slot that go on to the next stage."""

    slot: int
    scratch: list[int]
    """Of the first stage's scratch rows, those whose logits are wanted, ascending."""
    places: list[int]
    """Where these are among the logits of the pass."""


class NestedEngine:
    """See the module. An `Engine`."""

    def __init__(
        self,
        weights: LlamaWeights,
        exits: Sequence[int],
        *,
        spec: ModelSpec,
        num_slots: int,
        max_scratch: int,
        cuda_graphs: str,
        threshold: float,
    ) -> None:
        """
        Args:
            weights: Of the whole model.
            exits: Layers after each of which there is an exit, ascending; layers behind the last are left out.
            spec: Of the model.
            num_slots: Sessions at a time.
            max_scratch: Scratch rows of a slot, at most.
            cuda_graphs: As `EngineSettings.cuda_graphs`.
            threshold: A row leaves where the likeliest token has more than this; 1: at the deepest exit that its slot may use.

        Raises:
            ValueError: The model has no such exits.
        """
        check_exits(exits, len(weights.layers))
        self.exits = tuple(exits)
        self.threshold = threshold
        self._spec = replace(spec, num_blocks=0, width=0)
        room = StageRoom(
            num_slots=num_slots,
            max_context=spec.max_context,
            max_scratch=max_scratch,
            vocab_size=spec.vocab_size,
            cuda_graphs=cuda_graphs,
        )
        self._stages: list[LayerStage] = []
        for first, end in zip((0, *exits), exits, strict=False):
            below = self._stages[-1] if self._stages else None
            part = replace(weights, layers=weights.layers[first:end])
            self._stages.append(LayerStage(part, room, below=below, is_last=end == exits[-1]))
        self._run: list[list[list[int]]] = [[[] for _ in range(num_slots)] for _ in exits]
        """Of each stage and slot: for each scratch row of the first stage which one it is there, or `NOT_RUN`. Not kept for the first."""
        self._deepest = [len(exits) - 1] * num_slots
        self.exits_R: Int64s = np.zeros(0, np.int64)
        """Index of the exit that each row of logits of the last pass came from."""
        self.rows_run: list[int] = [0] * len(exits)
        """Rows that each stage ran in the last pass, those that were missing there included."""
        self.seconds: list[float] = [0.0] * len(exits)
        """Seconds that each stage took in the last pass."""

    @property
    def spec(self) -> ModelSpec:
        """See `Engine`. It gives no hidden states."""
        return self._spec

    @property
    def num_slots(self) -> int:
        """See `Engine`."""
        return self._stages[0].table.num_slots

    @property
    def num_free(self) -> int:
        """See `Engine`."""
        return self._stages[0].table.num_free

    @property
    def max_scratch(self) -> int:
        """See `Engine`."""
        return self._stages[0].table.max_scratch

    def limit(self, slot: int, deepest: int) -> None:
        """Sets the index of the deepest exit that rows of a slot may use from now on. A new session may use all."""
        if not 0 <= deepest < len(self.exits):
            raise ValueError(f"deepest is {deepest}; exits are 0 to {len(self.exits) - 1}")
        self._deepest[slot] = deepest

    def deepest(self, slot: int) -> int:
        """Index of the deepest exit that rows of a slot may use."""
        return self._deepest[slot]

    def missing(self, slot: int, exit_: int) -> int:
        """Cached rows of a slot that were not run as deep as an exit."""
        return self.cached(slot) - self._stages[exit_].cached(slot)

    def acquire(self, slot: int | None = None, *, keep: int = 0) -> int:
        """See `Engine`."""
        taken = self._stages[0].acquire(slot, keep=keep)
        for stage, run in zip(self._stages[1:], self._run[1:], strict=True):
            stage.acquire(taken, keep=min(keep, stage.table.reusable(taken)))
            run[taken] = []
        self._deepest[taken] = len(self.exits) - 1
        return taken

    def release(self, slot: int, *, keep: int = 0) -> None:
        """See `Engine`."""
        self._stages[0].table.release(slot, keep=keep)
        for stage in self._stages[1:]:
            stage.table.release(slot, keep=min(keep, stage.cached(slot)))

    def cached(self, slot: int) -> int:
        """See `Engine`."""
        return self._stages[0].cached(slot)

    def scratch(self, slot: int) -> int:
        """See `Engine`."""
        return self._stages[0].table.scratch(slot)

    @torch.inference_mode()
    def forward(self, batch: Sequence[Rows]) -> Logits:
        """See `Engine`."""
        first = [self.scratch(rows.slot) for rows in batch]
        values_RV, plan = self._stages[0].run(batch)
        self.rows_run = [plan.num_rows] + [0] * (len(self.exits) - 1)
        self.seconds = [self._stages[0].took_s] + [0.0] * (len(self.exits) - 1)
        going: list[_Going] = []
        for entry, (rows, had) in enumerate(zip(batch, first, strict=True)):
            for run in self._run[1:]:
                run[rows.slot] += [NOT_RUN] * len(rows.tokens)
            start, end = plan.offsets[entry : entry + 2]
            shift = had - int(plan.added.starts[entry])
            scratch = [shift + row for row in plan.wanted_W[start:end].tolist()]
            if scratch:
                going.append(
                    _Going(slot=rows.slot, scratch=scratch, places=list(range(start, end)))
                )
        self.exits_R = np.zeros(len(values_RV), np.int64)
        for exit_ in range(1, len(self.exits)):
            going = self._unsure(exit_ - 1, going, values_RV)
            if not going:
                break
            places = [place for one in going for place in one.places]
            values_RV[places] = self._go_on(exit_, going)
            self.exits_R[places] = exit_
        return Logits(values_RV=values_RV, offsets=plan.offsets)

    def _unsure(self, exit_: int, going: list[_Going], values_RV: torch.Tensor) -> list[_Going]:
        """Those rows that do not leave at an exit, by the law that it gave them."""
        going = [one for one in going if self._deepest[one.slot] > exit_]
        if not going:
            return going
        places = [place for one in going for place in one.places]
        law_RV = torch.softmax(values_RV[places], dim=-1)
        unsure = iter((law_RV.amax(-1) <= self.threshold).tolist())
        kept: list[_Going] = []
        for one in going:
            stays = [next(unsure) for _ in one.places]
            if any(stays):
                scratch = [row for row, stay in zip(one.scratch, stays, strict=True) if stay]
                places = [place for place, stay in zip(one.places, stays, strict=True) if stay]
                kept.append(_Going(slot=one.slot, scratch=scratch, places=places))
        return kept

    def _go_on(self, exit_: int, going: list[_Going]) -> torch.Tensor:
        """Runs rows in the next stage, behind what they see and is missing there; gives their logits."""
        stage, below, run = self._stages[exit_], self._stages[exit_ - 1], self._run[exit_]
        needed = [self._closure(exit_, one) for one in going]
        self._catch_up(exit_, [one.slot for one in going], [len(rows) for rows in needed])
        entries: list[Rows] = []
        wanted: list[list[int]] = []
        lags: list[int] = []
        for one, rows in zip(going, needed, strict=True):
            slot, there = one.slot, run[one.slot]
            parents_of = self._stages[0].table.parents(slot)
            cached, cached_below = stage.cached(slot), below.cached(slot)
            lag = cached_below - cached
            tokens = [below.row(slot, row) for row in range(cached, cached_below)]
            parents = list(range(-1, lag - 1))
            numbers = {row: there[row] for row in range(len(there)) if there[row] != NOT_RUN}
            before = len(numbers)
            for at, row in enumerate(rows, start=before):
                parent = parents_of[row]
                numbers[row] = at
                parents.append(lag - 1 if parent < 0 else lag + numbers[parent])
                at_below = row if exit_ == 1 else self._run[exit_ - 1][slot][row]
                tokens.append(below.row(slot, cached_below + at_below))
            entries.append(Rows(slot=slot, tokens=tokens, parents=parents))
            wanted.append([lag + numbers[row] - before for row in one.scratch])
            lags.append(lag)
            for row in rows:
                there[row] = numbers[row]
        values_RV, plan = stage.run(entries, wanted)
        caught_up = [
            (one.slot, range(lag), range(lag, lag + len(rows)))
            for one, rows, lag in zip(going, needed, lags, strict=True)
            if lag
        ]
        if caught_up:
            stage.rebase(Moves.of(caught_up))
        self.rows_run[exit_] += plan.num_rows
        self.seconds[exit_] += stage.took_s
        return values_RV

    def _closure(self, exit_: int, one: _Going) -> list[int]:
        """Scratch rows of the first stage that a stage has to run for some of them: these and what they see, ascending."""
        parents, there = self._stages[0].table.parents(one.slot), self._run[exit_][one.slot]
        found: set[int] = set()
        for row in one.scratch:
            while row >= 0 and there[row] == NOT_RUN and row not in found:
                found.add(row)
                row = parents[row]
        return sorted(found)

    def _catch_up(self, exit_: int, slots: list[int], more: list[int]) -> None:
        """Runs cached rows that a stage has missed, until the others fit beside so many more."""
        stage, below = self._stages[exit_], self._stages[exit_ - 1]
        while True:
            chunks: list[tuple[int, int]] = []
            for slot, count in zip(slots, more, strict=True):
                lag = below.cached(slot) - stage.cached(slot)
                if lag and lag + count > stage.table.max_scratch:
                    chunks.append((slot, min(lag, stage.table.max_scratch)))
            if not chunks:
                return
            entries = []
            for slot, count in chunks:
                first = stage.cached(slot)
                tokens = [below.row(slot, row) for row in range(first, first + count)]
                parents = range(-1, count - 1)
                entries.append(Rows(slot=slot, tokens=tokens, parents=parents, logits="none"))
            _, plan = stage.run(entries)
            self.rows_run[exit_] += plan.num_rows
            self.seconds[exit_] += stage.took_s
            stage.rebase(Moves.of([(slot, range(count), ()) for slot, count in chunks]))

    def rebase(self, moves: Moves) -> None:
        """See `Engine`."""
        slots = moves.slots_E.tolist()
        lags = [
            [stage.cached(slot) < self.cached(slot) for slot in slots] for stage in self._stages
        ]
        self._stages[0].rebase(moves)
        for index, stage in enumerate(self._stages[1:], start=1):
            deeper = [
                self._moved_deeper(index, *move)
                for move, lags_behind in zip(moves, lags[index], strict=True)
                if not lags_behind
            ]
            for (slot, _, keep), lags_behind in zip(moves, lags[index], strict=True):
                if lags_behind:
                    self._run[index][slot] = [NOT_RUN] * len(keep)
            if deeper:
                stage.rebase(Moves.of(deeper))

    def _moved_deeper(
        self, index: int, slot: int, path: list[int], keep: list[int]
    ) -> tuple[int, list[int], list[int]]:
        """What of a slot's move a later stage takes part in; notes which of the kept rows it has."""
        there = self._run[index][slot]
        self._run[index][slot] = [NOT_RUN] * len(keep)
        run = [there[row] for row in path]
        count = run.index(NOT_RUN) if NOT_RUN in run else len(run)
        if count < len(run):
            return slot, run[:count], []
        kept = sorted(there[row] for row in keep if there[row] != NOT_RUN)
        numbers = {row: number for number, row in enumerate(kept)}
        self._run[index][slot] = [numbers.get(there[row], NOT_RUN) for row in keep]
        return slot, run, kept

    def copy_prefix(self, source: int, destination: int, length: int) -> None:
        """See `Engine`."""
        for stage in self._stages:
            stage.copy_prefix(source, destination, min(length, stage.table.reusable(source)))

    def truncate(self, slot: int, length: int) -> None:
        """See `Engine`."""
        self._stages[0].table.truncate(slot, length)
        for stage, run in zip(self._stages[1:], self._run[1:], strict=True):
            stage.table.truncate(slot, min(length, stage.cached(slot)))
            run[slot] = []
