"""Values and the fields of `outrider.v1`: what a field can carry, values of fields with the same names, and the names of the contract's choices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields
from functools import cache
from typing import Any, TypeVar, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from outrider.client.connection.wanted import wrong

Choice = TypeVar("Choice", bound=str)
Value = TypeVar("Value")

_NEEDED: Mapping[int, str] = {
    FieldDescriptor.TYPE_STRING: "a string without lone surrogates",
    FieldDescriptor.TYPE_BOOL: "True or False",
    FieldDescriptor.TYPE_FLOAT: "a number",
    FieldDescriptor.TYPE_DOUBLE: "a number",
    FieldDescriptor.TYPE_INT32: f"a whole number from {-(2**31)} to {2**31 - 1}",
    FieldDescriptor.TYPE_INT64: f"a whole number from {-(2**63)} to {2**63 - 1}",
    FieldDescriptor.TYPE_UINT32: f"a whole number from 0 to {2**32 - 1}",
    FieldDescriptor.TYPE_UINT64: f"a whole number from 0 to {2**64 - 1}",
}
"""What a field of each type carries."""

_MISFITS = (TypeError, ValueError, OverflowError, KeyError)
"""What protobuf, and the look at a value, raise for one that does not fit."""


def put(message: Message, name: str, value: object, place: str) -> None:
    """Sets a field of a message.

    Args:
        message: Of any type of the contract.
        name: Of the field.
        value: As Python says it: a mapping for a map, any iterable in an order for a repeated field, a name for a choice.
        place: What the caller calls the field.

    Raises:
        InvalidRequest: The field cannot carry the value; names the place and what is needed.
    """
    field = cast(FieldDescriptor, message.DESCRIPTOR.fields_by_name[name])
    held = getattr(message, name)
    if hasattr(held, "append"):
        _put_items(held, field, value, place)
        return
    try:
        if (entry := _entry(field)) is None:
            setattr(message, name, _carried(field, value))
        elif isinstance(value, Mapping):
            carried = entry.fields_by_name["value"]
            held.update({key: _carried(carried, one) for key, one in value.items()})
        else:
            raise TypeError
    except _MISFITS as error:
        raise wrong(place, value, _needed(field)) from error


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


def told(kind: type[Value], message: Message, **others: object) -> Value:
    """A value whose fields have what the message's fields of the same names have.

    Args:
        kind: A dataclass.
        message: Has all of its fields but the others.
        others: Fields that are something else.
    """
    names = {field.name for field in fields(cast(Any, kind))} - others.keys()
    found = {name: getattr(message, name) for name in names}
    same = {name: tuple(one) if hasattr(one, "append") else one for name, one in found.items()}
    return kind(**same, **others)


def _put_items(held: Any, field: FieldDescriptor, value: object, place: str) -> None:
    """Fills a repeated field."""
    # Texts, bytes and mappings can be gone through, but mean something else; sets have no order.
    others = (str, bytes, bytearray, Mapping, AbstractSet)
    if not isinstance(value, Iterable) or isinstance(value, others):
        raise wrong(place, value, f"a list, each of it {_needed(field)},")
    for index, item in enumerate(value):
        try:
            held.append(_carried(field, item))
        except _MISFITS as error:
            raise wrong(place, item, _needed(field), at=f"[{index}]") from error


def _carried(field: FieldDescriptor, value: object) -> object:
    """One value as protobuf takes it. Bytes are no text and truths no numbers, though protobuf would take them for it."""
    if field.enum_type is not None:
        if not isinstance(value, str):
            raise TypeError
        return _listed(field.containing_type, field.name)[value]
    if field.type == FieldDescriptor.TYPE_STRING and not isinstance(value, str):
        raise TypeError
    if field.type != FieldDescriptor.TYPE_BOOL and isinstance(value, bool):
        raise TypeError
    return value


def _needed(field: FieldDescriptor) -> str:
    """What a field carries, or each item of it, in words."""
    if (entry := _entry(field)) is not None:
        key, value = (_NEEDED[entry.fields_by_name[name].type] for name in ("key", "value"))
        return f"a mapping from {key} to {value}"
    if field.enum_type is not None:
        return f"one of {', '.join(_listed(field.containing_type, field.name))}"
    return _NEEDED[field.type]


def _entry(field: FieldDescriptor) -> Descriptor | None:
    """Key and value of a map; None: the field is none."""
    held = field.message_type
    return held if held is not None and held.GetOptions().map_entry else None
