"""Distributions of the next token, by looking up the last few tokens."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from outrider.actors.engine.tables.token_slots import START_TOKEN

MAX_ORDER = 2
"""Most tokens that a distribution depends on; beyond, tables outgrow memory."""

UNREADABLE = (
    BadZipFile,
    EOFError,
    KeyError,
    MemoryError,
    OSError,
    OverflowError,
    RuntimeError,
    TypeError,
    ValueError,
    zlib.error,
)
"""What numpy and its unpacking raise of a file that is damaged or something else."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """Distributions of the next token."""

    log_probs: npt.NDArray[np.float32] | npt.NDArray[np.float64]
    """Shape (V,) * order + (V,): the last axis is the next token, the one before it the last token, and so on. Minus
    infinity where impossible."""

    eos_token_ids: tuple[int, ...] = ()
    """End-of-text token ids."""

    name: str = "table"
    """Shown in errors and reports."""

    def __post_init__(self) -> None:
        """Checks the shape and that rows are distributions."""
        shape = self.log_probs.shape
        if not 1 <= len(shape) <= MAX_ORDER + 1 or len(set(shape)) > 1 or not shape[0]:
            raise ValueError(
                f"{self.name}: log_probs has shape {shape}; it must have 1 to {MAX_ORDER + 1} equal axes, of one token at least"
            )
        vocab_size = shape[0]
        if self.log_probs.dtype not in (np.float32, np.float64):
            raise ValueError(
                f"{self.name}: log_probs is {self.log_probs.dtype}; it must be float32 or float64"
            )
        sums = np.exp(self.log_probs.astype(np.float64)).sum(axis=-1)
        if not np.allclose(sums, 1.0, rtol=0.0, atol=1e-4):
            raise ValueError(
                f"{self.name}: probabilities sum to {sums.min():.6f} .. {sums.max():.6f}; normalise each row of log_probs"
            )
        for token in self.eos_token_ids:
            if not 0 <= token < vocab_size:
                raise ValueError(
                    f"{self.name}: eos_token_ids has {token}, outside a vocabulary of {vocab_size}"
                )

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return int(self.log_probs.shape[-1])

    @property
    def order(self) -> int:
        """Number of tokens that a distribution depends on."""
        return self.log_probs.ndim - 1

    @property
    def fingerprint(self) -> str:
        """Digest of the numbers and the end-of-text ids."""
        digest = hashlib.sha256(
            f"{self.log_probs.dtype} {self.log_probs.shape} {self.eos_token_ids}".encode()
        )
        digest.update(np.ascontiguousarray(self.log_probs).data)
        return digest.hexdigest()

    def log_probs_after(
        self, tokens: Sequence[int]
    ) -> npt.NDArray[np.float32] | npt.NDArray[np.float64]:
        """Distribution of the token after a text. Shape (V,)."""
        padded = [START_TOKEN] * self.order + list(tokens)
        row: npt.NDArray[np.float32] | npt.NDArray[np.float64]
        row = self.log_probs[tuple(padded[len(padded) - self.order :])]
        return row

    def save(self, file: Path) -> None:
        """Writes an `.npz` file, for `load_table`."""
        with file.open("wb") as stream:
            np.savez(
                stream,
                log_probs=self.log_probs,
                eos_token_ids=np.array(self.eos_token_ids, dtype=np.int64),
            )


def load_table(file: Path) -> Table:
    """Reads a table that `Table.save` wrote.

    Raises:
        ValueError: The file is not such a table.
    """
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            log_probs = arrays["log_probs"]
            eos = tuple(int(token) for token in arrays["eos_token_ids"])
    except UNREADABLE as error:
        raise ValueError(
            f"{file} is not a table of distributions: {error}; write it with Table.save"
        ) from error
    return Table(log_probs=log_probs, eos_token_ids=eos, name=f"tabular:{file}")


def random_table(
    vocab_size: int,
    order: int,
    *,
    seed: int,
    concentration: float = 1.0,
    eos_token_ids: tuple[int, ...] = (),
) -> Table:
    """Draws each distribution from a symmetric Dirichlet distribution.

    Args:
        vocab_size: Number of token ids.
        order: Tokens that a distribution depends on, 0 to 2.
        seed: Of the draw.
        concentration: Small: nearly one token; 1: all distributions alike; large: nearly uniform.
        eos_token_ids: End-of-text token ids.
    """
    if not 0 <= order <= MAX_ORDER:
        raise ValueError(f"order is {order}; it must be 0 to {MAX_ORDER}")
    if vocab_size < 1 or concentration <= 0.0:
        raise ValueError(
            f"vocab_size is {vocab_size} and concentration {concentration}; both must be positive"
        )
    generator = np.random.default_rng(seed)
    # Gamma draws of a small shape underflow; the logarithm of the boosted draw does not.
    shape = (vocab_size,) * (order + 1)
    logs = np.log(generator.standard_gamma(concentration + 1.0, shape))
    logs += np.log1p(-generator.random(shape)) / concentration
    logs -= np.logaddexp.reduce(logs, axis=-1, keepdims=True)
    return Table(log_probs=logs, eos_token_ids=eos_token_ids, name=f"random table of order {order}")
