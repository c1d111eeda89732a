"""The training text: which files, how a record becomes a document, what is held out."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from outrider.actors.train.training_errors import DataError

HELD_OUT_PER_MILLE = 10
LANGUAGES: Mapping[str, str] = {"de": "German", "fr": "French", "ja": "Japanese", "zh": "Chinese"}


@dataclass(frozen=True)
class ChatTurn:
    """One turn of a conversation."""

    role: str
    content: str


@dataclass(frozen=True)
class Document:
    """A piece of training text: a conversation, or plain text when `messages` is empty.

    By `key` it is held out, or not; `place`, if any, says in messages where it stands.
    """

    key: str
    text: str = ""
    messages: tuple[ChatTurn, ...] = ()
    place: str = ""


Reader = Callable[[Path], Iterator[Document]]


@dataclass(frozen=True)
class CorpusSource:
    """A named part of the corpus.

    `weight` is its share of the training tokens (shares are normalised over all sources);
    `files` are paths relative to the data folder. Sources of one `group` hold out the same keys, so
    that a text which is in several of them is on one side; without one each chooses by its name.
    """

    name: str
    files: tuple[str, ...]
    weight: float
    reader: Reader
    group: str = ""


def is_held_out(source: str, key: str) -> bool:
    """True for about 1 % of a source's keys; depends on nothing but the two names."""
    return coin(key, f"held out of {source}", 1000) < HELD_OUT_PER_MILLE


def coin(key: str, salt: str, sides: int) -> int:
    """A repeatable choice in [0, sides) made from a record's own text."""
    digest = hashlib.blake2b(f"{salt}\0{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % sides


def load(data_dir: Path, source: CorpusSource) -> tuple[list[Document], list[Document]]:
    """All documents of a source, in file order.

    Returns:
        (training documents, held-out documents); no key is in both.

    Raises:
        DataError: a file is missing, unreadable or yields nothing.
    """
    train: list[Document] = []
    held: list[Document] = []
    for name in source.files:
        path = data_dir / name
        before = len(train) + len(held)
        for document in source.reader(path):
            is_held = is_held_out(source.group or source.name, document.key)
            (held if is_held else train).append(document)
        if len(train) + len(held) == before:
            raise DataError(f"{path}: no records in it; restore the file from its source")
    return train, held


def check(data_dir: Path, sources: tuple[CorpusSource, ...]) -> None:
    """Raise DataError naming every file that is missing, before any work starts."""
    if not data_dir.is_dir():
        raise DataError(
            f"{data_dir}: no such data folder; pass the folder that holds openstax/ etc."
        )
    missing = [
        name for source in sources for name in source.files if not (data_dir / name).is_file()
    ]
    if missing:
        raise DataError(
            f"{data_dir}: missing {', '.join(missing)}; put the files there (their origins are in "
            "that folder's README.md) or pass another data folder"
        )


def read_lines(path: Path) -> Iterator[str]:
    """Lines of a UTF-8 text file, gzip or plain, without their line ends, and without the mark of byte order that some editors put first."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig") as handle:
            for line in handle:
                yield line.rstrip("\n")
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file; restore it or pass another data folder") from error
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise DataError(f"{path}: cannot be read ({error}); fetch the file again") from error


def read_records(path: Path, *fields: str) -> Iterator[dict[str, object]]:
    """Records of a JSON-lines file; every one must carry `fields`."""
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            # Only an escape can say half a character: the file itself is UTF-8.
            if "\\u" in line:
                json.dumps(record, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = error.object[error.start : error.end]
            raise DataError(
                f"{path}:{number}: holds {half!r}, half of a character; fetch the file again"
            ) from error
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}:{number}: not JSON ({error}); fetch the file again") from error
        if not isinstance(record, dict):
            raise DataError(f"{path}:{number}: no JSON object; fetch the file again")
        absent = [field for field in fields if field not in record]
        if absent:
            raise DataError(f"{path}:{number}: lacks {', '.join(absent)}; fetch the file again")
        yield record
