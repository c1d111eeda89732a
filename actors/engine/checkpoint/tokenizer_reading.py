"""What an actor has to know of its model's tokenizer. A large one is read by a process of its own while the model loads.

Actors handle tokens by number. Of the tokenizer they compare a digest only, so they hold none. Parsing one with 262,144 tokens takes a
second, in which its process can do nothing else in Python.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from outrider.actors.engine.checkpoint.model_source import resolve_model
from outrider.actors.engine.checkpoint.tokenizers import load_tokenizer, tokenizer_fingerprint
from outrider.actors.engine.checkpoint.without_torch import without_torch

LARGE_BYTES = 4 * 2**20
"""From this size of `tokenizer.json` on a process is worth its own imports. 17 MB are parsed in a second, which is what those take."""

REMOTE_CODE = "remote-code"
"""Second argument of the process: it may run code from the model's repository."""

NICENESS = 10
"""What is added to the process's niceness: the model, which takes longer, is loaded first where there are few cores."""

PATIENCE_S = 180.0
"""Seconds to wait for the process once the model is loaded. It needs two on an idle machine."""


@dataclass(frozen=True, slots=True)
class TokenizerFacts:
    """Of a tokenizer."""

    fingerprint: str = ""
    """Digest of all that decides about ids; empty without a tokenizer."""

    chat_template: object = None
    """A text, several by name, or None."""


class TokenizerReading:
    """A model's tokenizer, perhaps with a process that reads it. A context: behind it the process has ended."""

    def __init__(self, model: str, *, allow_remote_code: bool = False) -> None:
        """Reads a small tokenizer at once and starts a process for a large one. A table of distributions has none.

        Args:
            model: As `EngineSettings.model`.
            allow_remote_code: Runs code from the model's repository.

        Raises:
            ValueError: The name leads nowhere, or a small tokenizer cannot be loaded.
            OSError: No process can be started.
        """
        self._model = model
        self._process: subprocess.Popen[str] | None = None
        self._facts = TokenizerFacts()
        source = resolve_model(model)
        if source.is_tabular:
            return
        file = Path(source.location, "tokenizer.json")
        if file.exists() and file.stat().st_size < LARGE_BYTES:
            self._facts = read(model, allow_remote_code=allow_remote_code)
            return
        command = [sys.executable, "-P", "-m", __name__, model]
        self._process = subprocess.Popen(
            [*command, REMOTE_CODE] if allow_remote_code else command,
            # The package may have come with a job, by a path that only this process knows.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        """The reading itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the process if it still runs."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def result(self) -> TokenizerFacts:
        """Waits for what was read.

        Raises:
            ValueError: There is no tokenizer that can be loaded, or the process did not answer within `PATIENCE_S`.
        """
        if self._process is None:
            return self._facts
        failed = f"model {self._model!r}: the process that reads its tokenizer"
        try:
            said, _ = self._process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise ValueError(f"{failed} did not answer within {PATIENCE_S:g} s") from None
        if self._process.returncode:
            raise ValueError(f"{failed} ended with exit code {self._process.returncode}")
        answer = json.loads(said)
        if "error" in answer:
            raise ValueError(answer["error"])
        return TokenizerFacts(**answer)


def read(model: str, *, allow_remote_code: bool) -> TokenizerFacts:
    """Reads a tokenizer in this process; see `TokenizerReading`.

    Raises:
        ValueError: There is none that can be loaded.
    """
    tokenizer = load_tokenizer(model, allow_remote_code=allow_remote_code)
    if tokenizer is None:
        return TokenizerFacts()
    return TokenizerFacts(tokenizer_fingerprint(tokenizer), tokenizer.chat_template)


def main() -> None:
    """Reads the tokenizer of the model named by the first argument and prints what is to be known of it, as JSON."""
    os.nice(NICENESS)
    model, is_remote = sys.argv[1], REMOTE_CODE in sys.argv[2:]
    # Code that comes with a tokenizer may print, and may want torch.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        with nullcontext() if is_remote else without_torch():
            answer = asdict(read(model, allow_remote_code=is_remote))
    except ValueError as error:
        answer = {"error": str(error)}
    json.dump(answer, answers)
    answers.close()


if __name__ == "__main__":
    main()
