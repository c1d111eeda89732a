"""A coordinator needs no torch."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from outrider.actors.demo import path
from outrider.actors.engine.checkpoint.without_torch import without_torch
from outrider.cluster.text import text_tokenizer

TEXT = "def half(x):\n    return x / 2  # naïve 日本語 🙂"

SCRIPT = """
import json, sys
from outrider.cluster.text import text_tokenizer
from outrider.actors.engine.checkpoint.without_torch import without_torch
for folder in sys.argv[2:]:
    with without_torch():
        codec = text_tokenizer.load(folder)
    ids = codec.encode(sys.argv[1], add_special_tokens=True)
    text = codec.decode(ids)
    chat = codec.has_chat_template and codec.render_chat([("user", sys.argv[1])])
    print(json.dumps([ids, text, chat, sorted(codec.special_ids), codec.max_token_chars, "torch" in sys.modules]))
import torch
"""

FOLDERS = {name: str(path(name)) for name in ("target", "draft")}


@pytest.fixture(scope="module")
def said() -> dict[str, str]:
    """What a process that has no torch says of each tokenizer, one after the other; of the missing library it says nothing."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, TEXT, *FOLDERS.values()],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return dict(zip(FOLDERS, done.stdout.splitlines(), strict=True))


@pytest.mark.parametrize("name", FOLDERS)
def test_tokenizer_is_the_same(name: str, said: dict[str, str]) -> None:
    """The library is not imported, and it can be afterwards."""
    codec = text_tokenizer.load(FOLDERS[name])
    ids = codec.encode(TEXT, add_special_tokens=True)
    chat = codec.has_chat_template and codec.render_chat([("user", TEXT)])
    special = sorted(codec.special_ids)
    expected = [ids, codec.decode(ids), chat, special, codec.max_token_chars, False]
    assert json.loads(said[name]) == expected


def test_imported_torch_stays() -> None:
    """In a process that has it, nothing changes."""
    import torch

    with without_torch():
        assert sys.modules["torch"] is torch
    assert sys.modules["torch"] is torch
