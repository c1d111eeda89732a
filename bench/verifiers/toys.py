"""Published toy figures, and what the shipped verifiers and calculators give for them: exact, by enumeration or closed form.

Figures without a paper of their own are independent computations that the methods' papers can be checked against.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.actors.speculation.trees.branches import (
    Grow,
    Models,
    accepted_tokens,
    committed,
    constant_models,
    drafts,
    static,
)

from bench.verifiers.optimum import (
    best_acceptance,
    best_acceptance_distinct,
    best_acceptance_identical,
    candidate_law,
)
from bench.verifiers.rates import canonical_rate, coupled_rate, kseq_rate, recursive_rate
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.sampling.random_acts import Decisions, Float64s
from outrider.actors.speculation.trees.draft_tree import DraftTree, Replacement
from outrider.actors.speculation.verifiers.kseq import best_scale
from outrider.actors.speculation.verify.acceptance import Acceptance

WITH, WITHOUT = Replacement.WITH, Replacement.WITHOUT
EXAMPLE = "target .4 .3 .2 .1, draft .1 .2 .3 .4"
TARGET, DRAFT = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.1, 0.2, 0.3, 0.4])
YANG, SUN, WENG = "2401.06706", "2403.10444", "2505.12398"
CHEN, KHISTI, SPECTR, DALIRI = "2302.01318", "2410.18234", "2310.15141", "2408.07978"


@dataclass(frozen=True, slots=True)
class Toy:
    """One figure."""

    paper: str
    """Whose algorithm, by arXiv number."""

    what: str
    published: float
    ours: float

    def row(self) -> dict[str, Any]:
        """For the results."""
        return {
            "layer": "toy",
            "paper": self.paper,
            "what": self.what,
            "published": self.published,
            "ours": self.ours,
        }


def toys() -> Iterator[Toy]:
    """All of them."""
    yield from _running_example()
    yield from _two_tokens()
    yield from _chains()
    yield from _uniform_draft()
    yield from _optima()


def mean_accepted(verifier: str, grow: Grow, replacement: Replacement, models: Models) -> float:
    """Expected number of accepted candidates, whatever ways of drawing the service offers for the verifier."""

    def check(
        tree: DraftTree, target: Float64s, draft: Sequence[Float64s], decisions: Decisions
    ) -> Acceptance:
        return VERIFIERS[verifier].verify(
            tree=tree, target_probs_NV=target, draft_probs_RV=draft, decisions=decisions
        )

    return accepted_tokens(committed(models, drafts(models, grow, replacement), check))


def _accepted(paper: str, models: Models, example: str) -> Callable[..., Toy]:
    def toy(
        verifier: str,
        replacement: Replacement,
        *shape: int,
        published: float,
        of: str = "",
    ) -> Toy:
        ours = mean_accepted(verifier, static(*shape), replacement, models)
        tree = ",".join(map(str, shape))
        return Toy(of or paper, f"`{verifier}` on `{tree}`, accepted; {example}", published, ours)

    return toy


def _running_example() -> Iterator[Toy]:
    toy = _accepted(YANG, constant_models(TARGET.tolist(), DRAFT.tolist()), EXAMPLE)
    mcsd, distinct = "mcsd_with_replacement", "mcsd_without_replacement"
    yield toy(mcsd, WITH, 2, published=0.72)
    yield toy(mcsd, WITH, 3, published=0.768)
    yield toy(distinct, WITHOUT, 2, published=0.7642857)
    yield toy(distinct, WITHOUT, 3, published=0.8402976)
    yield toy("exact_match", WITH, 2, published=0.35)
    yield toy("exact_match", WITHOUT, 2, published=0.4194444)
    yield toy("exact_match", WITH, 3, published=0.4646)
    yield toy("exact_match", WITHOUT, 3, published=0.6734127)
    yield toy(mcsd, WITH, 2, 2, published=1.2384)
    yield toy(distinct, WITHOUT, 2, 2, published=1.348418)
    yield toy("speculative_sampling", WITH, 1, published=0.6, of=CHEN)
    yield toy("speculative_sampling", WITH, 1, 1, published=0.96, of=CHEN)
    yield toy("block", WITH, 1, 1, published=1.03, of=SUN)
    yield toy("traversal", WITH, 1, 1, published=1.03, of=WENG)
    yield toy(distinct, WITHOUT, 2, 1, published=1.222857)
    yield toy("traversal", WITHOUT, 2, 1, published=1.301429, of=WENG)
    yield toy("traversal", WITH, 2, 2, published=1.2874, of=WENG)
    yield toy("traversal", WITHOUT, 2, 2, published=1.398929, of=WENG)
    yield toy("kseq", WITH, 2, published=0.75, of=SPECTR)
    scale = best_scale(TARGET, DRAFT, 3)
    yield Toy(SPECTR, f"k-SEQ scale for 3 candidates; {EXAMPLE}", 1.9395, scale.scale)
    yield Toy(SPECTR, f"k-SEQ acceptance of 3 candidates; {EXAMPLE}", 0.79395, scale.acceptance)
    yield Toy(DALIRI, f"`coupled`, one candidate; {EXAMPLE}", 0.542857, coupled_rate(TARGET, DRAFT))
    other = constant_models((0.6, 0.3, 0.1), (0.2, 0.3, 0.5))
    toy = _accepted(YANG, other, "target .6 .3 .1, draft .2 .3 .5")
    yield toy(mcsd, WITH, 2, published=0.68)
    yield toy(distinct, WITHOUT, 2, published=0.76)


def _two_tokens() -> Iterator[Toy]:
    models = constant_models((1 / 3, 2 / 3), (2 / 3, 1 / 3))
    toy = _accepted(SUN, models, "target 1/3 2/3, draft 2/3 1/3")
    yield toy("speculative_sampling", WITH, 1, 1, published=10 / 9)
    yield toy("block", WITH, 1, 1, published=11 / 9)
    yield toy("mcsd_with_replacement", WITH, 2, 2, published=112 / 81, of=WENG)
    yield toy("traversal", WITH, 2, 2, published=118 / 81, of=WENG)


def _chains() -> Iterator[Toy]:
    for draft, length, published in (
        ((0.7, 0.3), 4, 3.3616),
        ((0.9, 0.1), 4, 2.3056),
        ((0.6, 0.4), 8, 6.12579511),
    ):
        models = constant_models((0.5, 0.5), draft, depth=length + 1)
        tokens = 1.0 + mean_accepted("speculative_sampling", static(*[1] * length), WITH, models)
        share = 0.5 + draft[1]
        what = f"tokens a round, chain of {length}, acceptance {share:g} a token"
        yield Toy(CHEN, what, published, tokens)


UNIFORM = (
    ("1/3, t, 2/3 - t", 1 / 3, 0.05, 0.9389, 0.8470, 0.8111),
    ("1/3, t, 2/3 - t", 1 / 3, 0.20, 1.0, 0.9449, 0.9111),
    ("1/3, t, 2/3 - t", 1 / 3, 1 / 3, 1.0, 1.0, 1.0),
    ("1/3, t, 2/3 - t", 1 / 3, 0.50, 1.0, 0.9248, 0.8889),
    ("1/3, t, 2/3 - t", 1 / 3, 0.60, 0.9556, 0.8587, 0.8222),
    ("1/6, t, 5/6 - t", 1 / 6, 0.05, 0.7722, 0.7248, 0.7000),
    ("1/6, t, 5/6 - t", 1 / 6, 0.20, 0.9222, 0.8353, 0.8000),
    ("1/6, t, 5/6 - t", 1 / 6, 1 / 3, 1.0, 0.9248, 0.8889),
    ("1/6, t, 5/6 - t", 1 / 6, 0.50, 1.0, 0.9248, 0.8889),
    ("1/6, t, 5/6 - t", 1 / 6, 0.60, 0.9556, 0.8587, 0.8222),
)
"""Khisti et al.'s figure: a uniform draft of three tokens, two candidates; optimum, k-SEQ, recursive rejection."""


