"""What becomes of one frozen tree: its verdicts, its message, and what it tells about the best verdict possible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from bench.verifiers import bounds
from bench.verifiers.contexts import Context
from bench.verifiers.tally import Tally
from bench.verifiers.trees import Growing, Kind
from outrider.actors.draft.service import draft_messages
from outrider.actors.draft.state.draft_events import CandidatesSent
from outrider.actors.frozen.frozen_candidates import FrozenCandidates
from outrider.actors.frozen.law_frame import FrozenTree
from outrider.actors.frozen.sparse_rows import DenseRows
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.sampling.random_acts import (
    ProbabilityRows,
    UniformDecisions,
    uniforms_needed,
)
from outrider.actors.speculation.trees.draft_tree import Replacement

VERDICTS = 2
"""Verdicts on each tree, with uniforms of their own."""

FROZEN = tuple(verifier for verifier, method in VERIFIERS.items() if method.needs_frozen_tree)


class _Placed:
    """The target's rows of one tree among those of all."""

    def __init__(self, probs_UV: ProbabilityRows, places: Sequence[int]) -> None:
        self._probs_UV = probs_UV
        self._places = (-1, *places)

    def __getitem__(self, row: int, /) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return self._probs_UV[self._places[row] + 1]


def _able(tree: Growing) -> Iterator[str]:
    """Verifiers that can take a tree."""
    is_chain = tree.shape.num_nodes == tree.shape.depth
    replacement = Replacement.WITH if tree.kind is Kind.INDEPENDENT else Replacement.WITHOUT
    for verifier in FROZEN:
        method = VERIFIERS[verifier]
        if is_chain or (not method.is_chain_only and method.drawn is replacement):
            yield verifier


def verify(
    tree: Growing, probs_UV: ProbabilityRows, context: Context, seed: int, tally: Tally, name: str
) -> None:
    frozen = tree.frozen()
    children = frozen.tree.children()
    target, draft = _Placed(probs_UV, tree.places), _Read(frozen, len(probs_UV[0]))
    for verifier in _able(tree):
        for verdict in range(VERDICTS):
            rng = np.random.default_rng([seed, 1, verdict, *tree.shape.branching])
            decisions = UniformDecisions(rng.random(uniforms_needed(frozen.tree.num_nodes)))
            path = (
                VERIFIERS[verifier]
                .verify(
                    tree=frozen.tree,
                    target_probs_NV=target,
                    draft_probs_RV=draft,
                    decisions=decisions,
                )
                .path
            )
            reached = sum(node in children for node in (-1, *path))
            key = (name, str(tree.shape), str(verifier), "shape")
            tally.add(key, context.prompt, len(path), reached)


class _Read:
    """Draft rows, each made once."""

    def __init__(self, frozen: FrozenTree, vocab_size: int) -> None:
        self._rows = DenseRows(frozen.rows, vocab_size)
        self._made: dict[int, np.ndarray[tuple[int], np.dtype[np.float64]]] = {}

    def __getitem__(self, row: int, /) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        made = self._made.get(row)
        if made is None:
            made = self._made[row] = self._rows[row]
        return made


def weigh(tree: Growing, context: Context, tally: Tally) -> None:
    """Bytes of the message that carries a tree, as the target counts them, and tokens in its rows."""
    found = FrozenCandidates(
        handle=7, base_length=len(context.tokens), base_hash=2**63, round=100, frozen=tree.frozen()
    )
    message = draft_messages.message_of(CandidatesSent(link=1, own_trees=(found,)))
    size = message.candidates.ByteSize()
    num_tokens = sum(len(law.ids_K) for law in tree.laws)
    key = ("bytes", str(tree.shape), str(tree.kind))
    tally.add(key, context.prompt, size, num_tokens, len(tree.laws), len(tree.tokens))


def bound(tree: Growing, probs_UV: ProbabilityRows, context: Context, tally: Tally) -> None:
    ratios = bounds.path_ratios(tree.frozen(), tree.places, probs_UV)
    is_chain = tree.shape.num_nodes == tree.shape.depth
    for depth in range(tree.shape.depth):
        here = ratios[depth] if depth < len(ratios) else []
        key = (str(tree.shape), depth)
        tally.add(("all within", *key, str(tree.kind)), context.prompt, *bounds.all_within(here))
        if tree.kind is Kind.INDEPENDENT or is_chain:
            tally.add(("target within", *key), context.prompt, *bounds.target_within(here))
