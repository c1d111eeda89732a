"""Records become documents of the right wording."""

from __future__ import annotations

import json
from pathlib import Path

from outrider.actors.train.text.sources import (
    SOURCES,
    read_sentences,
    read_sums,
    read_tasks,
    read_translations,
)


def write(path: Path, *records: object) -> Path:
    """A JSON-lines file."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_sums_lose_their_calculator_marks(tmp_path: Path) -> None:
    """`<<48/2=24>>` is for a calculator, not for the reader."""
    records = [{"question": f"q{n}", "answer": "48/2 = <<48/2=24>>24\n#### 24"} for n in range(20)]
    documents = list(read_sums(write(tmp_path / "x.jsonl", *records)))
    said = [d.text or d.messages[-1].content for d in documents]
    assert all(text.endswith("48/2 = 24\n#### 24") for text in said)
    assert {bool(d.messages) for d in documents} == {True, False}


def test_translations_go_both_ways(tmp_path: Path) -> None:
    """Some pairs are asked from English, some to English, with the languages named."""
    records = [{"en": f"one {n}", "de": f"eins {n}"} for n in range(60)]
    documents = list(read_translations(write(tmp_path / "x_de_train.jsonl", *records)))
    asked = [d.messages[-2].content for d in documents if d.messages]
    assert any(text.startswith("Translate English to German: one") for text in asked)
    assert any(text.startswith("Translate German to English: eins") for text in asked)


def test_tasks_keep_their_indentation_in_spaces(tmp_path: Path) -> None:
    """Tabs and carriage returns of the source do not reach the model."""
    records = [
        {"text": f"t{n}", "code": "def f():\r\n\treturn 1", "test_list": ["assert f() == 1"]}
        for n in range(12)
    ]
    for document in read_tasks(write(tmp_path / "x.jsonl", *records)):
        assert "def f():\n    return 1" in (document.text or document.messages[-1].content)


def test_sentences_are_grouped_without_loss(tmp_path: Path) -> None:
    """Every sentence is in exactly one document, the last group included."""
    path = tmp_path / "x.txt"
    path.write_text("".join(f"s{n}\n" for n in range(30)))
    documents = list(read_sentences(path))
    assert [f"s{n}" for n in range(30)] == "\n".join(d.text for d in documents).split("\n")


def test_source_names_are_unique() -> None:
    """Names key the held-out split and the report."""
    assert len({source.name for source in SOURCES}) == len(SOURCES)
