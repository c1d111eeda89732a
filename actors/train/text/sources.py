"""The permissively licensed sources of the demonstration models, and their wording.

Licences and attributions stand in the model card, `outrider/actors/demo/README.md`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from outrider.actors.train.text.corpus import (
    LANGUAGES,
    ChatTurn,
    CorpusSource,
    Document,
    coin,
    read_lines,
    read_records,
)

CALCULATOR = re.compile(r"<<[^>]*>>")
SYSTEM_PROMPTS = (
    "You are a helpful assistant.",
    "You are a concise assistant.",
    "Answer the user's question.",
)


def conversation(key: str, *turns: str) -> Document:
    """User and assistant in turn; one in eight opens with a system prompt."""
    messages = [
        ChatTurn("user" if index % 2 == 0 else "assistant", turn)
        for index, turn in enumerate(turns)
    ]
    if coin(key, "system", 8) == 0:
        messages.insert(0, ChatTurn("system", SYSTEM_PROMPTS[coin(key, "which", 3)]))
    return Document(key, messages=tuple(messages))


def read_prose(path: Path) -> Iterator[Document]:
    """Textbook sections, each under its title."""
    for record in read_records(path, "title", "text"):
        text = f"{record['title']}\n\n{record['text']}"
        yield Document(f"{record.get('book')}/{record.get('module')}", text=text)


def read_python(path: Path) -> Iterator[Document]:
    """Python modules as they are."""
    for record in read_records(path, "path", "text"):
        yield Document(str(record["path"]), text=str(record["text"]))


def read_sums(path: Path) -> Iterator[Document]:
    """Word problems: two in three as a conversation, else as `Question:`/`Answer:` text."""
    for record in read_records(path, "question", "answer"):
        question = str(record["question"])
        answer = CALCULATOR.sub("", str(record["answer"]))
        if coin(question, "form", 3):
            yield conversation(question, question, answer)
        else:
            yield Document(question, text=f"Question: {question}\nAnswer: {answer}")


def read_tasks(path: Path) -> Iterator[Document]:
    """Short programming tasks: a conversation, or the task as a comment above the code."""
    for record in read_records(path, "text", "code", "test_list"):
        task, code = str(record["text"]), str(record["code"]).replace("\r\n", "\n").strip()
        code = code.replace("\t", "    ")
        tests = record["test_list"]
        first = str(tests[0]) if isinstance(tests, list) and tests else ""
        form = coin(task, "form", 3)
        if form == 0:
            yield Document(task, text=f'"""\n{task}\n{first}\n"""\n{code}')
        elif form == 1:
            yield conversation(task, f"{task}\nYour code should pass this test:\n{first}", code)
        else:
            yield conversation(task, task, code)


def read_translations(path: Path) -> Iterator[Document]:
    """Sentence pairs, both directions; a few in a row of text, most as a conversation."""
    code = next(code for code in LANGUAGES if f"_{code}_" in path.name)
    language = LANGUAGES[code]
    for record in read_records(path, "en", code):
        english, other = str(record["en"]), str(record[code])
        back = coin(english, "direction", 2)
        given, wanted = (other, english) if back else (english, other)
        names = (language, "English") if back else ("English", language)
        if coin(english, "form", 6) == 0:
            text = f"{names[0]}: {given}\n{names[1]}: {wanted}"
            yield Document(english, text=text)
        else:
            ask = f"Translate {names[0]} to {names[1]}: {given}"
            yield conversation(english, ask, wanted)


def read_conversations(path: Path) -> Iterator[Document]:
    """Instructions and answers as stored."""
    for record in read_records(path, "messages"):
        stored = record["messages"]
        assert isinstance(stored, list)
        turns = [str(message["content"]) for message in stored]
        yield conversation(turns[0], *turns)


def read_sentences(path: Path) -> Iterator[Document]:
    """Separate sentences, twelve to a document."""
    yield from group_lines(path, 12)


def read_verse(path: Path) -> Iterator[Document]:
    """A play, forty lines to a document."""
    yield from group_lines(path, 40)


def group_lines(path: Path, size: int) -> Iterator[Document]:
    lines: list[str] = []
    for line in read_lines(path):
        lines.append(line)
        if len(lines) == size:
            text = "\n".join(lines).strip()
            yield Document(text, text=text)
            lines = []
    if lines:
        text = "\n".join(lines).strip()
        yield Document(text, text=text)


SOURCES = (
    CorpusSource("openstax", ("openstax/openstax_train.jsonl.gz",), 0.28, read_prose),
    CorpusSource("gsm8k", ("gsm8k/train.jsonl.gz",), 0.23, read_sums),
    CorpusSource("python_stdlib", ("python_stdlib/stdlib_train.jsonl.gz",), 0.20, read_python),
    CorpusSource("mbpp", ("mbpp/mbpp_train.jsonl",), 0.03, read_tasks),
    CorpusSource(
        "tatoeba",
        tuple(f"tatoeba/tatoeba_en_{code}_train.jsonl.gz" for code in LANGUAGES),
        0.14,
        read_translations,
    ),
    CorpusSource(
        "chat",
        ("chat/self_instruct_human_train.jsonl", "chat/short_instructions_train.jsonl"),
        0.05,
        read_conversations,
    ),
    CorpusSource("common_voice", ("common_voice/cv_en_train.txt.gz",), 0.05, read_sentences),
    CorpusSource(
        "tinyshakespeare", ("tinyshakespeare/tinyshakespeare_train.txt.gz",), 0.03, read_verse
    ),
)
