"""What is said of an actor while a service starts."""

from __future__ import annotations

import pytest

from outrider.cluster.roster.actor_status import ActorState, ActorStatus, progress_line
from outrider.cluster.roster.roster import Role


@pytest.mark.parametrize("state", list(ActorState))
def test_every_state_has_a_line_that_names_the_actor(state: ActorState) -> None:
    """No state is forgotten."""
    line = progress_line(ActorStatus(name="t", role=Role.TARGET, model="m", state=state))

    assert line.startswith("target t: ")
    assert "\n" not in line


def test_failure_says_why() -> None:
    """The reason is the actor's own."""
    actor = ActorStatus(
        name="t", role=Role.TARGET, model="m", state=ActorState.FAILED, reason="no such folder"
    )

    assert progress_line(actor) == "target t: failed: no such folder"


def test_serving_says_what_was_chosen() -> None:
    """Whoever left type, slots or context out reads what they are."""
    chosen = "float32, 16 slots of 2,048 tokens"
    actor = ActorStatus(
        name="t",
        role=Role.TARGET,
        model="m",
        state=ActorState.SERVING,
        address="h:1",
        description=chosen,
    )
    assert progress_line(actor).endswith(chosen)
