"""What a model must offer to be decoded: slots of keys and values, and ragged batches of token trees.

The target worker, the drafters and the tests use engines only through this. An engine is used by one thread at a time.

A *slot* holds one session's rows of keys and values: first the *cached* rows, one for each committed token that was
run, then *scratch* rows, the nodes of a tree that hang below them. `forward` appends scratch rows; `rebase` turns a path
of scratch rows of each slot into cached rows, keeps chosen scratch rows below that path and drops the others. Rows never need to be
computed again, because a node's position is its depth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, overload

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch

Int64s = npt.NDArray[np.int64]

WANTS = ("none", "last", "all")
"""Which rows of an entry logits are wanted for; `Batch.wanted_E` has the index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """What is known about a loaded model."""

    name: str
    """The path, hub id or other name that it was loaded from."""

    vocab_size: int
    """Number of token ids, as the logits have columns."""

    max_context: int
    """Greatest number of rows of one sequence, prompt and output together; so positions are below it, a tree's too."""

    eos_token_ids: tuple[int, ...]
    """End-of-text token ids; empty if the model has none."""

    fingerprint: str
    """Hex digest of weights and configuration: equal fingerprints mean the same model."""

    dtype: torch.dtype
    """Type of weights and cache. Logits are float32 always."""

    device: torch.device
    """Where the model runs."""

    emulated: str = ""
    """Name of the profile that tells how long passes take, if the device is emulated: every figure is then emulated too."""

    num_blocks: int = 0
    """Blocks of the model; 0: it gives no hidden states."""

    width: int = 0
    """Numbers of a hidden state; 0: it gives none."""

    is_recorded: bool = True
    """Where its device can record work and repeat it, that is done: `EngineSettings.cuda_graphs` is not `off`."""

    @property
    def runs_beside(self) -> bool:
        """Whether `Engine.forward` returns while its pass runs: the device works beside the host."""
        return self.device.type != "cpu" or bool(self.emulated)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Tokens of one slot to run in a batch, in topological order."""

    slot: int
    """The slot."""

    tokens: Sequence[int]
    """Token ids, at least one."""

    parents: Sequence[int]
    """Parent of each token: an index into the slot's scratch rows (those there before this call, then these, in order),
    or -1 for a child of the last cached row. `parents[i] < scratch + i`."""

    logits: Literal["all", "last", "none"] = "all"
    """Which of these rows logits are wanted for."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Taps:
    """Hidden states that a pass is to give beside logits."""

    layers: tuple[int, ...]
    """Ascending. 0: the output of the embedding; b: the residual stream after b blocks, before any norm; one more than the model has
    blocks: what comes out of the final norm."""

    rows_K: Int64s
    """Rows of the batch whose states are wanted, ascending."""


class Batch(Sequence[Rows]):
    """The rows of one pass as parallel arrays: entry e has rows `starts_E[e]` to `starts_E[e + 1]`.

    A sequence of `Rows` as well, for engines that go through it entry by entry.
    """

    __slots__ = ("_offsets", "parents_R", "slots_E", "starts_E", "taps", "tokens_R", "wanted_E")

    def __init__(
        self,
        *,
        slots_E: Int64s,
        starts_E: Int64s,
        tokens_R: Int64s,
        parents_R: Int64s,
        wanted_E: Int64s,
    ) -> None:
        """Takes the arrays as they are.

        Args:
            slots_E: Slot of each entry; none twice.
            starts_E: Its first row; one number more than there are entries.
            tokens_R: Token ids.
            parents_R: As `Rows.parents`.
            wanted_E: Index into `WANTS`.
        """
        self.slots_E = slots_E
        self.starts_E = starts_E
        self.tokens_R = tokens_R
        self.parents_R = parents_R
        self.wanted_E = wanted_E
        self._offsets: tuple[int, ...] | None = None
        self.taps: Taps | None = None
        """Hidden states that are wanted; None, the usual case: none, and they cost nothing."""

    @classmethod
    def of(cls, entries: Iterable[Rows]) -> Batch:
        """The arrays of some entries."""
        every = list(entries)
        sizes = [len(rows.tokens) for rows in every]
        return cls(
            slots_E=np.array([rows.slot for rows in every], np.int64),
            starts_E=np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))),
            tokens_R=np.array([t for rows in every for t in rows.tokens], np.int64),
            parents_R=np.array([p for rows in every for p in rows.parents], np.int64),
            wanted_E=np.array([WANTS.index(rows.logits) for rows in every], np.int64),
        )

    @property
    def num_rows(self) -> int:
        """Rows in all."""
        return len(self.tokens_R)

    @property
    def offsets(self) -> tuple[int, ...]:
        """`Logits.offsets` of a pass over this."""
        if self._offsets is None:
            sizes_E = self.starts_E[1:] - self.starts_E[:-1]
            counts_E = np.where(self.wanted_E == 2, sizes_E, self.wanted_E)
            self._offsets = (0, *counts_E.cumsum().tolist())
        return self._offsets

    def __len__(self) -> int:
        return len(self.slots_E)

    @overload
    def __getitem__(self, index: int) -> Rows: ...

    @overload
    def __getitem__(self, index: slice) -> list[Rows]: ...

    def __getitem__(self, index: int | slice) -> Rows | list[Rows]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        entry = index % len(self)
        rows = slice(int(self.starts_E[entry]), int(self.starts_E[entry + 1]))
        return Rows(
            slot=int(self.slots_E[entry]),
            tokens=self.tokens_R[rows].tolist(),
            parents=self.parents_R[rows].tolist(),
            logits=WANTS[int(self.wanted_E[entry])],  # type: ignore[arg-type]  # one of the three literals
        )


