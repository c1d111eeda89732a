"""What the supervisor tells of an actor."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from outrider.cluster.roster.roster import Role


class ActorState(StrEnum):
    """What an actor is doing."""

    WAITING = "waiting"
    """Its turn to start has not come."""

    STARTING = "starting"
    """Its process loads the model."""

    SERVING = "serving"
    """It is on the roster."""

    RESTARTING = "restarting"
    """It died and will be started again."""

    DRAINING = "draining"
    """It ends once its requests have ended."""

    FAILED = "failed"
    """It was given up."""

    STOPPED = "stopped"
    """It was told to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorStatus:
    """One actor at one moment."""

    name: str
    """Its name."""

    role: Role
    """What it does."""

    model: str
    """The model it holds."""

    state: ActorState = ActorState.WAITING
    """What it is doing."""

    address: str = ""
    """Its gRPC address; empty unless it serves."""

    pid: int = 0
    """Its process; 0 unless it serves."""

    node_id: str = ""
    """The Ray node it runs on; empty unless it serves."""

    incarnation: int = 0
    """Identifies its latest start."""

    restarts: int = 0
    """How often it was started again, over the life of the service."""

    description: str = ""
    """What was chosen for it: type of the weights, slots, context."""

    reason: str = ""
    """Why it is not serving, if it should be."""


def progress_line(actor: ActorStatus) -> str:
    """One line on one actor."""
    called = actor.role.value if actor.role.value == actor.name else f"{actor.role} {actor.name}"
    match actor.state:
        case ActorState.SERVING:
            chosen = f"; {actor.description}" if actor.description else ""
            return f"{called}: serving at {actor.address} (process {actor.pid}){chosen}"
        case ActorState.RESTARTING | ActorState.FAILED | ActorState.WAITING if actor.reason:
            return f"{called}: {actor.state}: {actor.reason}"
        case _:
            return f"{called}: {actor.state}"
