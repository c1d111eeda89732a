"""Exactness by enumeration: every tree that a drafter can draw and every way a verifier can decide, each with its weight.

A *program* is a function that takes a `Chance` and asks it for every random outcome: which token is drawn, whether a
candidate is accepted. `enumerate_outcomes` runs the program once for each sequence of answers and adds up their
probabilities, so the law of its result is known to rounding (1e-15), not to sampling error. Many wrong verifiers differ
from the target by less than any affordable sample would show, and several of them accept *more*; only this tells.

A round is: draft a tree (`independent`, `without_replacement`, `most_probable`, `best_first`, or any fixed tree), verify
it, and return the committed tokens. `joint_law` extends these with the target to a fixed length, since a wrong verifier
may hide its error in how the number of committed tokens depends on them, and `total_variation` compares.

To test a verifier: write it (or call it) with a `Chance` in the place of its randomness; see `test_enumeration.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import numpy as np

Outcome = TypeVar("Outcome")
Tokens = tuple[int, ...]
Probs = tuple[float, ...]
Law = dict[Tokens, float]

ROOT = -1
"""Parent of the candidates at depth 1."""


class Chance:
    """Answers random questions with one scripted sequence of outcomes, and keeps its weight."""

    def __init__(self, script: Sequence[int]) -> None:
        """Answer the first questions by `script`, later ones by their first possible outcome."""
        self._script = script
        self.weight = 1.0
        self.branches: list[tuple[int, list[int]]] = []
        """For each question the place of the answer among the possible answers, and these."""

    def pick(self, probs: Sequence[float]) -> int:
        """Return an index, distributed as `probs` (which must add up to 1)."""
        if abs(sum(probs) - 1.0) > 1e-9 or min(probs) < 0:
            raise ValueError(f"asked to pick by {tuple(probs)}, which is not a distribution")
        possible = [index for index, prob in enumerate(probs) if prob > 0]
        asked = len(self.branches)
        place = self._script[asked] if asked < len(self._script) else 0
        self.branches.append((place, possible))
        self.weight *= probs[possible[place]]
        return possible[place]

    def flip(self, prob: float) -> bool:
        """Return true with probability `prob`."""
        return self.pick((prob, 1.0 - prob)) == 0

    def next_script(self) -> list[int] | None:
        """Return the script of the next sequence of outcomes in order, None after the last."""
        script = [place for place, _ in self.branches]
        for last in range(len(script) - 1, -1, -1):
            place, possible = self.branches[last]
            if place + 1 < len(possible):
                return [*script[:last], place + 1]
        return None


def enumerate_outcomes(program: Callable[[Chance], Outcome]) -> dict[Outcome, float]:
    """Return the probability of each result of a program."""
    law: dict[Outcome, float] = {}
    script: list[int] | None = []
    while script is not None:
        chance = Chance(script)
        outcome = program(chance)
        law[outcome] = law.get(outcome, 0.0) + chance.weight
        script = chance.next_script()
    return law


class Model:
    """A next-token distribution for each prefix."""

    def __init__(self, rows: Callable[[Tokens], Probs]) -> None:
        """Wrap a function from prefix to distribution; it is asked once for each prefix."""
        self._rows = rows
        self._known: dict[Tokens, Probs] = {}

    def __call__(self, prefix: Tokens) -> Probs:
        """Return the distribution of the token after `prefix`."""
        if prefix not in self._known:
            self._known[prefix] = self._rows(prefix)
        return self._known[prefix]


def random_model(seed: int, vocab_size: int = 3, concentration: float = 0.7) -> Model:
    """A model whose distribution at each prefix is an independent draw from a Dirichlet distribution."""

    def row(prefix: Tokens) -> Probs:
        generator = np.random.default_rng([seed, len(prefix), *prefix])
        return normalised(generator.dirichlet([concentration] * vocab_size).tolist())

    return Model(row)


def constant_model(*probs: float) -> Model:
    """A model that forgets its prefix."""
    return Model(lambda prefix: probs)


def normalised(weights: Sequence[float]) -> Probs:
    """Divide by the sum, which must be positive."""
    total = sum(weights)
    return tuple(weight / total for weight in weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Candidates in topological order, siblings in the order in which they were drawn."""

    tokens: Tokens
    parents: tuple[int, ...]

    def children(self, node: int) -> tuple[int, ...]:
        """Nodes below `node` (or `ROOT`), in draw order."""
        return _children(self.parents)[node]

    def prefix(self, node: int) -> Tokens:
        """The tokens from the root to `node`, its own included."""
        return _prefixes(self.tokens, self.parents)[node]


