"""Packing documents into one endless, repeatable stream of tokens.

The stream is a function of (documents, weights, seed) alone and a longer stream begins with every
shorter one, so the batch of step s is fixed: resuming needs the step number and nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from outrider.actors.train.training_errors import DataError

Tokens = npt.NDArray[np.uint16]


def texts_digest(
    *kinds: Mapping[str, Sequence[npt.NDArray[np.integer]]], weights: Mapping[str, float]
) -> int:
    """Of every token of some texts, 63 bits: progress on other texts is another run's.

    Args:
        kinds: token arrays [length] of every source, of texts of each kind.
        weights: relative share of tokens of every source.
    """
    digest = hashlib.blake2b(digest_size=8)
    for documents in kinds:
        for name, pieces in documents.items():
            digest.update(f"{name}\0{weights[name]} {len(pieces)}\0".encode())
            for piece in pieces:
                digest.update(f"{len(piece)} ".encode())
                digest.update(piece.astype(np.int32).tobytes())
    return int.from_bytes(digest.digest(), "big") >> 1


def mix_stream(
    documents: Mapping[str, Sequence[Tokens]],
    weights: Mapping[str, float],
    num_tokens: int,
    seed: int,
) -> Tokens:
    """Interleave the sources by their token shares, reshuffling each when it runs out.

    The source furthest behind its share gives the next document, so that every stretch of the
    stream holds the same mixture whatever the sources' sizes.

    Args:
        documents: token arrays [length] of every source.
        weights: relative share of tokens of every source.
        num_tokens: length of the stream.
        seed: of the shuffles.

    Returns:
        stream [num_tokens].

    Raises:
        DataError: a source has no tokens.
    """
    for name, pieces in documents.items():
        if not any(len(piece) for piece in pieces):
            raise DataError(f"source {name}: nothing to train on; restore its files")
    given = dict.fromkeys(documents, 0)
    epochs = dict.fromkeys(documents, 0)
    orders: dict[str, list[int]] = {name: [] for name in documents}
    parts: list[Tokens] = []
    total = 0
    while total < num_tokens:
        name = min(documents, key=lambda source: given[source] / weights[source])
        if not orders[name]:
            position = sorted(documents).index(name)
            generator = np.random.default_rng([seed, position, epochs[name]])
            orders[name] = generator.permutation(len(documents[name])).tolist()
            epochs[name] += 1
        piece = documents[name][orders[name].pop()]
        parts.append(piece)
        given[name] += len(piece)
        total += len(piece)
    return np.concatenate(parts)[:num_tokens] if parts else np.zeros(0, dtype=np.uint16)


def rows_of_step(stream: Tokens, step: int, tokens_per_step: int, row_length: int) -> Tokens:
    """The batch of a step: rows [tokens_per_step // row_length, row_length].

    The place in the stream depends on `step` only, not on the row lengths of other steps.
    """
    start = step * tokens_per_step
    if start + tokens_per_step > len(stream):
        raise DataError(
            f"step {step} needs tokens up to {start + tokens_per_step} but the stream holds "
            f"{len(stream)}; lengthen it"
        )
    rows = tokens_per_step // row_length
    return stream[start : start + rows * row_length].reshape(rows, row_length)


def pack_rows(documents: Sequence[Tokens], row_length: int, limit: int) -> Tokens:
    """Documents end to end, cut into at most `limit` whole rows [rows, row_length].

    A text shorter than a row is repeated until it fills one.
    """
    joined = np.concatenate(documents)
    if len(joined) < row_length:
        joined = np.tile(joined, row_length // len(joined) + 1)
    rows = min(limit, len(joined) // row_length)
    return joined[: rows * row_length].reshape(rows, row_length)
