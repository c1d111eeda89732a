"""A speculator behind the engine protocol: rows of a token each, whose state follows from that of the row before.

What a language model keeps of a text as keys and values is here one vector: the newest hidden state that the target has told. A row of stage i
(`state_engine`) is stage i of the net.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.actors.draft.heads.speculator_net import SpeculatorNet
from outrider.actors.draft.on_states.state_engine import NewRows, StateEngine
from outrider.actors.engine.protocol import ModelSpec

NO_TABLE = -1
"""Stands for the head of a row that has none, as nothing is known of it."""


class HeadEngine(StateEngine):
    """Runs a net for many sessions. Used by one thread."""

    def __init__(
        self, net: SpeculatorNet, spec: ModelSpec, *, num_slots: int, max_scratch: int
    ) -> None:
        """
        Args:
            net: Not trained any more, on the device of `spec`.
            spec: What is known about it; its vocabulary is the net's.
            num_slots: Sessions at a time.
            max_scratch: Rows of one behind the committed ones, at most.

        Raises:
            ValueError: A number is less than one.
        """
        super().__init__(
            spec,
            num_slots=num_slots,
            max_scratch=max_scratch,
            deepest=net.config.deepest,
            feature_width=net.config.width,
            state_width=net.config.inner,
        )
        self.net = net

    def _compute(self, rows: NewRows, live_R: NDArray[np.bool_]) -> None:
        # A row's parent is of the stage before, so it is computed by then.
        for stage in sorted(set(rows.stages_R[live_R].tolist())):
            some = rows.at((rows.stages_R == stage).nonzero()[0])
            slots = torch.from_numpy(some.slots_R)
            inputs = (
                self._features_SD[slots]
                if stage == 0
                else self._states_SCM[slots, torch.from_numpy(some.above_R)]
            )
            tokens = torch.from_numpy(some.tokens_R).to(self._spec.device)
            states = self.net.stage(stage, inputs, tokens)
            self._states_SCM[slots, torch.from_numpy(some.columns_R)] = states

    def _logits(self, rows: NewRows, live_R: NDArray[np.bool_]) -> torch.Tensor:
        """See `StateEngine`. Each table of tokens is read once."""
        last = self.net.config.num_tables - 1
        tables_R = np.where(live_R, np.minimum(rows.stages_R, last), NO_TABLE)
        states_RM = self._states_SCM[
            torch.from_numpy(rows.slots_R), torch.from_numpy(rows.columns_R)
        ]
        tables = set(tables_R.tolist())
        if len(tables) == 1 and NO_TABLE not in tables:
            return self.net.logits(tables.pop(), states_RM)
        shape = (len(tables_R), self._spec.vocab_size)
        values_RV = torch.zeros(shape, device=self._spec.device)
        for table in tables - {NO_TABLE}:
            those = torch.from_numpy((tables_R == table).nonzero()[0])
            values_RV[those] = self.net.logits(table, states_RM[those])
        return values_RV
