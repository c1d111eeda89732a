"""What a drafter's law foresees of a target's texts: no clock, no network, nobody waits. For shared noise (`coupled`).

A text is drawn from the target's law. At each place the drafter's children are the tokens with the best scores log q / T + noise,
and their estimates softmax(kappa x scores) over the vocabulary, kappa fitted to the texts as drafters fit it; the best tree grows by the
product of estimates.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch

from outrider.actors.engine.tables.token_table import Table
from outrider.actors.speculation.ideal import ideal, law_of
from outrider.actors.speculation.noise.gumbel import GumbelNoise
from outrider.cluster.simulate.simulated_device import table_of

Floats = npt.NDArray[np.float64]

WIDTH = 4
"""Children of a node, as drafters have them."""

KAPPAS = np.geomspace(0.2, 5.0, 33)
"""Tried."""

NUM_TEXTS = 6
SEED = 1
TEXT_TOKENS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Foresight:
    """Of a pair of laws."""

    runs: Mapping[int, float]
    """The law of how many tokens in a row are among the children."""

    tokens_by_nodes: tuple[float, ...]
    """Mean tokens of a pass over the best tree of 0, 1, 2, ... nodes, the target's own included."""

    first: float
    """Share of tokens that are the drafter's first candidate."""


@lru_cache(maxsize=64)
def foresight(
    target: str, draft: str, temperature: float, max_nodes: int, max_depth: int
) -> Foresight:
    """What a drafter foresees.

    Args:
        target: Its model, `law:NAME` or `tabular:FILE`.
        draft: The drafter's.
        temperature: Of the draws.
        max_nodes: Of a tree.
        max_depth: Of a tree.
    """
    law, own = table_of(target), table_of(draft)
    noise = GumbelNoise(law.vocab_size, torch.device("cpu"))
    ranks: list[int] = []
    sums = np.zeros(max_nodes + 1)
    places = 0
    texts = [_Text(law, own, noise, temperature, SEED + number) for number in range(NUM_TEXTS)]
    kappa = max(
        KAPPAS.tolist(), key=lambda tried: sum(text.log_likelihood(tried) for text in texts)
    )
    hits: list[bool] = []
    for text in texts:
        for at in text.places:
            tokens, _ = text.children(text.context(at), at, kappa)
            ranks.append(tokens.index(text.tokens[at]) if text.tokens[at] in tokens else -1)
            hits.append(ranks[-1] >= 0)
        hits.append(False)
        for at in range(text.places.start, text.places.stop - max_depth, 3):
            sums += 1.0 + text.accepted_by_nodes(at, max_nodes, max_depth, kappa)
            places += 1
    return Foresight(
        runs=law_of(hits),
        tokens_by_nodes=tuple((sums / places).tolist()),
        first=ranks.count(0) / len(ranks),
    )


