"""The description of a format of draft checkpoints: how a folder of it is told, and what it holds in the terms of our own nets.

Pure: names, shapes and numbers of a configuration go in and out, and no weights. Nothing is converted on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any


class UnfitCheckpoint(ValueError):
    """A checkpoint that is told, and cannot be run or does not fit its target; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What lies in a folder, weights aside."""

    config: Mapping[str, Any]
    """The content of its `config.json`."""

    read_shapes: Callable[[], Mapping[str, tuple[int, ...]]]
    """Tells the names and shapes of its tensors."""

    @cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shapes of its tensors by name, read when they are first asked for: a format looks at the configuration first."""
        return self.read_shapes()

    @property
    def architectures(self) -> tuple[str, ...]:
        """What its configuration says it is."""
        named = self.config.get("architectures") or ()
        named = [named] if isinstance(named, str) else named
        return tuple(map(str, named)) if isinstance(named, list | tuple) else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetShape:
    """What a checkpoint has to fit."""

    name: str
    """As the configuration names the model."""

    vocab_size: int
    """Rows of its table of tokens."""

    width: int
    """Numbers of a hidden state."""

    num_blocks: int
    """Its blocks."""

    eos_token_ids: tuple[int, ...] = ()
    """Its end-of-text tokens."""

    embedding_scale: float = 1.0
    """What its own model multiplies rows of its table of tokens by when it looks them up."""


@dataclass(frozen=True, kw_only=True)
class Translation:
    """A checkpoint in the terms of one of our nets."""

    config: Mapping[str, Any]
    """As that net's own `config.json`; its `model_type` names the method (`DrafterSpec.model_types`)."""

    tensors: Mapping[str, str]
    """The name in the file of each tensor of the net, by our name."""

    embedding: str = ""
    """The name of a table of tokens [V, D] in the file; empty: the target's is used."""

    head: str = ""
    """The name of an output layer [V or draft ids, D] in the file; empty: the target's is used."""

    draft_ids: str = ""
    """The name of the table that says which of the target's ids the rows of a reduced head are; empty: all, in order."""

    has_absolute_ids: bool = False
    """Whether the table has these ids; else it has what is to be added to the number of the row."""

    draft_mask: str = ""
    """The name of the mask of these ids over the target's [V], which is compared with the table; empty: there is none."""

    ignored: Mapping[str, str] = field(default_factory=dict)
    """Names of tensors that are left aside, and why."""

    repeated: Mapping[str, str] = field(default_factory=dict)
    """Names of tied tensors that may be stored again, and of the one that is read. They are compared when weights are read."""

    notes: tuple[str, ...] = ()
    """What the files do not say and was taken for granted, for the log."""

    @property
    def names(self) -> frozenset[str]:
        """Names of all tensors that are read."""
        tables = (self.embedding, self.head, self.draft_ids, self.draft_mask)
        return frozenset((*self.tensors.values(), *filter(None, tables)))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFormat:
    """A format. A module of `draft/formats`, or a package's entry point, offers it by a tuple `SPECS`."""

    name: str
    """Unique: lower case, words joined by underscores."""

    title: str
    """For messages: whose format of what."""

    told_by: str
    """How a folder of it is told, for the table of formats."""

    model_type: str
    """`model_type` of our own net that it becomes, which names the method (`DrafterSpec.model_types`)."""

    recognises: Callable[[Checkpoint], bool]
    """Whether a folder is of this format."""

    translate: Callable[[Checkpoint, TargetShape | None], Translation]
    """What it is for us; the target's shape is None where it is not known. Raises UnfitCheckpoint with the reason."""
