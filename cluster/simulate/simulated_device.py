"""Models on devices that are not there: a law for the tokens, a profile for the time, both of which a scenario may change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from outrider.actors.engine.engine_settings import LAW_PREFIX, EngineSettings
from outrider.actors.engine.kv.added_rows import packed
from outrider.actors.engine.profiles import Profile, find_profile
from outrider.actors.engine.protocol import Logits, Rows
from outrider.actors.engine.tables.emulated_engine import EmulatedEngine
from outrider.actors.engine.tables.token_table import Table, load_table
from outrider.actors.engine.tables.trigram_laws import law_table

TABULAR = "tabular:"

MAX_CONTEXT = 8192
"""Tokens that a slot holds."""


def table_of(model: str) -> Table:
    """The table of `law:NAME` or `tabular:FILE`.

    Raises:
        ValueError: There is none.
    """
    if model.startswith(LAW_PREFIX):
        return law_table(model.removeprefix(LAW_PREFIX))
    if model.startswith(TABULAR):
        return load_table(Path(model.removeprefix(TABULAR)))
    raise ValueError(f"{model!r} is no law: give {LAW_PREFIX}NAME or {TABULAR}FILE")


@dataclass(slots=True)
class Paced:
    """A profile at another pace."""

    profile: Profile
    factor: float = 1.0
    """Of every pass's time; 2 is half as fast."""

    @property
    def name(self) -> str:
        """See `Profile`."""
        return self.profile.name

    @property
    def origin(self) -> str:
        """See `Profile`."""
        return self.profile.origin

    def seconds(self, *, rows: int, sessions: int, context: int) -> float:
        """See `Profile`."""
        return self.factor * self.profile.seconds(rows=rows, sessions=sessions, context=context)


class SimulatedDevice(EmulatedEngine):
    """An engine whose pace and law can change while it runs."""

    def __init__(self, model: str, profile: str, settings: EngineSettings) -> None:
        """
        Args:
            model: `law:NAME` or `tabular:FILE`.
            profile: Name of a profile.
            settings: Numbers of slots and rows.

        Raises:
            ValueError: There is no such law or profile.
        """
        self.pace = Paced(find_profile(profile))
        super().__init__(table_of(model), self.pace, settings)
        self._own = self.table, self._laws_PV
        self.pass_s = 0.0
        """Seconds of passes so far."""
        self.last_pass_s = 0.0
        self.num_passes = 0

    def mislead(self, model: str | None, *, is_over: bool = False) -> None:
        """Follows another law of as many tokens from now on.

        Args:
            model: `law:NAME` or `tabular:FILE`; None: its own with the tokens in another order, which agrees with nothing.
            is_over: Back to its own.
        """
        self.table, self._laws_PV = self._own
        if is_over:
            return
        if model is None:
            generator = torch.Generator().manual_seed(1)
            order_V = torch.randperm(self._laws_PV.shape[-1], generator=generator).numpy()
            self._laws_PV = self._laws_PV[:, order_V]
        else:
            self.table = table = table_of(model)
            self._laws_PV = table.log_probs.reshape(-1, table.vocab_size).astype(np.float32)

    def forward(self, batch: Sequence[Rows]) -> Logits:
        """See `Engine`. Returns at once and counts what the pass would have taken."""
        arrays = packed(batch)
        logits = self.compute(arrays)
        self.last_pass_s = self.seconds_of(arrays)
        self.pass_s += self.last_pass_s
        self.num_passes += 1
        return logits

    def busy_s(self, now: float, pass_ends: float) -> float:
        """Seconds of passes until now, without what is left of a last one that ends later."""
        return self.pass_s - min(self.last_pass_s, max(pass_ends - now, 0.0))

    def clock(self) -> float:
        """Seconds that go by only while passes run: for measurements of passes at the start."""
        return self.pass_s
