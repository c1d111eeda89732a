"""The fenced examples of the documentation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "README.md",
    "docs/README.md",
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
