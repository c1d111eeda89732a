"""Dataclasses of options to messages of the same fields and back. Pure.

A field goes to the message's field of its name. A choice (`StrEnum`) goes to the number that the contract's list has for it, a
nested dataclass to fields of the same message.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import Any, TypeVar, cast, get_type_hints

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

Choice = TypeVar("Choice", bound=StrEnum)


def listed(message: Message, field: str) -> Mapping[str, int]:
    """The numbers of a field's choices, by name: `full` for `DRAFT_LENGTH_FULL`. Empty for fields that are no choices."""
    return _listed(message.DESCRIPTOR, field)


@cache
def _listed(descriptor: Descriptor, field: str) -> dict[str, int]:
    choices = descriptor.fields_by_name[field].enum_type
    if choices is None:
        return {}
    prefix = choices.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return {
        one.name.removeprefix(prefix).lower(): one.number for one in choices.values if one.number
    }


def choice(message: Message, field: str, kind: type[Choice]) -> Choice:
    """The choice that a field holds.

    Raises:
        ValueError: Its number is not known to this version.
    """
    number = int(getattr(message, field))
    for name, value in listed(message, field).items():
        if value == number and name in tuple(kind):
            return kind(name)
    raise ValueError(f"{field} is {number}, which this version does not know")


def chosen(message: Message, field: str, kind: type[Choice]) -> tuple[Choice, ...]:
    """The choices that a repeated field holds, as far as this version knows them."""
    names = {number: name for name, number in listed(message, field).items()}
    found = (names.get(number) for number in getattr(message, field))
    return tuple(kind(name) for name in found if name in tuple(kind))


def numbers(kind: type[Message], field: str, choices: Iterable[StrEnum]) -> list[Any]:
    """The numbers of choices, for a repeated field of a message of this class."""
    known = _listed(kind.DESCRIPTOR, field)
    return [known[one.value] for one in choices]


def fill(message: Message, options: Any, *, leave_out: Collection[str] = ()) -> None:
    """Sets every field of a message that the options have; None stays absent."""
    for field in fields(options):
        name, value = field.name, getattr(options, field.name)
        if name in leave_out or value is None:
            continue
        if is_dataclass(value):
            fill(message, value)
        elif isinstance(value, Mapping):
            getattr(message, name).update(value)
        elif isinstance(value, tuple):
            getattr(message, name).extend(value)
        elif isinstance(value, StrEnum):
            setattr(message, name, listed(message, name)[value.value])
        else:
            setattr(message, name, value)


def values(message: Message, kind: type[Any], *, leave_out: Collection[str] = ()) -> dict[str, Any]:
    """What a message says of the fields of a dataclass, for its constructor; absent and unspecified fields are left out.

    Raises:
        ValueError: A choice is not known to this version.
    """
    hints = _kinds_of(cast("Hashable", kind))
    found: dict[str, Any] = {}
    for field in fields(kind):
        name, held = field.name, hints[field.name]
        if name in leave_out:
            continue
        if is_dataclass(held):
            nested: Any = held
            found[name] = nested(**values(message, nested))
        elif isinstance(held, type) and issubclass(held, StrEnum):
            if getattr(message, name):
                found[name] = choice(message, name, held)
        elif _is_many(field):
            value = getattr(message, name)
            found[name] = dict(value) if isinstance(value, Mapping) else tuple(value)
        elif message.HasField(name):
            found[name] = getattr(message, name)
    return found


@cache
def _kinds_of(kind: Any) -> Mapping[str, Any]:
    """Annotations of a dataclass, evaluated: dear, and asked for with every request."""
    return MappingProxyType(get_type_hints(kind))


def _is_many(field: Field[Any]) -> bool:
    """Whether a field holds several values: those begin empty."""
    return field.default == () or field.default_factory is not MISSING
