"""Which rows of a pass take kept states, over many slots.

Source: Chen et al. 2026, arXiv 2602.21224 (Lyanna); docs/eagle3.md tells what differs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from outrider.actors.draft.eagle.eagle_net import EagleNet
from outrider.actors.draft.eagle.kept_states import Grade, KeptStates
from outrider.actors.draft.on_states.state_engine import NewRows
from outrider.actors.engine.protocol import Int64s

NEVER = 1 << 40
"""A stage that no row has."""


class StateReuse:
    """Kept states of slots. Rows of stage 0 read the target's own state: they neither take one nor leave one."""

    def __init__(self, net: EagleNet, capacity: int, inject_from: int) -> None:
        """
        Args:
            net: Puts other tokens into states.
            capacity: States of a slot, at most.
            inject_from: The first stage at which it does; 0: none.
        """
        self._net, self._capacity = net, capacity
        self._inject_from = inject_from or NEVER
        self._kept: dict[int, KeptStates] = {}

    def forget_before(self, slot: int, position: int) -> None:
        """Positions below are committed."""
        if slot in self._kept:
            self._kept[slot].forget_before(position)

    def clear(self, slot: int) -> None:
        """Another text."""
        if slot in self._kept:
            self._kept[slot].clear()

    def take(
        self, rows: NewRows, before_R: Int64s
    ) -> Iterator[tuple[Int64s, torch.Tensor, Int64s]]:
        """States for rows.

        Args:
            rows: Of a pass.
            before_R: The token before each one's.

        Yields:
            For some slots: rows that take a state, the states [K, D], and their grades.
        """
        for slot, some in _behind(rows):
            kept = self._kept.get(slot)
            if kept is None:
                continue
            keys = _keys(rows, before_R, some)
            found = [kept.find(*key) for key in keys]
            taken = [
                (row, one)
                for row, one in zip(some.tolist(), found, strict=True)
                if one is not None
                and (one.grade < Grade.OTHER_TOKEN or rows.stages_R[row] >= self._inject_from)
            ]
            if not taken:
                continue
            index = np.array([row for row, _ in taken])
            states = kept.states_KD[[one.place for _, one in taken]]
            grades = np.array([one.grade for _, one in taken], np.int64)
            other = (grades == Grade.OTHER_TOKEN).nonzero()[0]
            if len(other):
                read = torch.tensor([taken[place][1].read for place in other])
                tokens = torch.from_numpy(rows.tokens_R[index[other]])
                states[other] = self._net.retold(
                    states[other], read.to(states.device), tokens.to(states.device)
                )
            yield index, states, grades

    def keep(self, rows: NewRows, before_R: Int64s, states_RD: torch.Tensor) -> None:
        """Keeps states that were computed; arguments as `take`."""
        for slot, some in _behind(rows):
            if slot not in self._kept:
                width, device = states_RD.shape[1], states_RD.device
                self._kept[slot] = KeptStates(self._capacity, width, device)
            kept = self._kept[slot]
            places = [kept.keep(*key) for key in _keys(rows, before_R, some)]
            kept.states_KD[places] = states_RD[some]


def _behind(rows: NewRows) -> Iterator[tuple[int, Int64s]]:
    """Of each slot the rows behind stage 0."""
    behind = rows.stages_R.nonzero()[0]
    for slot in dict.fromkeys(rows.slots_R[behind].tolist()):
        yield slot, behind[rows.slots_R[behind] == slot]


def _keys(rows: NewRows, before_R: Int64s, some: Int64s) -> list[tuple[int, int, int]]:
    """As `KeptStates` takes them."""
    columns = (rows.positions_R[some], before_R[some], rows.tokens_R[some])
    return list(zip(*(column.tolist() for column in columns), strict=True))
