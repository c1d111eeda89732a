"""Exact laws by enumeration: the real code is run along every branch of its random decisions.

`every_outcome` calls a function again and again with a source of decisions that replays a list of branches and notes
where it could have gone another way, until all ways have been gone. Growing a tree with the real sampler and verifying
it with the real verifier in this manner, then continuing with the target's own law, gives the joint law of the first
tokens as a finite sum: it must equal the target's joint law to rounding.

Many wrong verifiers differ from the target by less than any affordable sample would show, and several of them accept
*more*; only this tells. Where the total variation must vanish, 1e-12 is rounding.

The models are random rows that depend on the whole context: vocabulary 3, trees of depth 2, outputs of 3 tokens; or
vocabulary 2, trees of depth 3, outputs of 4.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from math import inf
from typing import TypeVar

import numpy as np

from outrider.actors.frozen.sparse_rows import SparseRow, Urn, freeze
from outrider.actors.speculation.sampling.random_acts import Decisions, Float64s
from outrider.actors.speculation.trees.draft_tree import DraftTree, Replacement
from outrider.actors.speculation.trees.level_shapes import LevelShape
from outrider.actors.speculation.verify.acceptance import Acceptance

T = TypeVar("T")
Prefix = tuple[int, ...]
Law = Mapping[Prefix, float]

VOCAB = 3
OUTPUT = 3
"""Tokens of the joint law, unless models say otherwise: a round over a tree of depth 2 commits at most 3."""


class Branches:
    """Decisions that follow given branches, then first branches, and weigh how probable that is."""

    def __init__(self, given: Sequence[int]) -> None:
        """Follow `given`, one branch a decision that has several."""
        self.taken = list(given)
        self.probability = 1.0
        self.others: list[list[int]] = []
        self._next = 0

    def accept(self, probability: float) -> bool:
        """Both ways, unless one is impossible."""
        if not -inf < probability < inf:
            raise ValueError(f"{probability} is no chance of accepting anything")
        likely = min(1.0, max(0.0, probability))
        return self._branch([(1, likely), (0, 1.0 - likely)]) == 1

    def draw(self, weights_V: Float64s) -> int:
        """Every possible index."""
        weights = weights_V.tolist()
        total = sum(weights)
        if not (0.0 < total < inf and min(weights) >= 0.0):
            raise ValueError(f"the weights {weights_V} cannot be drawn from")
        return self._branch([(index, weight / total) for index, weight in enumerate(weights)])

    def _branch(self, options: list[tuple[int, float]]) -> int:
        possible = [option for option in options if option[1] > 0.0]
        branch = 0
        if len(possible) > 1:
            if self._next == len(self.taken):
                self.others.extend([*self.taken, other] for other in range(1, len(possible)))
                self.taken.append(0)
            branch = self.taken[self._next]
            self._next += 1
        value, probability = possible[branch]
        self.probability *= probability
        return value


def every_outcome(run: Callable[[Decisions], T]) -> Iterator[tuple[T, float]]:
    """What `run` returns along each way its decisions can go, with the probability of that way."""
    todo: list[list[int]] = [[]]
    while todo:
        branches = Branches(todo.pop())
        outcome = run(branches)
        todo.extend(branches.others)
        yield outcome, branches.probability


@dataclass(frozen=True, eq=False)
class Models:
    """A target and a draft whose rows depend on the whole context."""

    target: Mapping[Prefix, Float64s]
    draft: Mapping[Prefix, SparseRow]

    def target_rows(self, tokens: Sequence[int], parents: Sequence[int]) -> Float64s:
        """Rows at the root and at all nodes."""
        return np.stack([self.target[prefix] for prefix in prefixes(tokens, parents)])

    @cached_property
    def vocab(self) -> int:
        """Number of tokens."""
        return len(self.target[()])

    @cached_property
    def output(self) -> int:
        """Tokens of the joint law: one more than the longest context."""
        return 1 + max(map(len, self.target))

    @cached_property
    def truth(self) -> Law:
        """The target's joint law of the output."""
        return self.extend((), 1.0)

    def extend(self, tokens: Prefix, probability: float) -> dict[Prefix, float]:
        """Continue with the target's own law to the full output."""
        law: dict[Prefix, float] = {tokens[: self.output]: probability}
        for _ in range(self.output - len(tokens)):
            law = {
                (*prefix, token): chance * float(self.target[prefix][token])
                for prefix, chance in law.items()
                for token in range(len(self.target[prefix]))
            }
        return law


