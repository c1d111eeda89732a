"""The contract's lists of choices: by which numbers `outrider.v1` knows them."""

from __future__ import annotations

from functools import cache
from typing import TypeVar

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

Choice = TypeVar("Choice", bound=str)


def listed(message: Message, field: str) -> dict[str, int]:
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


def chosen(message: Message, field: str, kind: type[Choice]) -> tuple[Choice, ...]:
    """The choices that a message lists, as far as this version knows them."""
    names = {number: name for name, number in listed(message, field).items()}
    return tuple(kind(names[number]) for number in getattr(message, field) if number in names)
