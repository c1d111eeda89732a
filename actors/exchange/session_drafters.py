"""Whose candidates a session takes: actors by name, each with the place of its drafter among those of the request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from outrider.actors.exchange.commits import MAX_PLACE
from outrider.v1 import target_pb2


def places_to_proto(places: Mapping[str, int]) -> list[target_pb2.SessionDrafter]:
    """The message of each."""
    return [target_pb2.SessionDrafter(name=name, place=place) for name, place in places.items()]


def places_from_proto(drafters: Iterable[target_pb2.SessionDrafter]) -> dict[str, int]:
    """Back again.

    Raises:
        ValueError: A place is beyond what commits can tell.
    """
    places = {one.name: one.place for one in drafters}
    if max(places.values(), default=0) > MAX_PLACE:
        raise ValueError(f"drafters has a place above {MAX_PLACE}")
    return places