def prefixes(tokens: Sequence[int], parents: Sequence[int]) -> list[Prefix]:
    """The context of the root and of each node."""
    contexts: list[Prefix] = [()]
    for token, parent in zip(tokens, parents, strict=True):
        contexts.append((*contexts[parent + 1], token))
    return contexts


def random_models(seed: int, vocab: int = VOCAB, depth: int = OUTPUT) -> Models:
    """Rows from flat Dirichlet laws, the draft's frozen as on the wire, every other one with a single listed token."""
    rng = np.random.default_rng(seed)
    target: dict[Prefix, Float64s] = {}
    draft: dict[Prefix, SparseRow] = {}
    for length in range(depth):
        for prefix in product(range(vocab), repeat=length):
            target[prefix] = rng.dirichlet(np.ones(vocab))
            listed = vocab if len(draft) % 2 else 1
            draft[prefix] = freeze(rng.dirichlet(np.ones(vocab)), keep=listed)
    return Models(target, draft)


def deep_models(seed: int) -> Models:
    """Two tokens and outputs of four: for trees of depth three."""
    return random_models(seed, vocab=2, depth=4)


def constant_models(target: Sequence[float], draft: Sequence[float], depth: int = OUTPUT) -> Models:
    """The same rows at every prefix; the draft's as given, where float16 would round them."""
    vocab = len(target)
    # float64 weights: the golden vectors are of exact decimal rows.
    row = SparseRow(ids_K=np.arange(vocab, dtype=np.uint32), weights_K=np.array(draft))
    contexts = [p for length in range(depth) for p in product(range(vocab), repeat=length)]
    return Models(dict.fromkeys(contexts, np.array(target)), dict.fromkeys(contexts, row))


@dataclass(frozen=True)
class Draft:
    """What a drafter sends: the tree, and the context whose row each source is."""

    tree: DraftTree
    contexts: tuple[Prefix, ...]

    def rows(self, models: Models) -> list[Float64s]:
        """The dense rows of the sources."""
        return [models.draft[context].dense(models.vocab) for context in self.contexts]


class Growing:
    """A tree that is being drawn; children are drawn with the real sampler."""

    def __init__(self, models: Models, replacement: Replacement, decisions: Decisions) -> None:
        """Start with the root alone."""
        self.models = models
        self.replacement = replacement
        self.decisions = decisions
        self.tokens: list[int] = []
        self.parents: list[int] = []

    def context(self, node: int) -> Prefix:
        """Tokens down to a node."""
        return prefixes(self.tokens, self.parents)[node + 1]

    def row(self, node: int) -> Float64s:
        """The draft's probabilities after a node."""
        return self.models.draft[self.context(node)].dense(self.models.vocab)

    def children(self, node: int) -> list[int]:
        """Children drawn so far."""
        return [child for child, parent in enumerate(self.parents) if parent == node]

    def draw_child(self, node: int) -> int | None:
        """Draw the next child; None if there is no further token."""
        taken = [self.tokens[child] for child in self.children(node)]
        row = self.models.draft[self.context(node)]
        urn = Urn(row)
        for one in taken if self.replacement is Replacement.WITHOUT else ():
            urn.remove(one)
        token = urn.draw(self.decisions)
        if token is None:
            return None
        self.tokens.append(token)
        self.parents.append(node)
        return len(self.tokens) - 1

    def draw_children(self, node: int, count: int) -> list[int]:
        """Draw several."""
        children = [self.draw_child(node) for _ in range(count)]
        return [child for child in children if child is not None]

    def finish(self) -> Draft:
        """The frozen tree."""
        return draft_of(self.tokens, self.parents, self.replacement)


