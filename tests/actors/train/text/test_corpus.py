"""The corpus: what is held out, and what a broken data folder says."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from outrider.actors.train.features import frozen_target
from outrider.actors.train.features.training_text import read_file, read_texts
from outrider.actors.train.text.corpus import (
    CorpusSource,
    check,
    is_held_out,
    load,
    read_lines,
    read_records,
)
from outrider.actors.train.text.sources import read_prose
from outrider.actors.train.training_errors import DataError
from outrider.cluster.process.command_failed import USAGE, CommandFailed
from outrider.cluster.start.commands import train

PROSE = CorpusSource("prose", ("prose.jsonl",), 1.0, read_prose)


def test_held_out_is_fixed_by_the_names_alone() -> None:
    """The same keys are held out in every process and on every machine."""
    assert [n for n in range(400) if is_held_out("gsm8k", f"question {n}")] == [147, 219, 284, 362]


def test_held_out_is_about_one_percent() -> None:
    """Of ten thousand keys about a hundred are held out."""
    assert 70 <= sum(is_held_out("a", str(n)) for n in range(10_000)) <= 130


def test_load_puts_every_record_on_one_side(tiny_data: Path) -> None:
    """Training and held-out documents are disjoint and together everything."""
    train, held = load(tiny_data, PROSE)
    assert len(train) + len(held) == 300
    assert held
    assert not {d.key for d in train} & {d.key for d in held}


def test_a_folder_of_files_of_one_text_each(tmp_path: Path) -> None:
    """Each text is on one side, those of files that have the same name in two folders too."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        for number in range(300):
            (tmp_path / folder / f"{number}.txt").write_text(f"Text {number} of {folder}.\n")
    texts, _ = read_texts(tmp_path)
    trained, held = ([one.text for both in texts.values() for one in both[side]] for side in (0, 1))
    assert held
    assert sorted([*trained, *held]) == sorted(
        f"Text {number} of {folder}." for folder in "ab" for number in range(300)
    )


def test_what_stands_there_twice_is_on_one_side(tmp_path: Path) -> None:
    """In one file or in several: a net that was measured on texts that it was trained on would look better than it is."""
    plain = [{"text": f"Text {number}."} for number in range(300)]
    turns = [[{"role": "user", "content": f"What is {number}?"}] for number in range(300)]
    lines = [json.dumps(one) for one in (*plain, *({"messages": one} for one in turns))]
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text("\n".join(lines * 2))
    texts, _ = read_texts(tmp_path)
    trained, held = (
        {(one.text, one.messages) for both in texts.values() for one in both[side]}
        for side in (0, 1)
    )
    assert len({bool(text) for text, _ in held}) == 2, "some of either kind"
    assert not trained & held


def test_few_files_of_one_text_each_are_too_few(tmp_path: Path) -> None:
    """Nothing is held out of them, or nothing is left to train on."""
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text(f"Text {number}.\n")
    with pytest.raises(DataError, match="too few texts"):
        read_texts(tmp_path)


def test_check_names_every_missing_file(tiny_data: Path) -> None:
    """Missing files are all named before any work starts."""
    other = CorpusSource("other", ("a.gz", "b.gz"), 1.0, read_prose)
    with pytest.raises(DataError, match=r"missing a\.gz, b\.gz; put the files there"):
        check(tiny_data, (PROSE, other))


def test_check_names_a_missing_folder(tmp_path: Path) -> None:
    """A wrong data folder is said to be one."""
    with pytest.raises(DataError, match="no such data folder"):
        check(tmp_path / "nowhere", (PROSE,))


def test_load_refuses_an_empty_file(tmp_path: Path) -> None:
    """A file without records is named."""
    (tmp_path / "prose.jsonl").write_text("")
    with pytest.raises(DataError, match=r"prose\.jsonl: no records"):
        load(tmp_path, PROSE)


def test_read_records_names_line_and_field(tmp_path: Path) -> None:
    """A malformed record is found by file, line and field."""
    path = tmp_path / "x.jsonl"
    path.write_text('{"text": "a"}\n{"title": "b"}\n')
    with pytest.raises(DataError, match=r"x\.jsonl:2: lacks text"):
        list(read_records(path, "text"))
    path.write_text("{")
    with pytest.raises(DataError, match=r"x\.jsonl:1: not JSON"):
        list(read_records(path))


