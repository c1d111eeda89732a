"""Prompts to measure with."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.client.connection.errors import InvalidRequest
from outrider.client.measuring.measuring_prompts import BUILT_IN, read_prompts
from outrider.client.messages.request_options import Message


def test_text_file(tmp_path: Path) -> None:
    """One a line, with new lines written as in a string, and no empty ones."""
    file = tmp_path / "prompts.txt"
    file.write_text("one\n\ndef f():\\n    \n", encoding="utf-8")
    assert [prompt.text for prompt in read_prompts(file)] == ["one", "def f():\n    "]


def test_json_lines(tmp_path: Path) -> None:
    """Text, token ids and conversations, with categories."""
    file = tmp_path / "prompts.jsonl"
    file.write_text(
        '{"prompt": "one", "category": "prose"}\n'
        '{"tokens": [1, 2]}\n'
        '{"messages": [{"role": "user", "content": "hi"}]}\n',
        encoding="utf-8",
    )
    one, two, three = read_prompts(file)
    assert (one.text, one.category) == ("one", "prose")
    assert two.tokens == (1, 2)
    assert three.messages == (Message("user", "hi"),)


@pytest.mark.parametrize("name", ["prompts.jsonl", "prompts.txt"])
def test_lines_end_at_newlines_only(tmp_path: Path, name: str) -> None:
    """Files of other systems are read, and what ends a line elsewhere belongs to the text."""
    file = tmp_path / name
    said = ["one\u2028more\x85", "two"]
    lines = [f'{{"prompt": "{text}"}}' if file.suffix == ".jsonl" else text for text in said]
    file.write_bytes("\r\n".join(lines).encode("utf-8-sig"))
    assert [prompt.text for prompt in read_prompts(file)] == said


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "{}",
        '{"prompt": 5}',
        '{"prompt": "a", "tokens": [1]}',
        '{"tokens": [true]}',
        '{"messages": [{"role": "user"}]}',
        '{"prompt": "a", "promt": "b"}',
    ],
)
def test_bad_lines_are_named(tmp_path: Path, line: str) -> None:
    """What is no prompt is refused with its line."""
    file = tmp_path / "prompts.jsonl"
    file.write_text(f'{{"prompt": "good"}}\n{line}\n', encoding="utf-8")
    with pytest.raises(InvalidRequest, match="line 2"):
        read_prompts(file)


def test_unreadable_files(tmp_path: Path) -> None:
    """No file, no prompts, no text."""
    empty, binary = tmp_path / "empty.txt", tmp_path / "binary.txt"
    empty.write_text("\n")
    binary.write_bytes(b"\xff\xfe")
    for file in (empty, binary, tmp_path / "none.txt"):
        with pytest.raises(InvalidRequest, match=str(file)):
            read_prompts(file)


def test_built_in_prompts_are_varied() -> None:
    """Several categories, each prompt of exactly one kind."""
    assert len({prompt.category for prompt in BUILT_IN}) >= 5
    for prompt in BUILT_IN:
        given = (prompt.text, prompt.tokens, prompt.messages)
        assert sum(value is not None for value in given) == 1
