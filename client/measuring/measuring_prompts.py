"""Prompts to measure with: from a file, or a varied few of our own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from outrider.client.connection.errors import InvalidRequest
from outrider.client.connection.wanted import shown
from outrider.client.messages.request_options import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One prompt. Exactly one of `text`, `tokens` and `messages` is set."""

    category: str
    text: str | None = None
    tokens: tuple[int, ...] | None = None
    messages: tuple[Message, ...] | None = None
    max_tokens: int | None = None
    """Of the answer; None: as all the others."""


def _ask(question: str) -> tuple[Message, ...]:
    return (Message("user", question),)


BUILT_IN: tuple[Prompt, ...] = (
    Prompt(category="prose", text="Photosynthesis is the process by which plants"),
    Prompt(
        category="code",
        text='class Stack:\n    """A stack of items."""\n\n    def __init__(self):\n        self.items = []\n\n    def ',
    ),
    Prompt(
        category="sums",
        messages=_ask(
            "Tom has 14 apples. He buys 9 more and gives 5 to his sister. How many apples does he have now?"
        ),
    ),
    Prompt(
        category="translation", messages=_ask("Translate English to German: Where is the station?")
    ),
    Prompt(category="instruction", messages=_ask("Give three tips for staying healthy.")),
    Prompt(category="play", text="KING RICHARD:\nWhat news, my lord?\n\n"),
    Prompt(category="prose", text="The economy of a country depends on"),
    Prompt(
        category="code",
        text='import json\n\n\ndef read_config(path):\n    """Read a configuration file."""\n',
    ),
    Prompt(
        category="sums",
        text="Question: A box holds 12 eggs. How many eggs are in 7 boxes?\nAnswer:",
    ),
    Prompt(
        category="translation", messages=_ask("Translate English to French: The cat is asleep.")
    ),
    Prompt(category="instruction", messages=_ask("Explain in one sentence why the sky is blue.")),
    Prompt(category="play", text="JULIET:\nGood night, good night!"),
)
"""Prose, code, sums, translations, instructions and a play, two of each; some as text, some as a conversation."""


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    r"""The prompts of a file.

    `.jsonl`: one object a line with `prompt`, `tokens` or `messages` (role and content), and perhaps `category`.
    Any other: one text a line; `\n` in it stands for a new line, empty lines are left out.

    Raises:
        InvalidRequest: The file cannot be read, or a line is no prompt; names the line.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{path} cannot be read: {error}", field="prompts") from None
    parse = _parse_json if path.suffix == ".jsonl" else _parse_text
    prompts = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            prompts.append(parse(line))
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidRequest(f"{path}, line {number}: {error}", field="prompts") from None
    if not prompts:
        raise InvalidRequest(f"{path} holds no prompt", field="prompts")
    return tuple(prompts)


def _parse_text(line: str) -> Prompt:
    return Prompt(category="file", text=line.replace("\\n", "\n"))


def _parse_json(line: str) -> Prompt:
    entry = json.loads(line)
    if not isinstance(entry, dict):
        raise TypeError("is not a JSON object")
    kinds = [kind for kind in ("prompt", "tokens", "messages") if kind in entry]
    unknown = set(entry) - {"prompt", "tokens", "messages", "category"}
    if len(kinds) != 1 or unknown:
        raise ValueError(
            "needs exactly one of prompt, tokens and messages, and may have category; it has "
            + (", ".join(sorted(entry)) or "nothing")
        )
    category = str(entry.get("category", "file"))
    match kinds[0], entry[kinds[0]]:
        case "prompt", str(text):
            return Prompt(category=category, text=text)
        case "tokens", [*ids] if all(type(token) is int for token in ids):
            return Prompt(category=category, tokens=tuple(ids))
        case "messages", [*turns] if all(_is_turn(turn) for turn in turns):
            messages = tuple(Message(turn["role"], turn["content"]) for turn in turns)
            return Prompt(category=category, messages=messages)
        case kind, value:
            raise ValueError(f"{kind} is {shown(value)}, which is no text, token ids or messages")


def _is_turn(turn: object) -> bool:
    """True for an object of role and content, both text."""
    return (
        isinstance(turn, dict)
        and set(turn) == {"role", "content"}
        and all(isinstance(value, str) for value in turn.values())
    )
