"""What it costs to send part of a draft row: acceptance at one node with whole rows and with cut ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bench.verifiers import nodes
from bench.verifiers.rates import recursive_rate
from bench.verifiers.tally import Key
from outrider.actors.frozen.sparse_rows import LEAST_PROB, MAX_KEPT, freeze, rest_share
from outrider.actors.speculation.sampling.random_acts import Float64s

CUTS: dict[str, tuple[float, int, bool]] = {
    "16 most probable": (0.0, 16, False),
    "64 most probable": (0.0, 64, False),
    "256 most probable": (0.0, 256, False),
    "1024 most probable": (0.0, 1024, False),
    f"at least {LEAST_PROB:g}, no others": (LEAST_PROB, MAX_KEPT, False),
    f"at least {LEAST_PROB:g}, others alike (as sent)": (LEAST_PROB, MAX_KEPT, True),
    "at least 0.0003, others alike": (3e-4, MAX_KEPT, True),
    "at least 0.001, others alike": (1e-3, MAX_KEPT, True),
}
"""Least probability, greatest number of tokens, and whether the other tokens share a weight."""

NAMES = ("mcsd_with_replacement", "mcsd_without_replacement", "kseq", "canonical")
CHAIN, SIBLINGS = 1, 4


def compare(
    target_V: Float64s,
    draft_V: Float64s,
    rng: np.random.Generator,
    add: Callable[..., None],
) -> None:
    """Adds ("cut", name of the cut, method, candidates): acceptance with the cut row and with the whole one."""
    seed = int(rng.integers(2**63))
    whole = _rates(target_V, draft_V, seed)
    for name, (least, keep, has_rest) in CUTS.items():
        cut: dict[tuple[str, int], float] = {}
        for k in (CHAIN, SIBLINGS):
            share = rest_share(k) if has_rest else 0.0
            row = freeze(draft_V, least, keep, rest_share=share)
            found = _rates(target_V, row.dense(len(draft_V)), seed)
            cut |= {key: rate for key, rate in found.items() if key[1] == k}
        for (method, k), rate in whole.items():
            key: Key = ("cut", name, method, k)
            add(key, cut[method, k], rate)
        add(("kept", name), len(row.ids_K))


def _rates(target_V: Float64s, draft_V: Float64s, seed: int) -> dict[tuple[str, int], float]:
    found = nodes.frozen_rates(target_V, draft_V, np.random.default_rng(seed), SIBLINGS)
    single = recursive_rate(target_V, draft_V, CHAIN)
    return {
        ("speculative_sampling", CHAIN): single,
        **{(name, SIBLINGS): found[name] for name in NAMES},
    }
