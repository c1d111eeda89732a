"""The output file: what a kill can leave of it, and who may write it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tests.client.batch.lines import completion, encode

from outrider.client.batch import answer
from outrider.client.batch.answers_file import LocalOutput
from outrider.client.batch.record import Rejection, parse
from outrider.client.connection.errors import AlreadyRunning, InvalidRequest, OutriderError


def line_of(number: int) -> bytes:
    """An answer."""
    entry = parse(number, encode(completion("") | {"custom_id": number}))
    assert isinstance(entry, Rejection)
    return answer.rejection(entry)


def test_a_cut_last_line_is_removed_wherever_it_was_cut(tmp_path: Path) -> None:
    """Whole lines stay, the rest goes, and the next line is whole again."""
    first, second, third = (line_of(number) for number in (1, 2, 3))
    for cut in range(len(second)):
        file = tmp_path / f"{cut}.jsonl"
        file.write_bytes(first + second[:cut])
        output = LocalOutput(file)
        assert [found.id for found in output.answers()] == [answer.read(first).id]
        output.begin()
        output.append(third)
        output.close()
        assert file.read_bytes() == first + third


def test_blocks_that_were_never_written_are_removed(tmp_path: Path) -> None:
    """A machine that lost power can leave zeros."""
    file = tmp_path / "out.jsonl"
    file.write_bytes(line_of(1) + line_of(2)[:20] + bytes(100))
    output = LocalOutput(file)
    assert len(list(output.answers())) == 1
    output.begin()
    output.close()
    assert file.read_bytes() == line_of(1)


@pytest.mark.parametrize("content", [b"my notes", b"{}\n", b'{"id": "x"}\n{"id"', b"\n", b"[1]\n"])
def test_a_file_of_somebody_else_is_left_alone(tmp_path: Path, content: bytes) -> None:
    """It is refused by its line, and not a byte of it is changed."""
    file = tmp_path / "out.jsonl"
    file.write_bytes(content)
    output = LocalOutput(file)
    with pytest.raises(InvalidRequest, match="line 1, is no answer of a batch"):
        list(output.answers())
    output.close()
    assert file.read_bytes() == content


def test_two_runs_cannot_write_one_output(tmp_path: Path) -> None:
    """The second is refused, until the first has ended."""
    file = tmp_path / "out.jsonl"
    first = LocalOutput(file)
    with pytest.raises(AlreadyRunning, match="another run"):
        LocalOutput(file)
    first.close()
    LocalOutput(file).close()


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    """A clear error, by cause."""
    with pytest.raises(InvalidRequest, match="No such file"):
        LocalOutput(tmp_path / "none" / "out.jsonl")
    with pytest.raises(InvalidRequest, match="Is a directory"):
        LocalOutput(tmp_path)


def test_a_place_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is named, as on some network file systems: two runs could not be kept apart."""

    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.raises(InvalidRequest, match=r"out\.jsonl cannot be locked: No locks"):
        LocalOutput(tmp_path / "out.jsonl")


def test_a_full_disk_ends_the_run() -> None:
    """The cause is told; what was written stays."""
    output = LocalOutput(Path("/dev/full"))
    with pytest.raises(OutriderError, match="No space left"):
        output.append(line_of(1))
    output.close()


def test_a_line_that_does_not_fit_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was answered at the same moment and does fit comes after whole lines."""
    file = tmp_path / "out.jsonl"
    output = LocalOutput(file)
    output.append(line_of(1))
    room = [20]

    def write(descriptor: int, data: memoryview) -> int:
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return original(descriptor, data[: room.pop()])

    original = os.write
    monkeypatch.setattr(os, "write", write)
    with pytest.raises(OutriderError, match="No space left"):
        output.append(line_of(2))
    monkeypatch.undo()
    output.append(line_of(3))
    output.close()
    assert file.read_bytes() == line_of(1) + line_of(3)
