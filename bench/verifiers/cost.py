"""Processor time of one verdict, by verifier and vocabulary: synthetic rows, candidates drawn as the verifier wants them.

Rows are softmaxes of normal logits (standard deviation 3), the draft's those of the target's plus normal noise, cut as they are
sent. What is timed is the verdict alone: the target's rows are there, the draft's are made from what was sent.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from outrider.actors.frozen.sparse_rows import DenseRows, SparseRow, draw_siblings, freeze
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.noise.uniforms import uniforms
from outrider.actors.speculation.sampling.random_acts import (
    Float64s,
    UniformDecisions,
    uniforms_needed,
)
from outrider.actors.speculation.trees.draft_tree import DraftTree, sources_by_parent
from outrider.actors.speculation.trees.level_shapes import LevelShape, parse
from outrider.actors.speculation.verify.verifier_spec import VerifierSpec

VOCABULARIES = (32_000, 152_000)
CHAIN, TREES = ",".join(["1"] * 32), ("4,2,2", "16,1")
"""32, 28 and 32 candidates: what chains, trees and wide trees of this size cost."""

SPREAD, NOISE = 3.0, 1.0
"""Standard deviations of the target's logits, and of what the draft's are off by."""


def cells(
    vocabularies: Sequence[int] = VOCABULARIES, *, num_rounds: int = 15
) -> Iterator[dict[str, Any]]:
    """Milliseconds a verdict: median and greatest, and the mean number of accepted candidates."""
    for vocab in vocabularies:
        for text in (CHAIN, *TREES):
            shape = parse(text)
            rng = np.random.default_rng(vocab)
            targets_NV = np.stack(
                [_softmax(rng.normal(0.0, SPREAD, vocab)) for _ in range(shape.num_nodes + 1)]
            )
            for verifier, method in VERIFIERS.items():
                is_chain = text == CHAIN
                if method.shares_noise or is_chain != method.is_chain_only:
                    continue
                found = [
                    _timed(method, shape, targets_NV, np.random.default_rng([number, vocab]))
                    for number in range(num_rounds)
                ]
                times = sorted(seconds for seconds, _ in found)
                yield {
                    "vocabulary": vocab,
                    "shape": text,
                    "nodes": shape.num_nodes,
                    "verifier": verifier,
                    "ms": 1e3 * times[num_rounds // 2],
                    "ms_most": 1e3 * times[-1],
                    "accepted": float(np.mean([accepted for _, accepted in found])),
                }


def _timed(
    method: VerifierSpec, shape: LevelShape, targets_NV: Float64s, rng: np.random.Generator
) -> tuple[float, int]:
    """Seconds of one verdict over a fresh tree, and its accepted candidates."""
    replacement = min(method.replacements)
    parents = shape.parents_N
    tokens: list[int] = []
    rows: list[SparseRow] = []
    for parent in sorted(set(parents)):
        target_V = targets_NV[parent + 1]
        with np.errstate(divide="ignore"):
            row = freeze(_softmax(np.log(target_V) + rng.normal(0.0, NOISE, len(target_V))))
        rows.append(row)
        count = parents.count(parent)
        decisions = UniformDecisions(rng.random(2 * count))
        tokens += draw_siblings(row, count, replacement, decisions)
    tree = DraftTree(
        tokens_N=tuple(tokens),
        parents_N=parents,
        sources_N=sources_by_parent(parents),
        replacement=replacement,
    )
    decisions = UniformDecisions(
        uniforms(int(rng.integers(2**32)), 0, uniforms_needed(len(tokens)))
    )
    began = time.thread_time()
    outcome = method.verify(
        tree=tree,
        target_probs_NV=targets_NV,
        draft_probs_RV=DenseRows(rows, targets_NV.shape[1]),
        decisions=decisions,
    )
    return time.thread_time() - began, len(outcome.path)


def _softmax(logits_V: Float64s) -> Float64s:
    weights_V = np.exp(logits_V - logits_V.max())
    probs_V: Float64s = weights_V / weights_V.sum()
    return probs_V