def draft_of(tokens: Sequence[int], parents: Sequence[int], replacement: Replacement) -> Draft:
    """A draft of one drafter, whatever became of its tokens."""
    contexts = prefixes(tokens, parents)
    internal = sorted(set(parents))
    tree = DraftTree(
        tokens_N=tuple(tokens),
        parents_N=tuple(parents),
        sources_N=tuple(internal.index(parent) for parent in parents),
        replacement=replacement,
    )
    return Draft(tree, tuple(contexts[parent + 1] for parent in internal))


def all_trees() -> Iterator[Draft]:
    """Every tree of depth at most 2 with distinct siblings, in ascending order: (1 + 2^V)^V of them."""
    subsets = [s for size in range(VOCAB + 1) for s in combinations(range(VOCAB), size)]
    for top in subsets:
        for below in product(subsets, repeat=len(top)):
            tokens, parents = list(top), [-1] * len(top)
            for node, children in enumerate(below):
                tokens += children
                parents += [node] * len(children)
            yield draft_of(tokens, parents, Replacement.WITHOUT)


Grow = Callable[[Growing], None]
Alter = Callable[[Growing], Draft]


def static(*branching: int) -> Grow:
    """A fixed shape, level by level."""
    assert LevelShape(branching)

    def grow(growing: Growing) -> None:
        level = [-1]
        for count in branching:
            level = [child for node in level for child in growing.draw_children(node, count)]

    return grow


def drafts(
    models: Models, grow: Grow, replacement: Replacement, alter: Alter = Growing.finish
) -> list[tuple[Draft, float]]:
    """Every frozen tree with its probability. `alter` is what a wrong drafter does before sending."""

    def run(decisions: Decisions) -> Draft:
        growing = Growing(models, replacement, decisions)
        grow(growing)
        return alter(growing)

    law: dict[Draft, float] = defaultdict(float)
    for draft, probability in every_outcome(run):
        law[draft] += probability
    return list(law.items())


Check = Callable[[DraftTree, Float64s, Sequence[Float64s], Decisions], Acceptance]
"""A verifier, given tree, target rows, draft rows, decisions."""

RowsSent = Callable[[Models, Draft], list[Float64s]]


def committed(
    models: Models,
    law: Sequence[tuple[Draft, float]],
    check: Check,
    rows_sent: RowsSent = lambda models, draft: draft.rows(models),
) -> dict[Acceptance, float]:
    """The law of one round's outcome over all drafts and decisions; paths are replaced by their lengths."""
    outcomes: dict[Acceptance, float] = defaultdict(float)
    for draft, probability in law:
        tree = draft.tree
        target_rows = models.target_rows(tree.tokens_N, tree.parents_N)
        draft_rows = rows_sent(models, draft)

        def run(
            decisions: Decisions,
            tree: DraftTree = tree,
            target_rows: Float64s = target_rows,
            draft_rows: list[Float64s] = draft_rows,
        ) -> Acceptance:
            return check(tree, target_rows, draft_rows, decisions)

        for outcome, chance in every_outcome(run):
            anonymous = Acceptance(path=tuple(range(len(outcome.path))), tokens=outcome.tokens)
            outcomes[anonymous] += probability * chance
    return outcomes


def joint_law(models: Models, outcomes: Mapping[Acceptance, float]) -> dict[Prefix, float]:
    """The law of the output when decoding goes on from each outcome with the target alone."""
    law: dict[Prefix, float] = defaultdict(float)
    for outcome, probability in outcomes.items():
        for tokens, chance in models.extend(outcome.tokens, probability).items():
            law[tokens] += chance
    return law


def distance(law: Law, other: Law) -> float:
    """Total variation distance; mass that is missing counts."""
    return 0.5 * sum(abs(law.get(key, 0.0) - other.get(key, 0.0)) for key in {*law, *other})


def accepted_tokens(outcomes: Mapping[Acceptance, float]) -> float:
    """Expected length of the accepted path."""
    return sum(len(outcome.path) * chance for outcome, chance in outcomes.items())
