"""Every way of verifying that a request can ask for, with a tree for each."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.actors.engine.tables.tabular_engine import random_table
from outrider.actors.speculation.options import Speculation, VerifierName
from outrider.actors.speculation.trees.level_shapes import parse
from outrider.actors.speculation.verify.registry import METHODS

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

    verifier: VerifierName
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

MODES = (
    Mode(verifier=VerifierName.COUPLED),
    Mode(verifier=VerifierName.COUPLED, drafters=BOTH),
    Mode(verifier=VerifierName.EXACT_MATCH),
    Mode(verifier=VerifierName.SPECULATIVE_SAMPLING, shape=CHAIN),
    Mode(verifier=VerifierName.BLOCK, shape=CHAIN),
    Mode(verifier=VerifierName.MCSD_WITH_REPLACEMENT, shape=LATE),
    Mode(verifier=VerifierName.MCSD_WITHOUT_REPLACEMENT, shape=TREE),
    Mode(verifier=VerifierName.SPECINFER, shape=PATHS),
    Mode(verifier=VerifierName.SPECINFER, shape="1,1", drafters=BOTH),
    Mode(verifier=VerifierName.KSEQ, shape=LATE),
    Mode(verifier=VerifierName.CANONICAL, shape=PATHS),
    Mode(verifier=VerifierName.CANONICAL, shape="1,1", drafters=BOTH),
    Mode(verifier=VerifierName.TRAVERSAL, shape=TREE),
    Mode(verifier=VerifierName.TRAVERSAL_WITH_REPLACEMENT, shape=TREE),
)
"""At least one for every verifier of the registry, see the test."""


def is_complete() -> bool:
    """Whether every verifier is there, and those that mix drafters also with several."""
    mixing = {v for v, m in METHODS.items() if m.mixes_drafters and m.needs_draft_probs}
    return {mode.verifier for mode in MODES} == set(METHODS) and mixing <= {
        mode.verifier for mode in MODES if len(mode.drafters) > 1
    }
