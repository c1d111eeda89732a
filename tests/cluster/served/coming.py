"""Drafters that come in time: a table decodes so fast that a text may be over before they have heard of it."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from outrider.actors.engine.protocol import Logits, Rows
from outrider.actors.target.service.target_server import TargetServer

PASS_S = 0.05
"""Of a pass of texts that no drafter has answered."""


def let_drafters_come(target: TargetServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes of a target that serves take `PASS_S` while some text that is to be drafted has no drafter yet."""
    worker = target.worker
    assert worker is not None
    state = worker.state
    forward = state.engine.forward

    def waiting(batch: Sequence[Rows]) -> Logits:
        table, rows = state.table, [*state.sessions]
        if (table.speculates_S[rows] & ~table.joined_SD[rows].any(axis=1)).any():
            time.sleep(PASS_S)
        return forward(batch)

    monkeypatch.setattr(state.engine, "forward", waiting)