def test_read_lines_names_a_broken_archive(tmp_path: Path) -> None:
    """A cut gzip file is an error that names it, not a short corpus."""
    path = tmp_path / "x.txt.gz"
    path.write_bytes(gzip.compress(b"line\n" * 1000)[:-12])
    with pytest.raises(DataError, match=r"x\.txt\.gz: cannot be read"):
        list(read_lines(path))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ('["a"]', "no JSON object"),
        ('{"id": 1}', "neither text nor messages"),
        ('{"messages": ["a"]}', "a message has no role"),
        ('{"messages": [{"from": "human", "value": "a"}]}', "a message has no role"),
        ('{"messages": [{"role": "assistant", "content": null}]}', "no content that is text"),
    ],
)
def test_records_of_another_form_are_named(tmp_path: Path, record: str, message: str) -> None:
    """With their file; none is trained on as something else."""
    (tmp_path / "a.jsonl").write_text(record)
    with pytest.raises(DataError, match=rf"a\.jsonl.*{message}"):
        list(read_file(tmp_path / "a.jsonl"))


def test_records_of_blanks_are_no_texts(tmp_path: Path) -> None:
    """A file of nothing else has no records: a net would learn the marks around texts."""
    turn = {"role": "user", "content": " "}
    blank = [{"messages": []}, {"messages": [turn]}, {"text": "\n"}] * 200
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, blank)))
    with pytest.raises(DataError, match=r"a\.jsonl: no records in it"):
        read_texts(tmp_path)
    (tmp_path / "a.jsonl").write_text(
        "\n".join(map(json.dumps, [*blank, {"messages": [turn, {**turn, "content": "a"}]}]))
    )
    (only,) = read_file(tmp_path / "a.jsonl")
    assert [one.content for one in only.messages] == [" ", "a"]


def test_files_of_one_name_in_two_folders_are_both_read(tmp_path: Path) -> None:
    """Neither stands for the other."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        text = "\n\n".join(f"{folder} {number}" for number in range(3000))
        (tmp_path / folder / "x.txt").write_text(text)
    texts, weights = read_texts(tmp_path)
    assert sorted(texts) == sorted(weights) == ["a/x.txt", "b/x.txt"]
    for folder in ("a", "b"):
        assert sum(map(len, texts[f"{folder}/x.txt"])) == 375
        assert all(one.text[0] == folder for part in texts[f"{folder}/x.txt"] for one in part)


@pytest.mark.parametrize(("name", "line"), [("a.txt", "text"), ("a.jsonl", '{"text": "text"}')])
def test_a_mark_of_byte_order_is_no_text(tmp_path: Path, name: str, line: str) -> None:
    """Editors put it first; it is neither a character to learn nor a mistake."""
    (tmp_path / name).write_text(line, encoding="utf-8-sig")
    assert [one.text for one in read_file(tmp_path / name)] == ["text"]


@pytest.fixture
def unloadable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever loads a target fails."""

    def load_target(name: str, _: object) -> None:
        pytest.fail(f"{name} was loaded")

    monkeypatch.setattr(frozen_target, "load_target", load_target)


@pytest.mark.usefixtures("unloadable")
def test_what_is_missing_is_said_before_a_target_is_loaded(tmp_path: Path) -> None:
    """Texts, and a folder for the result, in a sentence."""
    given: dict[str, Any] = {
        "data": tmp_path / "texts",
        "out": tmp_path / "file",
        "target": "demo:target",
    }
    with pytest.raises(CommandFailed, match="texts: no such folder or file") as caught:
        train("dspark", given)
    assert caught.value.exit_code == USAGE
    given["data"].mkdir()
    with pytest.raises(CommandFailed, match=r"no file ending in \.txt"):
        train("dspark", given)
    (given["data"] / "a.txt").write_text("a")
    given["out"].write_text("a")
    with pytest.raises(CommandFailed, match="is a file; a folder is needed") as caught:
        train("dspark", given)
    assert caught.value.exit_code == USAGE


@pytest.mark.usefixtures("unloadable")
@pytest.mark.parametrize(
    ("record", "message"),
    [
        ('{"text": "half \\ud800"}', "holds .*ud800.*, half of a character"),
        ('{"text": "a", "id": ' + "9" * 5000 + "}", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"text": "one"}', "too few texts"),
    ],
)
def test_what_is_wrong_with_texts_is_said_before_a_target_is_loaded(
    tmp_path: Path, record: str, message: str
) -> None:
    """With the line, as wrong input."""
    data = tmp_path / "a.jsonl"
    data.write_text(record)
    given: dict[str, Any] = {"data": data, "out": tmp_path / "out", "target": "demo:target"}
    with pytest.raises(CommandFailed, match=message) as caught:
        train("dspark", given)
    assert caught.value.exit_code == USAGE


def test_a_file_is_what_its_last_ending_says(tmp_path: Path) -> None:
    """A plain text whose name has the other ending within is no JSON lines."""
    file = tmp_path / "about.jsonl.txt"
    file.write_text("Two words.\n")
    assert [one.text for one in read_file(file)] == ["Two words."]
