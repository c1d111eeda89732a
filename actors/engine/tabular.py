"""A model that is a table: the distribution of a token depends on the last few tokens, by looking it up.

Exact, instant and small, it stands for a real model wherever only the distributions matter: tests that compare frequencies with
known probabilities, benchmarks of everything but the arithmetic, demonstrations without weights. It keeps the same books as a
real engine (`slots.SlotTable`), so it refuses what a real one refuses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from outrider.actors.engine.protocol import Logits, ModelSpec, Rows
from outrider.actors.engine.settings import EngineSettings
from outrider.actors.engine.sizing import USUAL_SLOTS
from outrider.actors.engine.slot import Growth
from outrider.actors.engine.slots import SlotTable

MAX_ORDER = 2
"""Most tokens that a distribution depends on; beyond, tables outgrow memory."""

DEFAULT_MAX_CONTEXT = 4096
"""Rows of a sequence when the settings do not say: a table has no bound of its own."""

START_TOKEN = 0
"""Stands before the first token of a text where the table looks further back."""


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
        shape, vocab_size = self.log_probs.shape, self.log_probs.shape[-1]
        if not 1 <= len(shape) <= MAX_ORDER + 1 or set(shape) != {vocab_size}:
            raise ValueError(
                f"log_probs has shape {shape}; it must have 1 to {MAX_ORDER + 1} equal axes"
            )
        if self.log_probs.dtype not in (np.float32, np.float64):
            raise ValueError(f"log_probs is {self.log_probs.dtype}; it must be float32 or float64")
        sums = np.exp(self.log_probs.astype(np.float64)).sum(axis=-1)
        if not np.allclose(sums, 1.0, rtol=0.0, atol=1e-4):
            raise ValueError(
                f"probabilities sum to {sums.min():.6f} .. {sums.max():.6f}; normalise each row of log_probs"
            )
        for token in self.eos_token_ids:
            if not 0 <= token < vocab_size:
                raise ValueError(f"eos_token_ids has {token}, outside a vocabulary of {vocab_size}")

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
        with np.load(file, allow_pickle=False) as arrays:
            log_probs = arrays["log_probs"]
            eos = tuple(int(token) for token in arrays["eos_token_ids"])
    except (OSError, ValueError, KeyError, EOFError) as error:
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


class TabularEngine:
    """A table behind the engine interface."""

    def __init__(self, table: Table, settings: EngineSettings | None = None):
        """Gives a table slots.

        Args:
            table: The distributions.
            settings: Numbers of slots and rows; the rest is not read.

        Raises:
            ValueError: A number is less than one.
        """
        settings = settings or EngineSettings(model=table.name)
        self.table = table
        max_context = DEFAULT_MAX_CONTEXT if settings.max_context is None else settings.max_context
        self._spec = ModelSpec(
            name=table.name,
            vocab_size=table.vocab_size,
            max_context=max_context,
            eos_token_ids=table.eos_token_ids,
            fingerprint=table.fingerprint,
            dtype=torch.from_numpy(table.log_probs[..., :0]).dtype,
            device=torch.device("cpu"),
        )
        self._rows = torch.from_numpy(
            table.log_probs.reshape(-1, table.vocab_size).astype(np.float32)
        )
        num_slots = USUAL_SLOTS if settings.num_slots is None else settings.num_slots
        self._books = SlotTable(
            num_slots=num_slots,
            max_context=max_context,
            max_scratch=settings.max_scratch,
            vocab_size=table.vocab_size,
            keeps_masks=False,
        )
        self._cached: list[list[int]] = [[] for _ in range(num_slots)]
        self._scratch: list[list[int]] = [[] for _ in range(num_slots)]

    @property
    def spec(self) -> ModelSpec:
        """See `Engine`."""
        return self._spec

    @property
    def num_slots(self) -> int:
        """See `Engine`."""
        return self._books.num_slots

    @property
    def num_free(self) -> int:
        """See `Engine`."""
        return self._books.num_free

    @property
    def max_scratch(self) -> int:
        """See `Engine`."""
        return self._books.max_scratch

    def acquire(self, slot: int | None = None, *, keep: int = 0) -> int:
        """See `Engine`."""
        slot = self._books.acquire(slot, keep=keep)
        del self._cached[slot][keep:]
        self._scratch[slot] = []
        return slot

    def release(self, slot: int, *, keep: int = 0) -> None:
        """See `Engine`."""
        self._books.release(slot, keep=keep)

    def cached(self, slot: int) -> int:
        """See `Engine`."""
        return self._books.taken(slot).cached

    def scratch(self, slot: int) -> int:
        """See `Engine`."""
        return len(self._books.taken(slot).parents)

    def forward(self, batch: Sequence[Rows]) -> Logits:
        """See `Engine`."""
        growths = self._books.check(batch)
        offsets = [0]
        places: list[int] = []
        for rows, growth in zip(batch, growths, strict=True):
            self._scratch[growth.slot].extend(int(token) for token in growth.tokens)
            self._books.grow(growth)
            num_rows = len(growth.parents)
            first = {"all": 0, "last": num_rows - 1, "none": num_rows}[rows.logits]
            places += [self._place(growth, row) for row in range(first, num_rows)]
            offsets.append(len(places))
        wanted = torch.tensor(places, dtype=torch.int64)
        return Logits(values_RV=self._rows[wanted], offsets=tuple(offsets))

    def _place(self, growth: Growth, row: int) -> int:
        """Row of the table for a new row."""
        cached, scratch = self._cached[growth.slot], self._scratch[growth.slot]
        parents = self._books.taken(growth.slot).parents
        place, node, back = 0, growth.scratch + row, len(cached) - 1
        for digit in range(self.table.order):
            if node >= 0:
                token, node = scratch[node], parents[node]
            elif back >= 0:
                token, back = cached[back], back - 1
            else:
                token = START_TOKEN
            place += token * self.table.vocab_size**digit
        return place

    def rebase(self, slot: int, path: Sequence[int], keep: Sequence[int] = ()) -> None:
        """See `Engine`."""
        rows = self._books.rebase(slot, path, keep)
        tokens = [self._scratch[slot][row] for row in rows]
        self._cached[slot] += tokens[: len(path)]
        self._scratch[slot] = tokens[len(path) :]

    def copy_prefix(self, source: int, destination: int, length: int) -> None:
        """See `Engine`."""
        self._books.copy_prefix(source, destination, length)
        self._cached[destination] = self._cached[source][:length]

    def truncate(self, slot: int, length: int) -> None:
        """See `Engine`."""
        self._books.truncate(slot, length)
        del self._cached[slot][length:]
        self._scratch[slot] = []
