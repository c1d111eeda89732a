"""Verifiers in messages: by number where the contract's list has them, by name where it has not. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypedDict

from outrider.actors.exchange.option_fields import listed
from outrider.v1 import sampling_pb2


class Offer(Protocol):
    """A message that says which verifiers somebody offers."""

    @property
    def verifiers(self) -> Sequence[int]:
        """Those of the list, by number."""
        ...

    @property
    def verifier_names(self) -> Sequence[str]:
        """The others, by name."""
        ...


class OfferFields(TypedDict):
    """The same, to make such a message of."""

    verifiers: list[Any]
    verifier_names: list[str]


def _numbers() -> Mapping[str, int]:
    """The numbers of the contract's list, by name."""
    return listed(sampling_pb2.SpeculationOptions(), "verifier")


def offer_of(names: Iterable[str]) -> OfferFields:
    """The fields of a message that offers these verifiers."""
    numbers = _numbers()
    names = list(names)
    return OfferFields(
        verifiers=sorted(numbers[name] for name in names if name in numbers),
        verifier_names=[name for name in names if name not in numbers],
    )


def offered_by(message: Offer) -> tuple[str, ...]:
    """The verifiers that a message offers, as far as this version knows their numbers."""
    names: dict[int, str] = {number: name for name, number in _numbers().items()}
    known = tuple(names[number] for number in message.verifiers if number in names)
    return (*known, *message.verifier_names)


def asked_for(options: sampling_pb2.SpeculationOptions) -> str:
    """The verifier that a request names; empty if it names none.

    Raises:
        ValueError: Its number is not known to this version, or number and name contradict each other.
    """
    name, number = options.verifier_name, options.verifier
    if not number:
        return name
    names: dict[int, str] = {value: key for key, value in _numbers().items()}
    if number not in names:
        raise ValueError(f"is {int(number)}, which this version does not know")
    if name and name != names[number]:
        raise ValueError(f"is {names[number]!r}, and verifier_name is {name!r}; leave one out")
    return names[number]


def ask_for(name: str, options: sampling_pb2.SpeculationOptions) -> None:
    """Names a verifier in a request."""
    number = _numbers().get(name)
    if number is None:
        options.verifier_name = name
    else:
        options.verifier = number  # type: ignore[assignment]  # an enumeration in the stub
