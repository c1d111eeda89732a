"""What a target actor is told. Plain data: crosses processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.rpc.credentials import OPEN, Credentials


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSettings:
    """A target actor."""

    name: str
    """The actor's name, unique in the cluster."""

    incarnation: int
    """Identifies this start of the actor; greater than that of every earlier start."""

    model_name: str
    """The model's name, as clients know it."""

    engine: EngineSettings
    """The model and its room."""

    listen: str = "127.0.0.1:0"
    """Address to bind; port 0 takes a free one."""

    credentials: Credentials = OPEN
    """What calls from and to other actors carry."""

    advertise_host: str | None = None
    """Host that others reach this actor at. None: the bound host."""

    prefill_chunk: int = 256
    """Greatest number of prompt tokens in one pass."""

    max_batch_nodes: int = 256
    """Greatest number of tree nodes in one pass, over all sessions."""

    max_patience_s: float = 0.5
    """Upper bound on how long a free target waits for candidates before it decodes plainly."""

    adaptive: bool = True
    """True: the pace with and without drafters is compared now and then, and the faster way goes on."""

    lockstep: bool = False
    """True: the drafter waits for the verdict and the target for the draft, for comparison."""

    prefix_reuse: bool = True
    """Whether a session may start from keys and values that another request's session left behind."""

    device_draws: Literal["auto", "on", "off"] = "auto"
    """Whether all draws and walks of a pass are made on the model's device, so that the host waits once: `auto`, on a
    GPU. The tokens are the same."""
