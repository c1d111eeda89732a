"""The whole input, and the output against it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.client.batch.lines import chat, completion, write

from outrider.client.batch.answer import Answer
from outrider.client.batch.places import read_lines
from outrider.client.batch.record import BatchRecord, Rejection
from outrider.client.batch.survey import Survey, done_ids, strictly, survey
from outrider.client.connection.errors import InvalidRequest


def look(tmp_path: Path, *values: object) -> tuple[Survey, list[BatchRecord | Rejection]]:
    """What a file of these lines holds."""
    file = str(write(tmp_path / "in.jsonl", *values))
    found = survey(read_lines(file))
    return found, list(found.entries(read_lines(file)))


def answered(entry: BatchRecord | Rejection) -> Answer:
    """An answer to an entry."""
    return Answer(
        id=entry.id, custom_id=entry.custom_id, error_code=None, model="demo", fingerprint="f"
    )


def test_each_line_has_one_answer(tmp_path: Path) -> None:
    """Good and bad lines alike; blank lines have none; numbers are those of the file."""
    found, entries = look(tmp_path, completion("a"), b"", b"{", b"  ", chat("b"), b"{")
    assert [(entry.line, type(entry)) for entry in entries] == [
        (1, BatchRecord),
        (3, Rejection),
        (5, BatchRecord),
        (6, Rejection),
    ]
    assert len({entry.id for entry in entries}) == 4
    assert set(found.line_by_id) == {entry.id for entry in entries}


def test_records_that_share_a_name_are_all_refused(tmp_path: Path) -> None:
    """Also those that say the same; the others run."""
    _, entries = look(
        tmp_path, completion("a"), completion("b"), completion("a"), completion("a", "x")
    )
    refused = [entry for entry in entries if isinstance(entry, Rejection)]
    assert [entry.line for entry in refused] == [1, 3, 4]
    assert {entry.problem.code for entry in refused} == {"duplicate_custom_id"}
    assert all("lines 1, 3, 4" in entry.problem.message for entry in refused)
    assert len({entry.id for entry in entries}) == 4


def test_a_faulty_record_shares_its_name_too(tmp_path: Path) -> None:
    """Two answers of one name, one of them an error, would leave it to the reader which to take."""
    for values in (
        (completion("a"), completion("a", tools=[])),
        (completion("a", tools=[]), completion("a")),
    ):
        found, entries = look(tmp_path, *values)
        assert [type(entry) for entry in entries] == [Rejection, Rejection]
        assert len(found.rejections) == 2
        assert {entry.problem.code for entry in found.rejections} == {"duplicate_custom_id"}


def test_records_without_a_name_share_none(tmp_path: Path) -> None:
    """Each is told that its name is missing."""
    found, _ = look(tmp_path, completion(""), completion(""), {}, {})
    assert [entry.problem.code for entry in found.rejections] == ["missing_custom_id"] * 4


def test_strict_names_lines(tmp_path: Path) -> None:
    """The first few of them, in their order."""
    found, _ = look(
        tmp_path, completion("a"), b"{", completion("b"), completion("c", tools=[]), completion("b")
    )
    with pytest.raises(InvalidRequest, match="4 lines") as caught:
        strictly(found)
    lines = caught.value.message.splitlines()[1:]
    assert [line.split(":")[0].strip() for line in lines] == [
        "line 2",
        "line 3",
        "line 4",
        "line 5",
    ]
    many, _ = look(tmp_path, *[b"{"] * 30)
    with pytest.raises(InvalidRequest, match="and 10 more"):
        strictly(many)
    good, _ = look(tmp_path, completion("a"))
    strictly(good)


@pytest.mark.parametrize("values", [(), (b"", b" ")])
def test_an_empty_input(tmp_path: Path, values: tuple[object, ...]) -> None:
    """Is refused."""
    with pytest.raises(InvalidRequest, match="holds no record"):
        look(tmp_path, *values)


def test_byte_order_mark_and_missing_last_newline(tmp_path: Path) -> None:
    """Files of other systems are read."""
    file = write(tmp_path / "in.jsonl", completion("a"), completion("b"))
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n").rstrip())
    assert set(survey(read_lines(str(file))).id_by_custom) == {"a", "b"}


def test_what_is_done(tmp_path: Path) -> None:
    """Answers of this input count, whatever was added to it since."""
    found, entries = look(tmp_path, completion("a"), completion("b"), b"{")
    done = [answered(entries[0]), answered(entries[2])]
    assert done_ids(found, done, fingerprints={"demo": "f"}) == {entries[0].id, entries[2].id}
    longer, _ = look(tmp_path, completion("a"), completion("b"), b"{", completion("c"))
    assert len(done_ids(longer, done, fingerprints={})) == 2


def test_an_input_that_has_changed_is_refused(tmp_path: Path) -> None:
    """By the name of the record: changed, gone, or a twin now."""
    _, entries = look(tmp_path, completion("a"), completion("b"))
    done = [answered(entries[0])]
    for values, message in (
        ((completion("a", temperature=0.1),), "'a', whose record has changed"),
        ((completion("b"),), "'a', whose record the input does not hold"),
        ((completion("a"), completion("a")), "'a', whose record has changed"),
    ):
        changed, _ = look(tmp_path, *values)
        with pytest.raises(InvalidRequest, match=message):
            done_ids(changed, done, fingerprints={})


def test_another_model_of_the_same_name_is_refused(tmp_path: Path) -> None:
    """Half a file by one model and half by another would be of no use."""
    found, entries = look(tmp_path, completion("a"))
    with pytest.raises(InvalidRequest, match="not the one that is served now"):
        done_ids(found, [answered(entries[0])], fingerprints={"demo": "g"})


def test_an_answer_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    """It was not written by us."""
    found, entries = look(tmp_path, completion("a"))
    one = answered(entries[0])
    with pytest.raises(InvalidRequest, match="'a' twice"):
        done_ids(found, [one, replace(one)], fingerprints={})


def test_an_input_that_changes_while_it_is_run(tmp_path: Path) -> None:
    """Is noticed at the line."""
    file = write(tmp_path / "in.jsonl", completion("a"), completion("b"))
    found = survey(read_lines(str(file)))
    write(file, completion("a"), completion("c"))
    with pytest.raises(InvalidRequest, match="line 2 of the input has changed"):
        list(found.entries(read_lines(str(file))))
