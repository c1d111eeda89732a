"""What a draft actor is told. Plain data: crosses processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.rpc.credentials import OPEN, Credentials

BYTES_PER_TOKEN = 2500.0
"""Bytes on the wire that one more committed token may cost: a price at the margin. Where a candidate is fetched for less than a token, it may cost so much less
(`TargetPace.fetch_cost`): a tenth where the target is near and a pass commits one token, all of it from a round trip of a pass on. More brings hardly any speed."""

MAX_AHEAD = 512
"""Nodes of one session below its committed text: what may come true while the target runs a pass. With passes of 25 ms and cheap rows 128 are
full in a third of one, and most of what would be needed after the verdict is not there."""

LOOKUP_SLOTS = 64
"""Sessions served at a time by a method without a model, which takes hardly any memory for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSettings:
    """A draft actor."""

    name: str
    """The actor's name, unique in the cluster."""

    incarnation: int
    """Identifies this start of the actor; greater than that of every earlier start."""

    method: str = "autoregressive"
    """Name of the drafting method; `draft/choice/drafter_registry.py` has them all."""

    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the method, as far as they are not its defaults."""

    engine: EngineSettings | None = None
    """The draft model and its room; None for a method without a model."""

    listen: str = "127.0.0.1:0"
    """Address to bind; port 0 takes a free one."""

    credentials: Credentials = OPEN
    """What calls from and to other actors carry."""

    advertise_host: str | None = None
    """Host that others reach this actor at. None: the bound host."""

    num_slots: int = LOOKUP_SLOTS
    """Sessions served at a time by a method without a model."""

    width: int = 4
    """Children of a node, at most."""

    max_ahead: int = MAX_AHEAD
    """Nodes of one session below its committed text, at most; the target's credits may allow fewer."""

    bytes_per_token: float = BYTES_PER_TOKEN
    """Bytes on the wire that one more committed token may cost: the more, the more candidates are sent ahead."""

    prefill_chunk: int = 256
    """Greatest number of prompt tokens in one pass."""

    lockstep: bool = False
    """True: draft one tree, send it whole and wait for the verdict, for comparison."""

    prefix_reuse: bool = True
    """Whether a session may start from keys and values that another session left behind."""

    def __post_init__(self) -> None:
        if not self.bytes_per_token > 0.0:
            raise ValueError(
                f"bytes_per_token is {self.bytes_per_token}; it must be greater than 0"
            )
        for name in ("num_slots", "width", "max_ahead", "prefill_chunk"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