@cache
def _children(parents: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
    return {
        node: tuple(child for child, parent in enumerate(parents) if parent == node)
        for node in range(ROOT, len(parents))
    }


@cache
def _prefixes(tokens: Tokens, parents: tuple[int, ...]) -> dict[int, Tokens]:
    prefixes: dict[int, Tokens] = {ROOT: ()}
    for node, (token, parent) in enumerate(zip(tokens, parents, strict=True)):
        prefixes[node] = (*prefixes[parent], token)
    return prefixes


Draft = Callable[[Chance, Model], Tree]
"""Draws a tree from a draft model."""

Verify = Callable[[Chance, Tree, Model], Tokens]
"""Commits tokens: those of an accepted path, then one of the verifier's own."""


def fixed(tree: Tree) -> Draft:
    """A tree that does not depend on anything."""
    return lambda chance, model: tree


def independent(*widths: int) -> Draft:
    """At each depth so many children of every node, drawn independently; equal siblings stay."""
    return _by_level(widths, lambda row, drawn: row)


def without_replacement(*widths: int) -> Draft:
    """At each depth so many children of every node, none drawn twice."""
    return _by_level(widths, remaining)


def most_probable(*widths: int) -> Draft:
    """At each depth so many children of every node: the most probable ones, no randomness."""

    def row(probs: Probs, drawn: Sequence[int]) -> Probs:
        left = remaining(probs, drawn)
        return tuple(float(token == left.index(max(left))) for token in range(len(left)))

    return _by_level(widths, row)


def remaining(row: Probs, drawn: Sequence[int]) -> Probs:
    """The distribution of the next sibling when none may come twice."""
    return normalised([0.0 if token in drawn else prob for token, prob in enumerate(row)])


def _by_level(widths: Sequence[int], sibling_row: Callable[[Probs, Sequence[int]], Probs]) -> Draft:
    def draft(chance: Chance, model: Model) -> Tree:
        tokens: list[int] = []
        parents: list[int] = []
        level: list[tuple[int, Tokens]] = [(ROOT, ())]
        for width in widths:
            next_level: list[tuple[int, Tokens]] = []
            for node, prefix in level:
                drawn: list[int] = []
                for _ in range(width):
                    token = chance.pick(sibling_row(model(prefix), drawn))
                    drawn.append(token)
                    tokens.append(token)
                    parents.append(node)
                    next_level.append((len(tokens) - 1, (*prefix, token)))
            level = next_level
        return Tree(tokens=tuple(tokens), parents=tuple(parents))

    return draft


def best_first(budget: int, max_depth: int) -> Draft:
    """Draw one node at a time, without replacement, at the place where it is likeliest to be accepted.

    A place is chosen by the probability of its path times the mass that its siblings have left, before its token is
    drawn; so the tree depends only on tokens that stay in it.
    """

    def draft(chance: Chance, model: Model) -> Tree:
        tree = Tree(tokens=(), parents=())
        path_probs: dict[int, float] = {ROOT: 1.0}
        for _ in range(budget):
            values = {
                node: prob * (1.0 - sum(_drawn_probs(tree, node, model)))
                for node, prob in path_probs.items()
                if len(tree.prefix(node)) < max_depth
            }
            node = max(values, key=lambda candidate: (values[candidate], -candidate))
            if values[node] <= 1e-12:
                break
            row = model(tree.prefix(node))
            token = chance.pick(remaining(row, [tree.tokens[c] for c in tree.children(node)]))
            path_probs[len(tree.tokens)] = path_probs[node] * row[token]
            tree = Tree(tokens=(*tree.tokens, token), parents=(*tree.parents, node))
        return tree

    return draft


def _drawn_probs(tree: Tree, node: int, model: Model) -> list[float]:
    row = model(tree.prefix(node))
    return [row[tree.tokens[child]] for child in tree.children(node)]


def all_trees(vocab_size: int = 3) -> Iterator[Tree]:
    """Every tree of depth at most 2 with distinct siblings, in ascending order: (1 + 2^V)^V of them."""
    subsets = [
        subset
        for size in range(vocab_size + 1)
        for subset in itertools.combinations(range(vocab_size), size)
    ]
    for top in subsets:
        for below in itertools.product(subsets, repeat=len(top)):
            tokens = list(top)
            parents = [ROOT] * len(top)
            for node, children in enumerate(below):
                tokens += children
                parents += [node] * len(children)
            yield Tree(tokens=tuple(tokens), parents=tuple(parents))


def round_law(draft: Draft, verify: Verify, *, target: Model, drafter: Model) -> Law:
    """Return the law of what one round commits; the tree is drawn before and apart from the verification."""
    law: Law = {}
    for tree, tree_weight in enumerate_outcomes(lambda chance: draft(chance, drafter)).items():
        for tokens, weight in _verified(verify, tree, target).items():
            law[tokens] = law.get(tokens, 0.0) + tree_weight * weight
    return law


def _verified(verify: Verify, tree: Tree, target: Model) -> Law:
    return enumerate_outcomes(lambda chance: verify(chance, tree, target))


def joint_law(law: Law, target: Model, length: int) -> Law:
    """Extend (or cut) what is committed to `length` tokens, drawing the rest from the target."""
    extended: Law = {}
    for tokens, weight in law.items():
        for more, prob in target_law(target, length, tokens[:length]).items():
            extended[more] = extended.get(more, 0.0) + weight * prob
    return extended


def target_law(target: Model, length: int, prefix: Tokens = ()) -> Law:
    """Return the law of plain decoding to `length` tokens after `prefix`."""
    law: Law = {prefix: 1.0}
    for _ in range(length - len(prefix)):
        law = {
            (*tokens, token): weight * prob
            for tokens, weight in law.items()
            for token, prob in enumerate(target(tokens))
        }
    return law


def total_variation(first: Law, second: Law) -> float:
    """Half the sum of absolute differences: the most by which a probability differs."""
    keys = first.keys() | second.keys()
    return sum(abs(first.get(key, 0.0) - second.get(key, 0.0)) for key in keys) / 2


def mean_accepted(law: Law) -> float:
    """Expected number of accepted candidates; each round commits one token besides."""
    return sum(weight * (len(tokens) - 1) for tokens, weight in law.items())
