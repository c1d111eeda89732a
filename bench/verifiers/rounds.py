"""Rounds of every verifier below the same contexts, with the two real models, and what is known about the best."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np

from bench.prompts import Prompt, spread
from bench.verifiers import bounds, nodes
from bench.verifiers.contexts import LOOKAHEAD, Context, Models, contexts
from bench.verifiers.own_trees import OwnTrees
from bench.verifiers.tally import Tally
from bench.verifiers.trees import Growing, Kind, LawOf, as_sent, dense, grow
from outrider.actors.draft import messages
from outrider.actors.draft.events import SessionNews
from outrider.actors.draft.rounds import FrozenNews
from outrider.actors.draft.tree import TreeNews
from outrider.actors.speculation.decisions import Rows, UniformDecisions, uniforms_needed
from outrider.actors.speculation.draft_tree import Replacement
from outrider.actors.speculation.frame import FrozenTree
from outrider.actors.speculation.options import Verifier
from outrider.actors.speculation.shapes import Shape, parse
from outrider.actors.speculation.sparse import DenseRows
from outrider.actors.speculation.verifiers.registry import METHODS

SHAPES = tuple(parse(text) for text in ("1,1,1,1", "2,2", "4,2,1", "8,1,1"))
"""A chain of four, two small bushes, eight paths."""

COMPARED = (SHAPES[0], SHAPES[2])
"""Shapes whose trees are also drawn from whole rows."""

VERDICTS = 2
"""Verdicts on each tree, with uniforms of their own."""

NODES_EVERY = 4
"""Contexts for each one whose rows are also compared at the single node."""

TOKEN_ONLY = (Verifier.COUPLED, Verifier.EXACT_MATCH)
FROZEN = tuple(verifier for verifier, method in METHODS.items() if method.needs_draft_probs)


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
    models, tally = Models.load(job.target, job.draft), Tally()
    is_greedy = job.temperature == 0.0
    verifiers = TOKEN_ONLY[:1] if is_greedy else TOKEN_ONLY
    budgets = [shape.num_nodes for shape in SHAPES]
    own = OwnTrees(models.draft, verifiers, max(budgets))
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
    # Equal generators: trees from whole rows are nearly those from cut ones, and the difference is known well.
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
            verifier = Verifier.COUPLED if is_coupled else Verifier.EXACT_MATCH
            key = ("round", str(tree.shape), str(verifier), "shape")
            tally.add(key, context.prompt, *_followed(tree, context.following))
        else:
            _verify(tree, probs_UV, context, seed, tally, "round")
            _weigh(tree, context, tally)
            _bound(tree, probs_UV, context, tally)
    for tree in whole:
        _verify(tree, probs_UV, context, seed, tally, "whole")
    if number % NODES_EVERY == 0:
        _compare_rows(models, context, temperature, probs_UV, rng, tally)


def _growing(kind: Kind, shape: Shape, seed: int, law_of: LawOf) -> Growing:
    return Growing(
        kind=kind,
        shape=shape,
        law_of=law_of,
        uniforms=np.random.default_rng([seed, *shape.branching, kind is Kind.DISTINCT]),
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


class _Placed:
    """The target's rows of one tree among those of all."""

    def __init__(self, probs_UV: Rows, places: Sequence[int]) -> None:
        self._probs_UV = probs_UV
        self._places = (-1, *places)

    def __getitem__(self, row: int, /) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return self._probs_UV[self._places[row] + 1]


def _able(tree: Growing) -> Iterator[Verifier]:
    """Verifiers that can take a tree."""
    is_chain = tree.shape.num_nodes == tree.shape.depth
    replacement = Replacement.WITH if tree.kind is Kind.INDEPENDENT else Replacement.WITHOUT
    for verifier in FROZEN:
        method = METHODS[verifier]
        if is_chain or (not method.is_chain_only and _drawn(verifier) is replacement):
            yield verifier


def _drawn(verifier: Verifier) -> Replacement:
    """How the service's drafters draw siblings for it."""
    allowed = METHODS[verifier].replacements
    return Replacement.WITHOUT if Replacement.WITHOUT in allowed else Replacement.WITH


def _verify(
    tree: Growing, probs_UV: Rows, context: Context, seed: int, tally: Tally, name: str
) -> None:
    frozen = tree.frozen()
    children = frozen.tree.children()
    target, draft = _Placed(probs_UV, tree.places), _Read(frozen, len(probs_UV[0]))
    for verifier in _able(tree):
        for verdict in range(VERDICTS):
            rng = np.random.default_rng([seed, 1, verdict, *tree.shape.branching])
            decisions = UniformDecisions(rng.random(uniforms_needed(frozen.tree.num_nodes)))
            path = (
                METHODS[verifier]
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


def _weigh(tree: Growing, context: Context, tally: Tally) -> None:
    """Bytes of the message that carries a tree, as the target counts them, and tokens in its rows."""
    news = FrozenNews(number=100, length=len(context.tokens), hash=2**63, frozen=tree.frozen())
    empty = TreeNews(tokens=[], parents=[], estimates=b"")
    entry = SessionNews(
        handle=7, length=len(context.tokens), hash=2**63, tree=empty, frozen=(news,)
    )
    size = messages.candidates_to_proto([entry]).ByteSize()
    num_tokens = sum(len(law.ids_K) for law in tree.laws)
    key = ("bytes", str(tree.shape), str(tree.kind))
    tally.add(key, context.prompt, size, num_tokens, len(tree.laws), len(tree.tokens))


def _bound(tree: Growing, probs_UV: Rows, context: Context, tally: Tally) -> None:
    ratios = bounds.path_ratios(tree.frozen(), tree.places, probs_UV)
    is_chain = tree.shape.num_nodes == tree.shape.depth
    for depth in range(tree.shape.depth):
        here = ratios[depth] if depth < len(ratios) else []
        key = (str(tree.shape), depth)
        tally.add(("all within", *key, str(tree.kind)), context.prompt, *bounds.all_within(here))
        if tree.kind is Kind.INDEPENDENT or is_chain:
            tally.add(("target within", *key), context.prompt, *bounds.target_within(here))


def _compare_rows(
    models: Models,
    context: Context,
    temperature: float,
    probs_UV: Rows,
    rng: np.random.Generator,
    tally: Tally,
) -> None:
    """Single nodes: every verifier beside the optimum, and rows cut in several ways beside whole ones."""
    from bench.verifiers.cuts import compare

    draft_V = dense_row(context, temperature)
    for (name, k), rate in nodes.rates(probs_UV[0], draft_V, rng).items():
        tally.add(("node", name, k), context.prompt, rate)
    compare(probs_UV[0], draft_V, rng, lambda key, *values: tally.add(key, context.prompt, *values))


def dense_row(context: Context, temperature: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The draft's whole row after a context."""
    from bench.verifiers.contexts import probs_of

    row: np.ndarray[tuple[int], np.dtype[np.float64]] = probs_of(
        context.draft_logits_V[None], temperature
    )[0]
    return row
