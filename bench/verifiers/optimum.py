"""The best acceptance that any exact verifier can have, for given rows and a given way of drawing candidates.

The output token must have the law of the target; the candidates are what they are; how often can the two agree? This is
an optimal transport problem, and by max-flow/min-cut its value is the least of target(S) + 1 - Pr(all candidates in S)
over sets S of tokens.

Source: Khisti et al. 2024, arXiv 2410.18234 (linear program, closed form for two identical drafts; the form for more is
their conjecture, and a consequence of the min-cut). The linear program wants scipy, which the service does not need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations, product

import numpy as np

from outrider.actors.speculation.sampling.random_acts import Float64s
from outrider.actors.speculation.verify.residual import without


def best_acceptance_identical(target_V: Float64s, draft_V: Float64s, k: int) -> float:
    """Best acceptance with `k` independent candidates of one draft; one sort.

    The least set is a prefix of the tokens in ascending order of target / draft; tokens that the draft never proposes
    come last.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratios_V = np.where(draft_V > 0.0, target_V / draft_V, np.inf)
    order_V = np.argsort(ratios_V, kind="stable")
    target_sums = np.concatenate(([0.0], np.cumsum(target_V[order_V])))
    draft_sums = np.concatenate(([0.0], np.cumsum(draft_V[order_V])))
    return float(min(1.0, (target_sums + 1.0 - draft_sums**k).min()))


def best_acceptance_distinct(target_V: Float64s, draft_V: Float64s, k: int) -> float:
    """Best acceptance with `k` distinct candidates of one draft, drawn one after the other from what is left of it."""
    return best_acceptances_distinct(target_V, draft_V, k)[-1]


def best_acceptances_distinct(
    target_V: Float64s, draft_V: Float64s, most: int
) -> tuple[float, ...]:
    """Best acceptance with 1, 2, ... `most` distinct candidates of one draft.

    The least over the prefixes of the tokens in ascending order of target / draft. No verifier passes it; that no other
    set is smaller is not proven, and was never otherwise where the linear program could be solved as well.

    With coupled sampling the k best perturbed tokens are such candidates too, so the bound is also its bound.

    Drawing without replacement is a race: token v arrives after an exponential time of rate draft_V[v], and the first k
    are the candidates. All are in S if k tokens of S arrive before the first of the others does.
    """
    support_S = np.flatnonzero(draft_V)
    order_S = support_S[np.argsort(target_V[support_S] / draft_V[support_S], kind="stable")]
    target_S, draft_S = target_V[order_S], draft_V[order_S] / draft_V[support_S].sum()
    rest_S = np.append(np.cumsum(draft_S[::-1])[-2::-1], 0.0)
    # arrived_KT[m]: probability that m tokens of the prefix have arrived at each time, m < most.
    arrived_KT = np.zeros((most, len(_TIMES_T)))
    arrived_KT[0] = 1.0
    target_sum, best_K = 0.0, np.full(most, target_S.sum())
    for target_prob, draft_prob, rest in zip(target_S[:-1], draft_S, rest_S, strict=False):
        target_sum += float(target_prob)
        stays_T = np.exp(-draft_prob * _TIMES_T)
        arrived_KT[1:] = arrived_KT[1:] * stays_T + arrived_KT[:-1] * (1.0 - stays_T)
        arrived_KT[0] *= stays_T
        share_T = rest * np.exp(-rest * _TIMES_T) * _TIMES_T * _STEP
        share_T[-1] = share_T[-1] / 2.0 + np.exp(-rest * _TIMES_T[-1])
        # 1 - Pr(all of k candidates in the prefix) = Pr(fewer than k of it arrive before another token does).
        best_K = np.minimum(best_K, target_sum + np.cumsum(arrived_KT @ share_T))
    return tuple(np.minimum(best_K, 1.0).tolist())


_STEP = 0.15
_TIMES_T = np.exp(np.arange(-14.0, 30.0, _STEP))
"""Times of the race, evenly spaced in their logarithm, by the trapezoidal rule; good to 1e-7."""


def candidate_law(
    drafts: Sequence[Float64s], *, is_with_replacement: bool = True
) -> dict[frozenset[int], float]:
    """Probability of each set of candidates; small vocabularies only (V^k terms).

    Args:
        drafts: Law of each candidate; without replacement all are the same row, in draw order.
        is_with_replacement: False: each candidate differs from all before it.
    """
    law: dict[frozenset[int], float] = {}
    vocabulary = range(len(drafts[0]))
    if is_with_replacement:
        for tokens in product(vocabulary, repeat=len(drafts)):
            chance = float(np.prod([row[t] for row, t in zip(drafts, tokens, strict=True)]))
            law[frozenset(tokens)] = law.get(frozenset(tokens), 0.0) + chance
        return law
    for tokens in permutations(vocabulary, len(drafts)):
        chance, row_V = 1.0, drafts[0]
        for token in tokens:
            chance *= float(row_V[token])
            row_V = without(row_V, token)
        law[frozenset(tokens)] = law.get(frozenset(tokens), 0.0) + chance
    return law


def best_acceptance(target_V: Float64s, law: Mapping[frozenset[int], float]) -> float:
    """Best acceptance for any law of the candidates, by linear program.

    Mass flows from each set of candidates to its tokens, no more than the set's probability out of it and no more than
    the target's probability into a token; the greatest flow is the answer.

    Raises:
        ModuleNotFoundError: scipy is not installed (extra `dev`).
    """
    from scipy.optimize import linprog  # type: ignore[import-untyped]  # no stubs
    from scipy.sparse import coo_array  # type: ignore[import-untyped]  # no stubs

    sets = [(tokens, chance) for tokens, chance in law.items() if chance > 0.0]
    edges = [(index, token) for index, (tokens, _) in enumerate(sets) for token in sorted(tokens)]
    num_edges = len(edges)
    rows = [index for index, _ in edges] + [len(sets) + token for _, token in edges]
    limits = np.concatenate(([chance for _, chance in sets], target_V))
    constraints = coo_array(
        (np.ones(2 * num_edges), (rows, [*range(num_edges), *range(num_edges)])),
        shape=(len(limits), num_edges),
    )
    solution = linprog(-np.ones(num_edges), A_ub=constraints.tocsr(), b_ub=limits, method="highs")
    if not solution.success:
        raise RuntimeError(f"the linear program of {num_edges} flows failed: {solution.message}")
    return float(-solution.fun)
