"""The fenced examples of the documentation."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "README.md",
    "docs/batch.md",
    "docs/cluster.md",
    "docs/jobs.md",
    "docs/kubernetes.md",
    "docs/observability.md",
    "docs/operations.md",
    "docs/security.md",
    "docs/timeline.md",
    "helm/outrider/README.md",
)
"""What operators read."""

_FENCE = re.compile(r"^( *)```(\w+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_WORD = re.compile(r"[A-Za-z_]\w*=")
_KEYWORDS = {"for", "do", "done", "if", "then", "fi", "while", "in", "export", "{", "}"}


@dataclass(frozen=True, slots=True)
class Example:
    """A fenced block."""

    page: str
    language: str
    text: str
    line: int

    @property
    def name(self) -> str:
        """For the report of a test."""
        return f"{self.page}:{self.line}"


def examples(*languages: str, page: str | None = None) -> list[Example]:
    """The blocks in these languages, of a page or of all."""
    found = []
    for each in PAGES if page is None else (page,):
        text = (ROOT / each).read_text(encoding="utf-8")
        for fence in _FENCE.finditer(text):
            indent, language, block = fence.groups()
            if language in languages:
                block = re.sub(rf"^{indent}", "", block, flags=re.MULTILINE)
                found.append(Example(each, language, block, text.count("\n", 0, fence.start()) + 1))
    return found


def commands(text: str) -> Iterator[list[str]]:
    """The words of each command of a shell text: lines joined, comments left out, pipes and lists taken apart, words of the shell and
    settings of variables before a command dropped."""
    joined = text.replace("\\\n", " ")
    for line in joined.splitlines():
        words = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        words.whitespace_split = True
        command: list[str] = []
        is_target = False
        for word in words:
            if set(word) <= set("<>"):
                is_target = True  # Of a redirection; the next word is a file.
            elif set(word) <= set("|&;"):
                yield from _bare(command)
                command = []
            elif is_target:
                is_target = False
            else:
                command.append(word)
        yield from _bare(command)


def _bare(words: list[str]) -> Iterator[list[str]]:
    while words and (words[0] in _KEYWORDS or _WORD.match(words[0])):
        if words[0] in ("for", "export"):
            return
        words = words[1:]
    if words:
        yield words
