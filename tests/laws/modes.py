"""Every way of verifying that a request can ask for, with a tree for each."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.actors.engine.tables.tabular_engine import random_table
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.options import Speculation
from outrider.actors.speculation.trees.level_shapes import parse

VOCAB = 3
PROMPT = (1, 2, 0)
TARGET = random_table(VOCAB, 2, seed=11)
DRAFTS = {
    "near": random_table(VOCAB, 2, seed=12),
    "far": random_table(VOCAB, 2, seed=13),
}
"""Drafters that know nothing of the target, nor of each other: half of what they propose is rejected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """A verifier with the trees that it gets."""

    verifier: str
    shape: str | None = None
    """K-configuration of each drafter's tree; None where the drafter grows it as it likes."""

    drafters: tuple[str, ...] = ("near",)
    """Who drafts, each a tree of its own."""

    def __str__(self) -> str:
        """For the names of tests."""
        return f"{self.verifier}-{self.shape}-{'+'.join(self.drafters)}"

    @property
    def speculation(self) -> Speculation:
        """The options that ask for it."""
        shape = None if self.shape is None else parse(self.shape)
        return Speculation(verifier=self.verifier, tree_shape=shape, max_nodes=16)

    @property
    def depth(self) -> int | None:
        """Of every leaf."""
        return None if self.shape is None else parse(self.shape).depth


CHAIN, TREE, LATE, PATHS = "1,1,1", "2,2,2", "1,2,2", "3,1,1"
"""All three deep, as the default trees: an error at a node below the second level shows nowhere else."""
BOTH = tuple(DRAFTS)

_CHOSEN = (
    Mode(verifier="coupled"),
    Mode(verifier="coupled", drafters=BOTH),
    Mode(verifier="exact_match"),
    Mode(verifier="speculative_sampling", shape=CHAIN),
    Mode(verifier="block", shape=CHAIN),
    Mode(verifier="mcsd_with_replacement", shape=LATE),
    Mode(verifier="mcsd_without_replacement", shape=TREE),
    Mode(verifier="specinfer", shape=PATHS),
    Mode(verifier="specinfer", shape="1,1", drafters=BOTH),
    Mode(verifier="kseq", shape=LATE),
    Mode(verifier="canonical", shape=PATHS),
    Mode(verifier="canonical", shape="1,1", drafters=BOTH),
    Mode(verifier="traversal", shape=TREE),
    Mode(verifier="traversal_with_replacement", shape=TREE),
)
"""Modes that were chosen because a mistake would show in them."""


def _usual(verifier: str) -> tuple[Mode, ...]:
    """The modes of a verifier for which none was chosen."""
    spec = VERIFIERS[verifier]
    if not spec.needs_frozen_tree:
        return (Mode(verifier=verifier),)
    one = Mode(verifier=verifier, shape=CHAIN if spec.is_chain_only else TREE)
    return (
        (one, Mode(verifier=verifier, shape="1,1", drafters=BOTH))
        if spec.mixes_drafters
        else (one,)
    )


MODES = (
    *_CHOSEN,
    *(
        mode
        for verifier, spec in VERIFIERS.items()
        if spec.is_lossless and verifier not in {mode.verifier for mode in _CHOSEN}
        for mode in _usual(verifier)
    ),
)
"""At least one for every lossless verifier of the registry."""
