"""Text for training on any target: what a data folder or a file holds, in the target's own tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from jinja2 import TemplateError
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast

from outrider.actors.train.features.feature_cache import Int32s
from outrider.actors.train.text.corpus import (
    ChatTurn,
    CorpusSource,
    Document,
    load,
    read_lines,
    read_records,
)
from outrider.actors.train.text.packing import mix_stream, texts_digest
from outrider.actors.train.text.sources import SOURCES
from outrider.actors.train.text.train_tokenizer import BEGIN, SPECIAL, encode_documents
from outrider.actors.train.training_errors import DataError

PARAGRAPHS = 8
"""Paragraphs of a plain text that make a document."""

SUFFIXES = (".txt", ".txt.gz", ".jsonl", ".jsonl.gz")
"""Ends of the names of files that are read."""

GROUP = "texts"
"""All files together: the same text may be in several."""

Texts = dict[str, tuple[list[Document], list[Document]]]
"""Of each source, what is trained on and what is held out; either may be none."""


def sources_in(data: Path) -> list[CorpusSource]:
    """Where a folder or a file has texts, see `read_texts`. Nothing is read.

    Raises:
        DataError: Nowhere.
    """
    if not data.exists():
        raise DataError(f"{data}: no such folder or file of training texts")
    found = [one for one in SOURCES if all((data / name).is_file() for name in one.files)]
    if not found:
        top = data.parent if data.is_file() else data
        files = [data] if data.is_file() else sorted(p for p in data.rglob("*") if p.is_file())
        found = [
            CorpusSource(
                file.relative_to(top).as_posix(), (str(file.absolute()),), 1.0, read_file, GROUP
            )
            for file in files
            if file.name.endswith(SUFFIXES)
        ]
    if not found:
        raise DataError(
            f"{data}: none of the known sources, and no file ending in {', '.join(SUFFIXES)}"
        )
    return found


def read_texts(data: Path) -> tuple[Texts, dict[str, float]]:
    """Documents by source, and the weight of each source.

    Args:
        data: A folder with the demonstration models' sources, as many as there are; else a folder of text files, or one file: `.txt`, or
            `.jsonl` whose records have `text` or `messages`. Either may be gzipped.

    Raises:
        DataError: There is no text, a file cannot be read, or nothing is held out of so few.
    """
    found = sources_in(data)
    texts = {source.name: load(data, source) for source in found}
    # A file of one text is all held out, or not at all.
    if not all(any(part) for part in zip(*texts.values(), strict=True)):
        raise DataError(f"{data}: too few texts to hold any out; give some hundreds")
    return texts, {source.name: source.weight for source in found}


def read_file(path: Path) -> Iterator[Document]:
    """Documents of a file, see `read_texts`; a record of blanks is none."""
    if path.name.removesuffix(".gz").endswith(".jsonl"):
        for number, record in enumerate(read_records(path)):
            messages = record.get("messages")
            if isinstance(messages, list):
                turns = _turns(messages, f"{path}: record {number}")
                if any(turn.content.strip() for turn in turns):
                    words = "\0".join(part for turn in turns for part in (turn.role, turn.content))
                    yield Document(words, messages=turns, place=f"{path.name}/{number}")
            elif isinstance(text := record.get("text"), str):
                if text.strip():
                    yield Document(text, text=text)
            else:
                raise DataError(f"{path}: record {number} has neither text nor messages")
        return
    paragraphs: list[str] = []
    lines: list[str] = []
    for line in [*read_lines(path), ""]:
        if line.strip():
            lines.append(line)
        elif lines:
            paragraphs.append("\n".join(lines))
            lines = []
    for at in range(0, len(paragraphs), PARAGRAPHS):
        text = "\n\n".join(paragraphs[at : at + PARAGRAPHS])
        yield Document(text, text=text)


def _turns(messages: list[object], where: str) -> tuple[ChatTurn, ...]:
    """Messages of a record, each with a role and content."""
    turns: list[ChatTurn] = []
    for message in messages:
        told = message if isinstance(message, dict) else {}
        role, content = told.get("role"), told.get("content")
        if not isinstance(role, str) or not isinstance(content, str):
            raise DataError(f"{where}: a message has no role, or no content that is text")
        turns.append(ChatTurn(role, content))
    return tuple(turns)


def encode(
    tokenizer: PreTrainedTokenizerFast, documents: Sequence[Document]
) -> list[NDArray[np.integer]]:
    """Token ids of documents, with the marks that the model expects around them.

    Raises:
        DataError: Messages that the model's chat template refuses.
    """
    if set(SPECIAL) <= tokenizer.get_vocab().keys():
        return list(encode_documents(tokenizer, documents))
    pieces: list[NDArray[np.integer]] = []
    for document in documents:
        text = document.text or "\n".join(turn.content for turn in document.messages)
        if document.messages and tokenizer.chat_template:
            messages = [{"role": turn.role, "content": turn.content} for turn in document.messages]
            try:
                text = str(tokenizer.apply_chat_template(messages, tokenize=False))
            except TemplateError as error:
                raise DataError(
                    f"{document.place}: the chat template refuses it: {error}"
                ) from error
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        else:
            ids = tokenizer(text)["input_ids"]
        pieces.append(np.array(ids, np.int32))
    return pieces


class TextRows:
    """Rows of tokens cut from texts: those to train on, and prompts that were held out."""

    def __init__(self, data: Path, tokenizer: PreTrainedTokenizerFast) -> None:
        """Reads the texts.

        Raises:
            DataError: There is none, or nothing is held out of so few.
        """
        texts, self._weights = read_texts(data)
        train = {name: encode(tokenizer, train) for name, (train, _) in texts.items() if train}
        self._train = train
        held = {name: encode(tokenizer, held) for name, (_, held) in texts.items() if held}
        self._held = held
        self._begin = tokenizer.get_vocab().get(BEGIN, tokenizer.bos_token_id)

    @cached_property
    def digest(self) -> int:
        """Of every token, and of what is held out, see `texts_digest`."""
        return texts_digest(self._train, self._held, weights=self._weights)

    def train(self, num_rows: int, length: int, seed: int) -> Int32s:
        """Rows [num_rows, length], end to end from a mixture of the sources."""
        stream = mix_stream(self._train, self._weights, num_rows * length, seed)  # type: ignore[arg-type]
        return stream.astype(np.int32).reshape(num_rows, length)

    def prompts(self, num_rows: int, length: int, seed: int) -> Int32s:
        """Beginnings and other pieces of the training texts [num_rows, length], by turns."""
        stream = self.train(4 * num_rows, length, seed).reshape(-1)
        chooser = np.random.default_rng(seed)
        starts = chooser.integers(0, len(stream) - length, num_rows)
        openings = np.flatnonzero(stream[: len(stream) - length] == self._begin)
        if self._begin is not None and len(openings):
            starts[::2] = chooser.choice(openings, len(starts[::2]))
        return np.stack([stream[start : start + length] for start in starts])

    def held_out(self, num_rows: int, length: int) -> Int32s:
        """Rows [at most num_rows, length] of texts that are not trained on, about as many of each source."""
        rows: list[NDArray[np.integer]] = []
        each = -(-num_rows // len(self._held))
        for pieces in self._held.values():
            joined = np.concatenate(pieces)
            joined = np.tile(joined, length // len(joined) + 1)
            rows += [joined[at : at + length] for at in range(0, len(joined) - length + 1, length)][
                :each
            ]
        return np.stack(rows[:num_rows]).astype(np.int32)
