"""What fields of a request may be, read from the contract: the `rule` of each in `protos/outrider/v1/sampling.proto`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from outrider.cluster.validation.refusals import invalid, plain
from outrider.v1 import rule_pb2


@cache
def rules(descriptor: Descriptor) -> dict[str, rule_pb2.Rule]:
    """The rules of a message's fields, by name."""
    return {
        field.name: field.GetOptions().Extensions[rule_pb2.rule]
        for field in descriptor.fields
        if field.GetOptions().HasExtension(rule_pb2.rule)
    }


def check_fields(options: Message, prefix: str) -> None:
    """Refuses fields that are set and break their rules. NaN is in no interval.

    Raises:
        Refusal: One does; names the field, or the entry of it, and what is allowed.
    """
    table = rules(options.DESCRIPTOR)
    is_off = any(one.name == "enabled" and not value for one, value in options.ListFields())
    for descriptor, value in options.ListFields():
        rule, field = table.get(descriptor.name), f"{prefix}.{descriptor.name}"
        if rule is None:
            continue
        if rule.speculates and value and is_off:
            raise invalid(field, f"is set while {prefix}.enabled is false; leave one out")
        if isinstance(value, str | int | float):
            _check_value(value, rule, field)
            continue
        if rule.most_entries and len(value) > rule.most_entries:
            raise invalid(field, f"must hold at most {rule.most_entries} entries, got {len(value)}")
        for place, entry in value.items() if isinstance(value, Mapping) else enumerate(value):
            _check_value(entry, rule, f"{field}[{place}]")


def _check_value(value: str | float, rule: rule_pb2.Rule, field: str) -> None:
    if isinstance(value, str):
        if rule.most_chars and not rule.least_chars <= len(value) <= rule.most_chars:
            fewest = f"{rule.least_chars} to" if rule.least_chars else "at most"
            raise invalid(
                field, f"must have {fewest} {rule.most_chars} characters, got {len(value)}"
            )
    elif rule.least < rule.most and (
        not rule.least <= value <= rule.most or (rule.above and value == rule.least)
    ):
        interval = (
            f"in {'(' if rule.above else '['}{rule.least:g}, {rule.most:g}]"
            if isinstance(value, float)
            else f"{rule.least:g} to {rule.most:g}"
        )
        raise invalid(field, f"must be {interval}, got {plain(value)}")


def bounds(descriptor: Descriptor, name: str) -> dict[str, Any]:
    """The rule of a field as pydantic's `Field` takes it."""
    rule = rules(descriptor)[name]
    return {"gt" if rule.above else "ge": rule.least, "le": rule.most}
