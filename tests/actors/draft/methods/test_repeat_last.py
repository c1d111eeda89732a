"""The smallest drafting method: what it proposes, and that the registry, the configuration and the actor know it by its file alone."""

from __future__ import annotations

import numpy as np

from outrider.actors.draft.choice.drafter_registry import DRAFTERS, served_verifiers
from outrider.actors.draft.methods.repeat_last import RepeatLast
from outrider.actors.draft.service.draft_server import load_method
from outrider.actors.draft.state.draft_settings import DraftSettings


def test_the_last_token_again() -> None:
    """One chain as deep as it may be."""
    proposal = RepeatLast().propose(np.array([4, 7]), depth=3, rates=[0.1, 0.8])
    assert (list(proposal.tokens), list(proposal.parents)) == ([7, 7, 7], [-1, 0, 1])


def test_the_actor_loads_it_by_its_name() -> None:
    """No model, room for many sessions, and only verifiers that need nothing but tokens."""
    loaded = load_method(DraftSettings(name="again", incarnation=1, method="repeat_last"))

    assert loaded.engine is None
    assert loaded.drafter.num_free_slots == loaded.drafter.num_slots == 64
    assert served_verifiers(DRAFTERS["repeat_last"]) == ("coupled", "exact_match")