class _Text:
    """A text of the target's, and what the drafter thinks along it."""

    def __init__(
        self, law: Table, own: Table, noise: GumbelNoise, temperature: float, seed: int
    ) -> None:
        self._order, self._vocab = max(law.order, own.order), law.vocab_size
        self._own_contexts = self._vocab**own.order
        inverse = 1.0 / temperature if temperature > 0.0 else 1.0
        scale = 1.0 if temperature > 0.0 else 0.0
        rows = noise.rows(seed, 0, TEXT_TOKENS + 16).numpy().astype(np.float64)
        self._noise = scale * rows
        self._own = own.log_probs.reshape(-1, own.vocab_size)
        self._inverse = inverse
        self._cache: dict[tuple[int, int], tuple[list[int], list[float]]] = {}
        self._own_scores: Floats | None = None
        rows_of_law = law.log_probs.reshape(-1, law.vocab_size)
        generator = np.random.default_rng(seed)
        self.tokens: list[int] = generator.integers(0, self._vocab, 8).tolist()
        for at in range(8, TEXT_TOKENS):
            scores = (
                inverse * rows_of_law[self.context(at) % self._vocab**law.order] + self._noise[at]
            )
            self.tokens.append(int(scores.argmax()))
        self.places = range(8, TEXT_TOKENS)

    def context(self, at: int) -> int:
        """What a token depends on: the row of the law that looks further back. Those of the other are its last digits."""
        place = 0
        for token in self.tokens[at - self._order : at]:
            place = place * self._vocab + token
        return place

    def scores(self, context: int, at: int) -> Floats:
        """The drafter's scores of all tokens at a place."""
        own_V = self._own[context % self._own_contexts].astype(np.float64)
        scores: Floats = self._inverse * own_V + self._noise[at]
        return scores

    def log_likelihood(self, kappa: float) -> float:
        """Of the text, if tokens were drawn with softmax(kappa x scores)."""
        if self._own_scores is None:
            every = [self.scores(self.context(at), at) for at in self.places]
            self._own_scores = np.array(every)
        scaled = kappa * self._own_scores
        drawn = scaled[np.arange(len(scaled)), self.tokens[self.places.start :]]
        return float((drawn - np.logaddexp.reduce(scaled, axis=-1)).sum())

    def children(self, context: int, at: int, kappa: float = 1.0) -> tuple[list[int], list[float]]:
        """The drafter's children at a place, the likeliest first, and the probability that each is right."""
        known = self._cache.get((context, at))
        if known is None:
            scores = self.scores(context, at)
            best = np.argpartition(scores, -min(WIDTH, self._vocab))[-WIDTH:]
            best = best[np.argsort(-scores[best])]
            values = np.exp(kappa * (scores - scores[best[0]]))
            shares = values[best] / values.sum()
            known = self._cache[(context, at)] = (best.tolist(), shares.tolist())
        return known

    def accepted_by_nodes(self, at: int, max_nodes: int, max_depth: int, kappa: float) -> Floats:
        """Levels of the text that lie in the best tree of 0, 1, ... nodes below a place."""
        modulus = self._vocab**self._order
        heap: list[tuple[float, int, int, int, bool]] = []
        order = 0

        def offer(value: float, context: int, depth: int, is_on: bool) -> None:
            nonlocal order
            if depth >= max_depth or at + depth >= len(self.tokens):
                return
            tokens, shares = self.children(context, at + depth, kappa)
            for token, share in zip(tokens, shares, strict=True):
                below = (context * self._vocab + token) % modulus if self._order else 0
                is_right = is_on and token == self.tokens[at + depth]
                heapq.heappush(heap, (-value * share, order, below, depth + 1, is_right))
                order += 1

        offer(1.0, self.context(at), 0, True)
        accepted = np.zeros(max_nodes + 1)
        level = 0
        for node in range(1, max_nodes + 1):
            if heap:
                value, _, context, depth, is_on = heapq.heappop(heap)
                if is_on:
                    level = depth
                offer(-value, context, depth, is_on)
            accepted[node] = level
        return accepted


PassSeconds = Callable[[int], float]
"""Seconds of a pass over so many rows."""


def ideal_speed_up(
    known: Foresight,
    *,
    sessions: int,
    target_s: PassSeconds,
    draft_s: PassSeconds,
    round_trip_s: float,
) -> float:
    """The speed-up over plain decoding that nothing can beat (`actors/speculation/ideal.py`).

    Args:
        known: What the drafter foresees.
        sessions: At once.
        target_s: Of the target, with the context that these have.
        draft_s: Of the drafter.
        round_trip_s: Between them.
    """
    unit_s = target_s(sessions)
    best = max(
        range(len(known.tokens_by_nodes)),
        key=lambda nodes: known.tokens_by_nodes[nodes] / target_s(sessions * (1 + nodes)),
    )
    return ideal(
        known.runs,
        tokens_per_pass=known.tokens_by_nodes[best],
        pass_cost=target_s(sessions * (1 + best)) / unit_s,
        draft_cost=draft_s(sessions) / unit_s,
        round_trip=round_trip_s / unit_s,
    )