class Moves(Iterable[tuple[int, list[int], list[int]]]):
    """What becomes of the scratch rows of some slots: a path of each becomes cached rows, others stay, the rest is dropped. As parallel arrays; goes
    through it entry by entry as (slot, path, kept rows)."""

    __slots__ = ("keeps_EK", "paths_EP", "slots_E")

    def __init__(
        self, *, slots_E: Int64s, paths_EP: Int64s, keeps_EK: Int64s | None = None
    ) -> None:
        """Takes the arrays as they are.

        Args:
            slots_E: Slots, none twice.
            paths_EP: Scratch rows to append to the cached rows, each the child of the one before; the first a child of the last cached row.
                Filled up with -1 behind the last.
            keeps_EK: Scratch rows, ascending, that stay scratch: each the child of the path's end (of the last cached row, if the path is
                empty) or of another kept row. They are renumbered 0, 1, ... in this order. Filled up as the paths; None: no slot keeps any.
        """
        self.slots_E = slots_E
        self.paths_EP = paths_EP
        self.keeps_EK = np.empty((len(slots_E), 0), np.int64) if keeps_EK is None else keeps_EK

    @classmethod
    def of(cls, entries: Sequence[tuple[int, Sequence[int], Sequence[int]]]) -> Moves:
        """The arrays of some entries.

        Raises:
            ValueError: A row is negative.
        """
        slots, paths, keeps = zip(*entries, strict=True)
        return cls(
            slots_E=np.array(slots, np.int64),
            paths_EP=_filled_up(slots, paths),
            keeps_EK=_filled_up(slots, keeps),
        )

    @classmethod
    def one(cls, slot: int, path: Sequence[int], keep: Sequence[int] = ()) -> Moves:
        """Those of one slot. Raises as `of`."""
        return cls.of([(slot, path, keep)])

    @classmethod
    def read(cls, slots_E: Int64s, counts_E: Int64s) -> Moves:
        """The first scratch rows of some slots, one after another, become cached: a text was read."""
        rows_P = np.arange(int(counts_E.max(initial=0)))
        return cls(slots_E=slots_E, paths_EP=np.where(rows_P < counts_E[:, None], rows_P, -1))

    def __iter__(self) -> Iterator[tuple[int, list[int], list[int]]]:
        for slot, path, keep in zip(
            self.slots_E.tolist(), self.paths_EP.tolist(), self.keeps_EK.tolist(), strict=True
        ):
            yield slot, [row for row in path if row >= 0], [row for row in keep if row >= 0]


