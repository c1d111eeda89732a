"""A model that is a table: the distribution of a token depends on the last few tokens, by looking it up.

Exact, instant and small, it stands for a real model wherever only the distributions matter: tests that compare frequencies with
known probabilities, benchmarks of everything but the arithmetic, demonstrations without weights. What it refuses a real engine
refuses in the same words.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.kv.added_rows import packed
from outrider.actors.engine.kv.sizing import USUAL_SLOTS
from outrider.actors.engine.protocol import Int64s, Logits, ModelSpec, Rows, Taps
from outrider.actors.engine.tables.token_slot_engine import TokenSlotEngine
from outrider.actors.engine.tables.token_table import MAX_ORDER, Table, load_table, random_table

__all__ = ["Table", "TabularEngine", "load_table", "random_table"]

DEFAULT_MAX_CONTEXT = 4096
"""Rows of a sequence when the settings do not say: a table has no bound of its own."""

NUM_BLOCKS = 4
"""Blocks that a table is said to have. Its hidden states are made such that a layer or a row taken for another shows: b everywhere after b
blocks, and after the final norm the log-probabilities of the next token, as of a model whose head is the identity."""


class TabularEngine(TokenSlotEngine):
    """A table behind the engine interface."""

    def __init__(
        self, table: Table, settings: EngineSettings | None = None, *, emulated: str = ""
    ) -> None:
        """Gives a table slots.

        Args:
            table: The distributions.
            settings: Numbers of slots and rows; the rest is not read.
            emulated: See `ModelSpec`.

        Raises:
            ValueError: A number is less than one.
        """
        settings = settings or EngineSettings(model=table.name)
        self.table = table
        max_context = DEFAULT_MAX_CONTEXT if settings.max_context is None else settings.max_context
        spec = ModelSpec(
            name=table.name,
            vocab_size=table.vocab_size,
            max_context=max_context,
            eos_token_ids=table.eos_token_ids,
            fingerprint=table.fingerprint,
            dtype=torch.from_numpy(table.log_probs[..., :0]).dtype,
            device=torch.device("cpu"),
            emulated=emulated,
            num_blocks=NUM_BLOCKS,
            width=table.vocab_size,
        )
        super().__init__(
            spec,
            num_slots=USUAL_SLOTS if settings.num_slots is None else settings.num_slots,
            max_scratch=settings.max_scratch,
        )
        self._laws_PV = table.log_probs.reshape(-1, table.vocab_size).astype(np.float32)
        # Asked for each session and round.
        self.cached_tokens = self._slots.cached_tokens
        self.rebase = self._slots.rebase

    def acquire(self, slot: int | None = None, *, keep: int = 0) -> int:
        """See `Engine`."""
        return self._slots.acquire(slot, keep=keep)

    def release(self, slot: int, *, keep: int = 0) -> None:
        """See `Engine`."""
        self._slots.release(slot, keep=keep)

    def forward(self, batch: Sequence[Rows]) -> Logits:
        """See `Engine`."""
        arrays = packed(batch)
        slots_N = self._slots.add(arrays)
        tokens_N, parents_N, offsets = arrays.tokens_R, arrays.parents_R, arrays.offsets
        hidden_KLD = None
        if arrays.taps is not None:
            hidden_KLD = self._states(arrays.taps, tokens_N, parents_N, slots_N)
        if offsets[-1] < arrays.num_rows:
            wanted_B = np.diff(offsets)
            # All but the last rows of an entry are unwanted.
            skipped_B = arrays.starts_E[1:] - offsets[1:]
            wanted_N = np.arange(offsets[-1]) + skipped_B.repeat(wanted_B)
            tokens_N, parents_N, slots_N = (
                tokens_N[wanted_N],
                parents_N[wanted_N],
                slots_N[wanted_N],
            )
        return Logits(
            values_RV=self._laws(tokens_N, parents_N, slots_N),
            offsets=offsets,
            hidden_KLD=hidden_KLD,
        )

    def _laws(self, tokens_N: Int64s, parents_N: Int64s, slots_N: Int64s) -> torch.Tensor:
        """Log-probabilities after rows that were added. Shape (N, V)."""
        places_N = tokens_N
        if self.table.order >= MAX_ORDER:
            before_N = self._slots.parent_tokens(slots_N, parents_N)
            places_N = before_N * self.table.vocab_size + tokens_N
        elif not self.table.order:
            places_N = np.zeros(len(tokens_N), np.int64)
        # Not by torch, which takes several times as long for a few rows.
        return torch.from_numpy(self._laws_PV.take(places_N, axis=0))

    def _states(
        self, taps: Taps, tokens_R: Int64s, parents_R: Int64s, slots_R: Int64s
    ) -> torch.Tensor:
        """Hidden states as `NUM_BLOCKS` says. Shape (K, L, V)."""
        rows_K = taps.rows_K
        shape = (len(rows_K), len(taps.layers), self.table.vocab_size)
        states_KLV = torch.empty(shape, dtype=torch.float32)
        for index, layer in enumerate(taps.layers):
            if layer <= NUM_BLOCKS:
                states_KLV[:, index] = layer
            else:
                states_KLV[:, index] = self._laws(
                    tokens_R[rows_K], parents_R[rows_K], slots_R[rows_K]
                )
        return states_KLV

    def copy_prefix(self, source: int, destination: int, length: int) -> None:
        """See `Engine`."""
        self._slots.copy_prefix(source, destination, length)

    def truncate(self, slot: int, length: int) -> None:
        """See `Engine`."""
        self._slots.truncate(slot, length)
