"""A coordinator's links in virtual time: the real ones, whose commands go over simulated streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from outrider.actors.exchange.session_drafters import places_to_proto
from outrider.cluster.links.draft_link import DraftLink
from outrider.cluster.simulate.network import SimulatedStream
from outrider.cluster.simulate.simulated_process import Process
from outrider.v1 import draft_pb2, target_pb2


class SimulatedDrafter(DraftLink):
    """The link to a drafter."""

    def __init__(self, name: str, coordinator: Process) -> None:
        """Not connected."""
        super().__init__(name, name, target_pb2.Hello(), on_up=lambda _: None)
        self._coordinator = coordinator
        self._stream: SimulatedStream | None = None

    def connect(self, stream: SimulatedStream) -> None:
        """The stream is up."""
        self._stream, self.is_up = stream, True

    def lost(self) -> None:
        """The stream has ended."""
        self._down("the stream ended")

    def take(self, payload: bytes) -> None:
        """The drafter's message."""
        self._take(draft_pb2.DraftEvent.FromString(payload))

    def _say(self, command: draft_pb2.DraftCommand) -> None:
        if self._stream is not None:
            self._stream.tell(self._coordinator, command)


class ServingDrafters(Mapping[str, SimulatedDrafter]):
    """Those of the drafters that serve a target, whoever comes later included."""

    def __init__(
        self, drafters: Mapping[str, SimulatedDrafter], serves: Callable[[str], bool]
    ) -> None:
        """Of all drafters, those by whose name `serves` is true."""
        self._drafters = drafters
        self._serves = serves

    def __getitem__(self, name: str) -> SimulatedDrafter:
        if not self._serves(name):
            raise KeyError(name)
        return self._drafters[name]

    def __iter__(self) -> Iterator[str]:
        return filter(self._serves, self._drafters)

    def __len__(self) -> int:
        return sum(map(self._serves, self._drafters))


class SimulatedTarget:
    """The link to a target, as far as drafters go."""

    def __init__(self, stream: SimulatedStream, coordinator: Process) -> None:
        """Connected."""
        self.stream = stream
        self.wants_drafters = True
        self._coordinator = coordinator

    def steer(self, session: int, drafters: Mapping[str, int]) -> None:
        """Tells the target whose candidates to accept from now on."""
        steer = target_pb2.SteerSession(session=session, drafters=places_to_proto(drafters))
        self.stream.tell(self._coordinator, target_pb2.SessionCommand(steer=steer))
