"""What numbers of a request may be, read from the contract: each field's `rule` in `protos/outrider/v1/sampling.proto`."""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from outrider.cluster.validation.refusals import invalid, plain
from outrider.v1 import rule_pb2

_REAL = (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE)


@cache
def rules(descriptor: Descriptor) -> dict[str, rule_pb2.Rule]:
    """The rules of a message's fields, by name."""
    return {
        field.name: field.GetOptions().Extensions[rule_pb2.rule]
        for field in descriptor.fields
        if field.GetOptions().HasExtension(rule_pb2.rule)
    }


def check_numbers(options: Message, prefix: str) -> None:
    """Refuses numbers that are set and outside their intervals; NaN is in none.

    Raises:
        Refusal: One is; names the field and the interval.
    """
    for name, rule in rules(options.DESCRIPTOR).items():
        if not options.HasField(name):
            continue
        value = getattr(options, name)
        if rule.least <= value <= rule.most and not (rule.above and value == rule.least):
            continue
        is_real = options.DESCRIPTOR.fields_by_name[name].cpp_type in _REAL
        interval = (
            f"in {'(' if rule.above else '['}{rule.least:g}, {rule.most:g}]"
            if is_real
            else f"{rule.least:g} to {rule.most:g}"
        )
        raise invalid(f"{prefix}.{name}", f"must be {interval}, got {plain(value)}")


def bounds(descriptor: Descriptor, name: str) -> dict[str, Any]:
    """The rule of a field as pydantic's `Field` takes it."""
    rule = rules(descriptor)[name]
    return {"gt" if rule.above else "ge": rule.least, "le": rule.most}
