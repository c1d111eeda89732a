"""What an actor learns of its model's tokenizer: the same in this process and in one of its own."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from outrider.actors.demo import path
from outrider.actors.engine.checkpoint import tokenizer_reading
from outrider.actors.engine.checkpoint.tokenizer_reading import TokenizerFacts, TokenizerReading
from outrider.actors.engine.checkpoint.tokenizers import load_tokenizer, tokenizer_fingerprint

CODE = """
import sys
from transformers import PreTrainedTokenizerFast
class Own(PreTrainedTokenizerFast):
    def __init__(self, **options):
        print("said while it was read")
        {body}
        super().__init__(**options)
"""
CONFIG = '{"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": [null, "own.Own"]}}'


@pytest.fixture(params=["here", "in a process"])
def is_apart(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether every tokenizer counts as large."""
    is_large: bool = request.param != "here"
    if is_large:
        monkeypatch.setattr(tokenizer_reading, "LARGE_BYTES", 0)
    return is_large


def children() -> set[int]:
    """Processes of ours that read tokenizers."""
    return {
        each.pid
        for each in psutil.Process().children(recursive=True)
        if tokenizer_reading.__name__ in each.cmdline()
    }


def with_code(folder: Path, body: str) -> str:
    """A copy of the shipped tokenizer that is read by code of its own."""
    shutil.copy2(path("target") / "tokenizer.json", folder)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "tokenizer_config.json").write_text(CONFIG)
    (folder / "own.py").write_text(CODE.format(body=body))
    return str(folder)


def test_facts_are_those_of_the_tokenizer(is_apart: bool) -> None:
    """The digest and the chat template are those of the tokenizer that transformers loads."""
    loaded = load_tokenizer("demo:target")
    assert loaded is not None
    assert loaded.chat_template
    with TokenizerReading("demo:target") as reading:
        assert bool(children()) == is_apart
        found = reading.result()
    assert found == TokenizerFacts(tokenizer_fingerprint(loaded), loaded.chat_template)
    assert not children()


def test_table_has_none(is_apart: bool) -> None:
    """A law speaks in ids; no process is started."""
    with TokenizerReading("law:agree70") as reading:
        assert not children()
        assert reading.result() == TokenizerFacts()


def test_missing_tokenizer_is_an_error(tmp_path: Path) -> None:
    """It is told by the model's name. So are all errors of a process: `test_code_of_a_repository`."""
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "tokenizer.json").write_text("{")
    with (
        pytest.raises(ValueError, match=f"model '{tmp_path}': its tokenizer cannot be loaded"),
        TokenizerReading(str(tmp_path)) as reading,
    ):
        reading.result()


def test_code_of_a_repository(is_apart: bool, tmp_path: Path) -> None:
    """It runs where that is allowed only, and what it prints is no answer."""
    model = with_code(tmp_path, "import torch")
    wrong = f"model '{model}': its tokenizer cannot be loaded(.|\n)*trust_remote_code"
    with pytest.raises(ValueError, match=wrong), TokenizerReading(model) as reading:
        reading.result()
    with TokenizerReading(model, allow_remote_code=True) as reading:
        assert reading.result().fingerprint


def test_process_that_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the model and how the process ended."""
    monkeypatch.setattr(tokenizer_reading, "LARGE_BYTES", 0)
    model = with_code(tmp_path, "import os; os.kill(os.getpid(), 9)")
    with (
        pytest.raises(ValueError, match="reads its tokenizer ended with exit code -9"),
        TokenizerReading(model, allow_remote_code=True) as reading,
    ):
        reading.result()


def test_process_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait has a bound, and nothing is left of the process."""
    monkeypatch.setattr(tokenizer_reading, "LARGE_BYTES", 0)
    monkeypatch.setattr(tokenizer_reading, "PATIENCE_S", 0.1)
    model = with_code(tmp_path, "import time; time.sleep(600)")
    with TokenizerReading(model, allow_remote_code=True) as reading:
        assert children()
        with pytest.raises(ValueError, match=r"did not answer within 0\.1 s"):
            reading.result()
    assert not children()


def test_model_that_fails_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where loading the model raises, nobody waits for the tokenizer."""
    monkeypatch.setattr(tokenizer_reading, "LARGE_BYTES", 0)
    found = set[int]()
    with suppress(MemoryError), TokenizerReading("demo:target"):
        found = children()
        raise MemoryError
    assert found
    assert not children()
