"""Rounds of every verifier below the same contexts, with the two real models, and what is known about the best."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np

from bench.running.bench_prompts import Prompt, spread
from bench.verifiers import cuts, nodes, verdicts
from bench.verifiers.contexts import LOOKAHEAD, Context, Models, contexts, probs_of
from bench.verifiers.own_trees import OwnTrees
from bench.verifiers.tally import Tally
from bench.verifiers.trees import Growing, Kind, LawOf, as_sent, dense, grow
from outrider.actors.speculation.sampling.random_acts import ProbabilityRows
from outrider.actors.speculation.trees.level_shapes import LevelShape, parse

SHAPES = tuple(parse(text) for text in ("1,1,1,1", "2,2", "4,2,1", "8,1,1"))
"""A chain of four, two small bushes, eight paths."""

COMPARED = SHAPES
"""Shapes whose trees are also drawn from whole rows."""

NODES_EVERY = 4
"""Contexts for each one whose rows are also compared at the single node."""

TOKEN_ONLY = ("coupled", "exact_match")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The part of one process."""

    target: str
    draft: str
    temperature: float
    prompts: tuple[Prompt, ...]
    contexts: int
    stride: int


def measure(
    *, target: str, draft: str, temperature: float, num_prompts: int, num_contexts: int,
    stride: int = 4, processes: int = 2,
) -> Tally:  # fmt: skip
    """Rounds at `num_contexts` places of the text of each of `num_prompts` prompts."""
    prompts = spread(num_prompts)
    jobs = [
        Job(
            target=target,
            draft=draft,
            temperature=temperature,
            prompts=tuple(prompts[part::processes]),
            contexts=num_contexts,
            stride=stride,
        )
        for part in range(processes)
    ]
    tally = Tally()
    # Not forked: the parent may hold threads of torch.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        for part in pool.map(run, jobs):
            tally.merge(part)
    return tally


def run(job: Job) -> Tally:
    """All rounds of a job."""
    return rounds_of(Models.load(job.target, job.draft), job)


def rounds_of(models: Models, job: Job) -> Tally:
    """All rounds of a job with loaded models."""
    tally = Tally()
    is_greedy = job.temperature == 0.0
    verifiers = TOKEN_ONLY[:1] if is_greedy else TOKEN_ONLY
    budgets = [shape.num_nodes for shape in SHAPES]
    own = OwnTrees(models.drafter, verifiers, max(budgets))
    for prompt in job.prompts:
        rng = np.random.default_rng([17, prompt.id])
        before = 0
        for number, context in enumerate(
            contexts(
                models,
                prompt,
                temperature=job.temperature,
                count=job.contexts,
                stride=job.stride,
            )
        ):
            if number == 0:
                own.begin(
                    context.tokens,
                    seed=prompt.id,
                    temperature=job.temperature,
                    most=job.contexts * job.stride + LOOKAHEAD,
                )
            else:
                own.advance(context.tokens[before:])
            before = len(context.tokens)
            for verifier in verifiers:
                found = own.accepted(verifier, context.following, budgets)
                for shape, (accepted, reached) in zip(SHAPES, found, strict=True):
                    tally.add(
                        ("round", str(shape), str(verifier), "own"), prompt.id, accepted, reached
                    )
            if is_greedy:
                _greedy(models, context, tally)
            else:
                _sampled(models, context, job.temperature, rng, tally, number)
        own.end()
    return tally


def _greedy(models: Models, context: Context, tally: Tally) -> None:
    """At temperature 0 all verifiers follow the text through the most probable tokens."""
    trees = [_growing(Kind.MOST_PROBABLE, shape, 0, dense) for shape in SHAPES]
    grow(models, context, trees, 1.0)
    for tree in trees:
        accepted, reached = _followed(tree, context.following)
        key = ("round", str(tree.shape), "all", "shape")
        tally.add(key, context.prompt, accepted, reached)


def _sampled(
    models: Models,
    context: Context,
    temperature: float,
    rng: np.random.Generator,
    tally: Tally,
    number: int,
) -> None:
    seed = int(rng.integers(2**63))
    trees = [
        _growing(kind, shape, seed, as_sent)
        for shape in SHAPES
        for kind in Kind
        if not (kind is Kind.INDEPENDENT and shape.num_nodes == shape.depth)
    ]
    # Equal seeds: trees from whole rows are nearly always those from cut ones, and the difference is known well.
    whole = [
        _growing(kind, shape, seed, dense)
        for shape in COMPARED
        for kind in (Kind.DISTINCT, Kind.INDEPENDENT)
        if not (kind is Kind.INDEPENDENT and shape.num_nodes == shape.depth)
    ]
    probs_UV = grow(models, context, [*trees, *whole], temperature)
    for tree in trees:
        if tree.kind in (Kind.LIKELY_DRAWS, Kind.MOST_PROBABLE):
            is_coupled = tree.kind is Kind.LIKELY_DRAWS
            verifier = "coupled" if is_coupled else "exact_match"
            key = ("round", str(tree.shape), str(verifier), "shape")
            tally.add(key, context.prompt, *_followed(tree, context.following))
        else:
            verdicts.verify(tree, probs_UV, context, seed, tally, "round")
            verdicts.weigh(tree, context, tally)
            verdicts.bound(tree, probs_UV, context, tally)
    for tree in whole:
        verdicts.verify(tree, probs_UV, context, seed, tally, "whole")
    if number % NODES_EVERY == 0:
        _compare_rows(context, temperature, probs_UV, rng, tally)


def _growing(kind: Kind, shape: LevelShape, seed: int, law_of: LawOf) -> Growing:
    return Growing(
        kind=kind,
        shape=shape,
        law_of=law_of,
        seed=(seed, *shape.branching, int(kind is Kind.DISTINCT)),
    )


def _followed(tree: Growing, following: Sequence[int]) -> tuple[int, int]:
    """Accepted candidates, and nodes with children on the way, if the text is followed through the tree."""
    node, accepted = -1, 0
    for token in following:
        child = next(
            (
                index
                for index, (parent, other) in enumerate(zip(tree.parents, tree.tokens, strict=True))
                if parent == node and other == token
            ),
            None,
        )
        if child is None:
            break
        node, accepted = child, accepted + 1
    return accepted, min(accepted + 1, tree.shape.depth)


def _compare_rows(
    context: Context,
    temperature: float,
    probs_UV: ProbabilityRows,
    rng: np.random.Generator,
    tally: Tally,
) -> None:
    """Single nodes: every verifier beside the optimum, and rows cut in several ways beside whole ones."""
    draft_V = probs_of(context.draft_logits_V[None], temperature)[0]
    for (name, k), rate in nodes.rates(probs_UV[0], draft_V, rng).items():
        tally.add(("node", name, k), context.prompt, rate)
    cuts.compare(
        probs_UV[0], draft_V, rng, lambda key, *values: tally.add(key, context.prompt, *values)
    )
