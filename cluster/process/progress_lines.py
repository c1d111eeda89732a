"""How a service that starts tells what it is doing. Pure."""

from __future__ import annotations

from outrider.cluster.roster.actor_status import ActorState, ActorStatus


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
