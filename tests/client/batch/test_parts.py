"""Outputs at places that cannot append: parts, and one file in the end, whatever the moment of a kill."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from tests.client.batch.lines import completion, encode

from outrider.client.batch import answer
from outrider.client.batch.parts import PartsOutput
from outrider.client.batch.record import Rejection, parse
from outrider.client.connection.errors import InvalidRequest, OutriderError

fsspec = pytest.importorskip("fsspec")


class Killed(Exception):
    """The process would be gone here."""


@pytest.fixture
def place() -> Iterator[str]:
    """A place of its own in memory."""
    folder = f"memory://{uuid.uuid4().hex}"
    yield f"{folder}/out.jsonl"
    memory = fsspec.filesystem("memory")
    if memory.exists(folder):
        memory.rm(folder, recursive=True)


def line_of(number: int) -> bytes:
    """An answer."""
    entry = parse(number, encode(completion("") | {"custom_id": number}))
    assert isinstance(entry, Rejection)
    return answer.rejection(entry)


def files(place: str) -> list[str]:
    """The files there, by their ends."""
    memory = fsspec.filesystem("memory")
    folder = place.removeprefix("memory:/").rpartition("/")[0]
    return sorted(path.removeprefix(folder) for path in memory.find(folder))


def content(place: str) -> list[bytes]:
    """The lines of the whole output."""
    with fsspec.open(place, "rb") as file:
        return list(file)


def test_parts_become_one_file(place: str) -> None:
    """Two runs' parts; the second sees what the first has done; nothing else stays."""
    first = PartsOutput(place)
    assert list(first.answers()) == []
    first.begin()
    first.append(line_of(1))
    first.sync()
    first.append(line_of(2))
    first.close()
    assert len(files(place)) == 2
    second = PartsOutput(place)
    assert {found.id for found in second.answers()} == {
        answer.read(line_of(number)).id for number in (1, 2)
    }
    second.begin()
    second.append(line_of(3))
    second.finish()
    second.close()
    assert files(place) == ["/out.jsonl"]
    assert sorted(content(place)) == sorted(line_of(number) for number in (1, 2, 3))
    assert len(list(second.answers())) == 3


def test_a_kill_at_any_step_of_the_end(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever call of the store is the last: the next run finds each answer once, and ends with one file."""
    kind = type(fsspec.filesystem("memory"))
    for steps in range(12):
        here = f"{place}-{steps}"
        before = PartsOutput(here)
        before.append(line_of(1))
        before.finish()
        killed = PartsOutput(here)
        list(killed.answers())
        killed.begin()
        killed.append(line_of(2))
        killed.sync()
        killed.append(line_of(3))
        with monkeypatch.context() as patch:
            limit_calls(patch, kind, steps)
            with suppress(OutriderError):
                killed.finish()
        after = PartsOutput(here)
        found = [done.id for done in after.answers()]
        assert len(found) == len(set(found)) >= 2
        after.begin()
        if answer.read(line_of(3)).id not in found:
            after.append(line_of(3))
        after.finish()
        assert sorted(content(here)) == sorted(line_of(number) for number in (1, 2, 3)), steps
        assert [file for file in files(here) if f"-{steps}" in file] == [f"/out.jsonl-{steps}"]


def limit_calls(patch: pytest.MonkeyPatch, kind: type[Any], steps: int) -> None:
    """Lets so many changes of the store happen; the next ones raise."""
    left = [steps]

    def limited(name: str) -> None:
        original = getattr(kind, name)

        def call(self: Any, *arguments: Any, **options: Any) -> Any:
            is_read = name == "open" and "r" in (arguments[1:2] or ("rb",))[0]
            if not is_read:
                if not left[0]:
                    raise Killed
                left[0] -= 1
            return original(self, *arguments, **options)

        patch.setattr(kind, name, call)

    for name in ("open", "cp_file", "rm_file", "rm"):
        limited(name)


def test_somebody_elses_file_is_left_alone(place: str) -> None:
    """It is refused by its line."""
    with fsspec.open(place, "wb") as file:
        file.write(b"notes\n")
    with pytest.raises(InvalidRequest, match="line 1, is no answer"):
        list(PartsOutput(place).answers())
    assert content(place) == [b"notes\n"]


def test_errors_of_the_store_name_the_place(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind of store raises its own."""
    output = PartsOutput(place)
    output.append(line_of(1))
    limit_calls(monkeypatch, type(fsspec.filesystem("memory")), 0)
    with pytest.raises(OutriderError, match=r"memory://.*Killed"):
        output.sync()


def test_what_a_store_did_not_take_is_put_later(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends for it, and lets go of its output with all that was answered."""
    output = PartsOutput(place)
    output.append(line_of(1))
    with monkeypatch.context() as patch:
        limit_calls(patch, type(fsspec.filesystem("memory")), 0)
        with pytest.raises(OutriderError, match="Killed"):
            output.sync()
    output.append(line_of(2))
    output.close()
    assert [found.id for found in PartsOutput(place).answers()] == [
        answer.read(line_of(number)).id for number in (1, 2)
    ]