def _filled_up(slots: Sequence[int], rows: Sequence[Sequence[int]]) -> Int64s:
    """Rows of each slot as one array, filled up with -1."""
    filled = np.full((len(rows), max(map(len, rows), default=0)), -1, np.int64)
    for entry, (slot, own) in enumerate(zip(slots, rows, strict=True)):
        if any(row < 0 for row in own):
            raise ValueError(f"slot {slot}: rows {list(own)}; scratch rows are numbered from 0")
        filled[entry, : len(own)] = own
    return filled


def _over() -> None:
    """It is."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Logits:
    """Logits of a batch."""

    values_RV: torch.Tensor
    """float32, on the engine's device; the wanted rows of all entries, one entry after another."""

    offsets: tuple[int, ...]
    """Entry i has rows offsets[i] to offsets[i+1]; one more than there are entries."""

    hidden_KLD: torch.Tensor | None = None
    """The hidden states that `Batch.taps` asked for, in the model's type, on the engine's device, never written again: a row, a layer
    and `ModelSpec.width` numbers each. None: nobody asked, or this pass could not give them, which is no error."""

    recording_s: float = 0.0
    """Seconds of the call in which the pass was recorded for those that come: what a pass takes cannot be learned from it."""

    wait: Callable[[], None] = _over
    """Returns when the pass is over. Reading the values waits for a device that is there; of an emulated one they are there before, and
    whoever makes use of them calls this first."""

    def of(self, entry: int) -> torch.Tensor:
        """Logits of one entry. Shape (wanted rows, V)."""
        return self.values_RV[self.offsets[entry] : self.offsets[entry + 1]]


class NoFreeSlot(RuntimeError):
    """Every slot is taken: admit fewer sessions, or configure more."""


class SlotOverflow(RuntimeError):
    """Rows do not fit behind the cached ones: there are more scratch rows than `max_scratch`, or one of them lies at a
    position that is not below `max_context`."""


class Engine(Protocol):
    """A model that runs ragged batches of token trees over slots."""

    @property
    def spec(self) -> ModelSpec:
        """What is known about the model."""
        ...

    @property
    def num_slots(self) -> int:
        """Number of slots, free or taken."""
        ...

    @property
    def num_free(self) -> int:
        """Number of free slots."""
        ...

    @property
    def max_scratch(self) -> int:
        """Greatest number of scratch rows of a slot, anywhere in the context; bounds prompt chunks and trees."""
        ...

    def acquire(self, slot: int | None = None, *, keep: int = 0) -> int:
        """Takes a free slot.

        Args:
            slot: Which; None: the lowest.
            keep: So many of the rows that were kept when it was released are its cached rows; the others are forgotten.

        Raises:
            NoFreeSlot: Every slot is taken.
            ValueError: This slot is not free, or fewer rows were kept.
        """
        ...

    def release(self, slot: int, *, keep: int = 0) -> None:
        """Frees a slot. The first `keep` cached rows stay until it is acquired, for `acquire` and `copy_prefix`.

        Raises:
            ValueError: The slot is not taken, or has fewer cached rows.
        """
        ...

    def cached(self, slot: int) -> int:
        """Number of cached rows."""
        ...

    def scratch(self, slot: int) -> int:
        """Number of scratch rows."""
        ...

    def forward(self, batch: Sequence[Rows]) -> Logits:
        """Runs one batch; each slot occurs at most once. The rows become scratch rows. May return before the pass is over: `Logits.wait`.

        Raises:
            SlotOverflow: A slot's rows do not fit. Nothing was run.
            ValueError: A token id or a parent is out of range, a slot is free or occurs twice, or the batch or an entry is
                empty. Nothing was run.
        """
        ...

    def rebase(self, moves: Moves) -> None:
        """Commits a path of scratch rows of each slot and keeps others below it. No slot, no work.

        Raises:
            ValueError: A path is none from the last cached row, kept rows are not ascending, not below it or lack the parent of one, or a slot is
                not taken or occurs twice. Nothing was changed.
        """
        ...

    def copy_prefix(self, source: int, destination: int, length: int) -> None:
        """Copies the first `length` cached rows of a slot, or kept rows of a free one, to a taken slot that is empty.

        Raises:
            ValueError: The source has fewer rows, or the destination is not empty.
        """
        ...

    def truncate(self, slot: int, length: int) -> None:
        """Drops the scratch rows, and the cached rows from `length` on.

        Raises:
            ValueError: `length` is more than there are.
        """
        ...
