"""What `Drafting` asks of the streams to drafters and targets, and of a clock: real ones in a coordinator, simulated ones in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from outrider.cluster.links.draft_link import DraftSink
from outrider.v1 import draft_pb2


class DrafterPeer(Protocol):
    """A stream to a replica of a drafter."""

    @property
    def entry(self) -> str:
        """The drafter of the configuration that it is a replica of."""
        ...

    @property
    def is_up(self) -> bool:
        """It is connected."""
        ...

    @property
    def has_room(self) -> bool:
        """It can serve one session more."""
        ...

    @property
    def num_sessions(self) -> int:
        """Sessions that it serves."""
        ...

    @property
    def reads_siblings(self) -> bool:
        """It drafts the sequences of a request from each other."""
        ...

    def attach(self, command: draft_pb2.AttachSession, sink: DraftSink) -> None:
        """Attaches it to a session; the sink is told what becomes of that."""
        ...

    def detach(self, session: int) -> None:
        """Ends its part in a session, if it has one."""
        ...

    def wait_for_room(self, sink: DraftSink) -> None:
        """Has a sink told when there is room."""
        ...

    def leave(self, sink: DraftSink) -> None:
        """Forgets a sink that waits for room."""
        ...


class TargetPeer(Protocol):
    """The stream to the target."""

    @property
    def wants_drafters(self) -> bool:
        """Drafters should be attached to sessions."""
        ...

    def steer(self, session: int, drafters: Mapping[str, int]) -> None:
        """Tells the target whose candidates to accept from now on, and the place of each replica's drafter among the request's."""
        ...


class Cancellable(Protocol):
    """What `Later` gives."""

    def cancel(self) -> None:
        """Nothing happens."""
        ...


Later = Callable[[float, Callable[[], None]], Cancellable]
"""Calls a function after some seconds."""
