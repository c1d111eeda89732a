"""How each kind of candidates is decided: the counterpart of `TargetState.stores`."""

from __future__ import annotations

from outrider.actors.exchange.candidates import FROZEN
from outrider.actors.target.state.frozen_store import FrozenStore
from outrider.actors.target.state.target_state import TargetState
from outrider.actors.target.verify.device_drawing import draws_of
from outrider.actors.target.verify.frozen_verdict import FrozenDraws
from outrider.actors.target.verify.walks import Decider


def draws_by_kind(state: TargetState) -> tuple[Decider, ...]:
    """By kind what decides it."""
    store = state.stores[FROZEN]
    assert isinstance(store, FrozenStore), "it is the store of this kind"
    coupled = draws_of(state.engine, state.settings, state.table, state.sessions)
    return coupled, FrozenDraws(state.sessions, store)
