"""A draft model for `reference.py`: it grows a tree of one shape below the text and proposes it, level by level."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from outrider.actors.engine.protocol import Engine
from outrider.actors.frozen.law_frame import FrozenTree
from outrider.actors.frozen.sparse_rows import (
    DRAWS_A_SIBLING,
    SparseRow,
    draw_siblings,
    freeze,
    of_tokens,
)
from outrider.actors.reference import NOTHING, Propose, Text, probs_of
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.options import Sampling
from outrider.actors.speculation.sampling.random_acts import UniformDecisions
from outrider.actors.speculation.trees.draft_tree import DraftTree, sources_by_parent
from outrider.actors.speculation.trees.level_shapes import LevelShape


@contextmanager
def model_drafter(
    engine: Engine,
    prompt: Sequence[int],
    sampling: Sampling,
    shape: LevelShape,
    verifier: str,
) -> Iterator[Propose]:
    """A drafter for one text, in a slot of its engine until the context ends.

    Args:
        engine: The draft model, with the target's token ids; a slot must be free.
        prompt: The text's beginning.
        sampling: The request's options.
        shape: Of every tree.
        verifier: What candidates will be tested by. Under coupled sampling children are the tokens that the noise, which is the
            target's too, makes likely. A verifier of frozen trees needs children drawn from laws that are settled before.

    Raises:
        ValueError: The prompt is empty, or options cannot be followed.
        NoFreeSlot: Every slot is taken.
    """
    method, own = VERIFIERS[verifier], np.random.default_rng(sampling.seed)
    replacement = min(method.replacements)

    def children(node_law: SparseRow, count: int) -> tuple[int, ...]:
        uniforms_U = own.random(DRAWS_A_SIBLING * count)
        return draw_siblings(node_law, count, replacement, UniformDecisions(uniforms_U))

    def propose(tokens: Sequence[int]) -> FrozenTree:
        text.append(tokens[len(text.tokens) :])
        nodes: list[int] = []
        parents: list[int] = []
        laws: list[SparseRow] = []
        level, tree = [-1], NOTHING.tree
        for depth, width in enumerate(shape.branching):
            scores_RV = text.scores(tree)
            text.keep(())
            noise_1V = text.noise(depth) if VERIFIERS[verifier].shares_noise else None
            first = len(nodes)
            for node in level:
                scores_1V = scores_RV[node + 1 : node + 2]
                ranked_1V = scores_1V if noise_1V is None else scores_1V + noise_1V
                best = tuple(ranked_1V[0].topk(min(width, ranked_1V.shape[1])).indices.tolist())
                if method.needs_frozen_tree:
                    probs_V = probs_of(text, scores_1V)[0]
                    is_drawn = text.transform.uses_noise
                    # At temperature 0 any law is exact that has every child: see `of_tokens`.
                    laws.append(
                        freeze(probs_V) if is_drawn else of_tokens(np.ones_like(probs_V), best)
                    )
                    best = children(laws[-1], width) if is_drawn else best
                nodes += best
                parents += [node] * len(best)
            level = list(range(first, len(nodes)))
            tree = DraftTree(tokens_N=tuple(nodes), parents_N=tuple(parents))
        sources_N = sources_by_parent(parents) if method.needs_frozen_tree else ()
        whole = DraftTree(
            tokens_N=tree.tokens_N,
            parents_N=tree.parents_N,
            sources_N=sources_N,
            replacement=replacement,
        )
        return FrozenTree(tree=whole, rows=tuple(laws))

    with Text(engine, prompt, sampling) as text:
        yield propose
