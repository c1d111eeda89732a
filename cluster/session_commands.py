"""What a `Session` wants done: values that its sequence carries out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.cluster.status_codes import Refusal
from outrider.v1 import generation_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Open the sequence at a target, from the prompt and `Session.output`."""

    reason: str = ""
    """Why again; empty the first time."""
    is_full: bool = False
    """The target had no free slot: wait for another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attach:
    """Attach the drafters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliver:
    """Send text and tokens to the client."""

    text: str
    tokens: Sequence[generation_pb2.Token]


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


Command = Open | Attach | Deliver | Close | Complete | Fail