def _uniform_draft() -> Iterator[Toy]:
    draft = np.full(3, 1 / 3)
    for panel, first, second, optimum, kseq, recursive in UNIFORM:
        target = np.array([first, second, 1.0 - first - second])
        place = f"target {panel}, t = {second:.3g}, uniform draft, 2 candidates"
        best = best_acceptance_identical(target, draft, 2)
        yield Toy(KHISTI, f"optimum; {place}", optimum, best)
        yield Toy(KHISTI, f"`canonical`; {place}", optimum, canonical_rate(target, draft, 2))
        yield Toy(KHISTI, f"`kseq`; {place}", kseq, kseq_rate(target, draft, 2))
        yield Toy(KHISTI, f"`specinfer`; {place}", recursive, recursive_rate(target, draft, 2))


def _optima() -> Iterator[Toy]:
    for k, published in ((2, 0.79), (3, 0.871), (4, 0.9439)):
        what = f"{k} independent candidates; {EXAMPLE}"
        program = best_acceptance(TARGET, candidate_law([DRAFT] * k))
        yield Toy(KHISTI, f"optimum, linear program, {what}", published, program)
        yield Toy(
            KHISTI,
            f"optimum, closed form, {what}",
            published,
            best_acceptance_identical(TARGET, DRAFT, k),
        )
        yield Toy(KHISTI, f"`canonical`, {what}", published, canonical_rate(TARGET, DRAFT, k))
    for k, published in ((2, 0.8345238), (3, 1.0)):
        what = f"{k} distinct candidates; {EXAMPLE}"
        law = candidate_law([DRAFT] * k, is_with_replacement=False)
        program = best_acceptance(TARGET, law)
        yield Toy(KHISTI, f"optimum, linear program, {what}", published, program)
        cut = best_acceptance_distinct(TARGET, DRAFT, k)
        yield Toy(KHISTI, f"optimum, least cut, {what}", published, cut)
