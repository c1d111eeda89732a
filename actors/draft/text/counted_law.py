"""Counts as a law: which token follows if those that followed so far are a sample, and how sure that is. Pure.

Of n places v stood at n_v. Its probability is taken as n_v / (n + 2), the frequency shrunk by n / (n + 2), since one or two places say
little. Under coupled sampling the target draws the token of the greatest log p + g with noise g that a drafter can compute, so tokens are ranked by
log((n_v + 1/2) / (n + 1)) + g. If p is right, then what has noise g is the draw with probability exp(-(1 - p) / p * exp(-g)): the greatest of
all others, a Gumbel variate of location log(1 - p), must be less than log p + g.

What comes out is no estimate yet: how often such candidates are right is learned while serving, for each *kind*: by how it was drawn, by the
length of the match, by rank and by this probability.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outrider.actors.draft.trees.calibration import Scoring, scoring_of
from outrider.actors.speculation.noise.token_noise import token_noise
from outrider.actors.speculation.options import Sampling

MATCHES = (2, 3, 5, 9)
"""Matched tokens from which on a match is of the next class."""

CHANCES = (0.1, 0.2, 0.34, 0.5, 0.65, 0.8, 0.9)
"""Probabilities from which on a candidate is of the next class; 0.34: more than a single place gives."""

_NUM_CHANCES, _NUM_MATCHES, _NUM_RANKS = len(CHANCES) + 1, len(MATCHES) + 1, 2
_PER_SCORING = _NUM_CHANCES * _NUM_MATCHES * _NUM_RANKS
NUM_KINDS = _PER_SCORING * len(Scoring)
"""Kinds of candidates of one source."""


def _priors() -> tuple[float, ...]:
    """What is believed of each kind at first: longer matches go on alike more often, and second choices are rarely right."""
    bounds = (0.0, *CHANCES, 1.0)
    middles = [(low + high) / 2.0 for low, high in itertools.pairwise(bounds)]
    return tuple(
        middle ** (1.0 / (1.0 + 0.5 * match)) * (0.4 if rank else 1.0)
        for _ in Scoring
        for match in range(_NUM_MATCHES)
        for rank in range(_NUM_RANKS)
        for middle in middles
    )


PRIORS = _priors()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A token that may be next."""

    token: int
    chance: float
    """Probability that it is the draw, as far as the counts tell."""


class CountedLaw:
    """How one session ranks what its counts offer."""

    def __init__(self, sampling: Sampling, verifier: str, *, source: int = 0) -> None:
        """
        Args:
            sampling: Of the session.
            verifier: Of the session.
            source: Which of a method's sources of counts this is for, from 0 on; each has kinds of its own.
        """
        self._scoring = scoring_of(sampling, verifier)
        self._seed = sampling.seed
        self._first = source * NUM_KINDS + self._scoring * _PER_SCORING
        self._noise: Callable[[int, int], float] | None = None
        if self._scoring is Scoring.COUPLED:
            self._noise = self._noise_of

    def ranked(self, counts: Sequence[tuple[int, int]], position: int) -> list[Ranked]:
        """Tokens, the likeliest first.

        Args:
            counts: (token, how often it followed), those of equal counts in the order in which they are preferred.
            position: Index of the token in the whole sequence.
        """
        total = sum(count for _, count in counts)
        if self._noise is None:
            best = sorted(counts, key=lambda pair: -pair[1])
            return [Ranked(token=token, chance=count / (total + 2)) for token, count in best]
        scored: list[tuple[float, Ranked]] = []
        for token, count in counts:
            noise, chance = self._noise(position, token), count / (total + 2)
            chance = math.exp(-(1.0 - chance) / chance * math.exp(-noise))
            score = math.log((count + 0.5) / (total + 1)) + noise
            scored.append((score, Ranked(token=token, chance=chance)))
        scored.sort(key=lambda pair: -pair[0])
        return [ranked for _, ranked in scored]

    def kind(self, *, match: int, rank: int, chance: float) -> int:
        """The kind of a candidate: those of one kind are right about equally often.

        Args:
            match: Tokens before it that agree with where it was found.
            rank: Siblings that are preferred to it.
            chance: See `Ranked.chance`.
        """
        which = bisect_right(MATCHES, match) * _NUM_RANKS + (rank > 0)
        return self._first + which * _NUM_CHANCES + bisect_right(CHANCES, chance)

    def _noise_of(self, position: int, token: int) -> float:
        return token_noise(self._seed, position, token)
