"""What a `Session` wants done: values that its sequence carries out."""

from __future__ import annotations

from dataclasses import dataclass, field

from outrider.cluster.validation.status_codes import Refusal
from outrider.v1 import generation_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Open the sequence at a target, from the prompt and `Session.output`."""

    reason: str = ""
    """Why again; empty the first time."""
    is_full: bool = False
    """The target had no free slot: wait for another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachDrafter:
    """Attach the drafters."""


@dataclass(slots=True)
class Deliver:
    """Send text and tokens to the client. Not frozen: what waits for the client grows."""

    text: str
    ids: list[int]
    """Token ids."""
    origins: list[int]
    """The drafter that proposed each, -1: the target itself."""
    told: list[generation_pb2.Token] = field(default_factory=list)
    """The tokens with their log-probabilities, if those were asked for; else none."""

    def add(self, later: Deliver) -> None:
        """Appends what follows."""
        self.text += later.text
        self.ids += later.ids
        self.origins += later.origins
        self.told += later.told


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """End the session at the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete:
    """Tell the client that the output is whole."""

    reason: generation_pb2.FinishReason.ValueType
    stop: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """Tell the client that the sequence cannot go on."""

    refusal: Refusal


Command = Open | AttachDrafter | Deliver | Close | Complete | Fail
