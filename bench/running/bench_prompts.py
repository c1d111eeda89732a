"""The prompts that benchmarks decode: 225 of ten categories, in a fixed shuffled order."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outrider.client import Message

FILE = Path(__file__).parents[1] / "prompts.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One prompt."""

    id: int
    """Its number."""

    category: str
    """What kind of text it asks for."""

    text: str | None
    """Text to continue, or None."""

    messages: tuple[tuple[str, str], ...] | None
    """A conversation as (role, content), or None."""

    def request(self) -> dict[str, Any]:
        """Arguments for the client."""
        if self.text is not None:
            return {"prompt": self.text}
        return {"messages": [Message(role, content) for role, content in self.messages or ()]}


def load(limit: int | None = None) -> list[Prompt]:
    """The first `limit` prompts, or all."""
    prompts = []
    for line in FILE.read_text(encoding="utf-8").splitlines()[:limit]:
        record = json.loads(line)
        messages = record.get("messages")
        prompts.append(
            Prompt(
                id=record["id"],
                category=record["category"],
                text=record.get("prompt"),
                messages=tuple((m["role"], m["content"]) for m in messages) if messages else None,
            )
        )
    return prompts


def spread(count: int) -> list[Prompt]:
    """`count` prompts, as evenly over the categories as can be, in the fixed order."""
    by_category: dict[str, list[Prompt]] = {}
    for prompt in load():
        by_category.setdefault(prompt.category, []).append(prompt)
    chosen: list[Prompt] = []
    level = 0
    while len(chosen) < count and level < 24:
        for prompts in by_category.values():
            if level < len(prompts) and len(chosen) < count:
                chosen.append(prompts[level])
        level += 1
    return chosen
