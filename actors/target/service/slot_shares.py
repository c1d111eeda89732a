"""How many slots of a target each coordinator holds, and what the others are told of it. Pure: the clock is an argument."""

from __future__ import annotations

from dataclasses import dataclass

ASK_AGAIN_S = 0.25
"""After this time a coordinator that was refused is told of the room even if it is as before: slots may have become free that
nobody held by this count."""

CONTENDED_S = 2.0
"""How long a refusal makes everyone keep to its share. A coordinator that still wants a slot then asks, and is refused, again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRoom:
    """What one coordinator is told."""

    coordinators: int
    """Coordinators that are connected, itself included."""

    held_by_others: int
    """Slots that the others hold."""

    is_contended: bool
    """Some coordinator was refused lately."""


class Shares:
    """Who holds how much."""

    def __init__(self) -> None:
        self._held: dict[int, set[int]] = {}
        self._told: dict[int, SharedRoom] = {}
        self._refused: dict[int, float] = {}
        """When to tell those who were refused."""
        self._contended_until = float("-inf")

    def join(self, stream: int) -> None:
        """A coordinator has connected."""
        self._held[stream] = set()

    def leave(self, stream: int) -> None:
        """A coordinator is gone, with its sessions."""
        self._held.pop(stream, None)
        self._told.pop(stream, None)
        self._refused.pop(stream, None)

    def opened(self, stream: int, session: int) -> None:
        """A session has a slot."""
        if stream in self._held:
            self._held[stream].add(session)

    def ended(self, stream: int, session: int) -> None:
        """A session has its slot no more, if it had one."""
        self._held.get(stream, set()).discard(session)

    def refused(self, stream: int, *, now_s: float) -> None:
        """A session got no slot."""
        self._refused[stream] = now_s + ASK_AGAIN_S
        self._contended_until = now_s + CONTENDED_S

    def news(self, *, now_s: float) -> dict[int, SharedRoom]:
        """What each coordinator should be told that it was not. One alone is told nothing, unless it was refused."""
        found = {}
        for stream, held in self._held.items():
            others = sum(map(len, self._held.values())) - len(held)
            room = SharedRoom(
                coordinators=len(self._held),
                held_by_others=others,
                is_contended=len(self._held) > 1 and now_s < self._contended_until,
            )
            known = self._told.get(
                stream, SharedRoom(coordinators=1, held_by_others=0, is_contended=False)
            )
            if room != known or self._refused.get(stream, now_s + 1.0) <= now_s:
                found[stream] = self._told[stream] = room
                self._refused.pop(stream, None)
        return found

    def next_change_s(self, *, now_s: float) -> float | None:
        """Seconds until there will be news without a session's doing; None if there will be none."""
        times = [*self._refused.values(), self._contended_until]
        return min((at - now_s for at in times if at > now_s), default=None)
