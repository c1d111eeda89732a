"""Lines of a batch for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def completion(custom_id: str, prompt: object = "hi", **body: object) -> dict[str, Any]:
    """A record that continues a text."""
    return {
        "custom_id": custom_id,
        "method": "POST",
        "url": "/v1/completions",
        "body": {"model": "demo", "prompt": prompt, "max_tokens": 12, **body},
    }


def chat(custom_id: str, **body: object) -> dict[str, Any]:
    """A record that answers a message."""
    messages = [{"role": "user", "content": "hi"}]
    return {
        "custom_id": custom_id,
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"model": "demo", "messages": messages, "max_tokens": 12, **body},
    }


def encode(value: object) -> bytes:
    """A line of the input, without its end."""
    return json.dumps(value).encode()


def write(file: Path, *values: object) -> Path:
    """A file of these lines; bytes are taken as they are."""
    lines = [value if isinstance(value, bytes) else encode(value) for value in values]
    file.write_bytes(b"".join(line + b"\n" for line in lines))
    return file


def read(file: Path) -> list[dict[str, Any]]:
    """The lines of an output."""
    return [json.loads(line) for line in file.read_text().splitlines()]
