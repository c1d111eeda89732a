"""The contract in `protos/` keeps its own rules: what is declared is explained, and absence can be told from zero."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor

from outrider.v1 import sampling_pb2

FOLDER = Path(__file__).resolve().parent.parent / "protos" / "outrider" / "v1"
FILES = sorted(FOLDER.glob("*.proto"))
GENERATED = [importlib.import_module(f"outrider.v1.{file.stem}_pb2") for file in FILES]

DECLARATION = re.compile(
    r"""\s*(?:
        (?:message|enum|service|oneof|rpc)\s+\w+ |
        (?:optional\s+|repeated\s+)?(?:map<[^>]+>|[\w.]+)\s+\w+\s*=\s*\d+
    )""",
    re.VERBOSE,
)
ENUM_VALUE = re.compile(r"\s*[A-Z][A-Z0-9_]*\s*=\s*\d+")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_everything_that_is_declared_is_explained(file: Path) -> None:
    """Each message, field, enum, value, service and call has a comment right above it."""
    lines = file.read_text().splitlines()
    bare = [
        f"{file.name}:{number + 1}: {line.strip()}"
        for number, line in enumerate(lines)
        if (DECLARATION.match(line) or ENUM_VALUE.match(line))
        and not lines[number - 1].lstrip().startswith("//")
    ]
    assert bare == []


def test_the_search_finds_what_is_bare() -> None:
    """The pattern matches every kind of declaration, so that the test above can fail."""
    for line in (
        "message A {",
        "  oneof kind {",
        "  rpc Get(A) returns (stream B);",
        "  optional float x = 1;",
        "  repeated outrider.v1.Token tokens = 12;",
        "  map<uint32, float> bias = 8;",
    ):
        assert DECLARATION.match(line), line
    assert ENUM_VALUE.match("  KIND_UNSPECIFIED = 0;")
    assert not DECLARATION.match('syntax = "proto3";')


@pytest.mark.parametrize("message", [sampling_pb2.SamplingOptions, sampling_pb2.SpeculationOptions])
def test_absence_can_be_told_from_zero(
    message: type[sampling_pb2.SamplingOptions | sampling_pb2.SpeculationOptions],
) -> None:
    """Every option has presence, but for lists, maps, and enums whose zero is 'unspecified'."""
    options = message()
    for field in message.DESCRIPTOR.fields:
        is_list = not isinstance(getattr(options, field.name), (bool, int, float, str))
        is_enum = field.type == FieldDescriptor.TYPE_ENUM
        assert is_list or is_enum or field.has_presence, field.full_name


def test_every_sampling_number_may_be_absent() -> None:
    """The contract writes `optional` on each of them."""
    text = (FOLDER / "sampling.proto").read_text()
    body = text[text.index("message SamplingOptions") : text.index("}", text.index("message Samp"))]
    bare = [
        line.strip()
        for line in body.splitlines()
        if re.match(r"\s*(?:float|double|u?int(?:32|64)|bool|string)\s", line)
    ]
    assert bare == []


def test_zero_of_every_enum_is_unspecified() -> None:
    """So that an absent value never means something by chance."""
    names = [
        (enum.full_name, enum.values_by_number[0].name)
        for module in GENERATED
        for enum in module.DESCRIPTOR.enum_types_by_name.values()
    ]
    assert len(names) >= 5
    assert [name for name in names if not name[1].endswith("_UNSPECIFIED")] == []
