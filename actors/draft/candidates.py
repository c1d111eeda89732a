"""From a drafter's logits to candidates: the tokens that the target is most likely to draw.

Under coupled sampling the target adds noise fixed by (seed, position, token) to its scores and takes the best. The
drafter adds the same noise to its own, so that its best are the *likely draws* (Daliri et al. 2024, arXiv 2408.07978).
Any choice is exact; this is only about how often one matches. Truncating options are followed as far as they are cheap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from outrider.actors.draft.calibration import Feature, Scoring, score_features
from outrider.actors.speculation.noise import GumbelNoise, NoiseCache
from outrider.actors.speculation.options import Sampling, Verifier

NUM_PERTURBED = 32
"""Most probable tokens that noise is added to. Fewer: a rare draw is missed. More: more hashing at each node."""


class Candidate(NamedTuple):
    """A token that may be drawn, and how it stood among the others. Some dozens are made in each pass."""

    token: int
    feature: Feature


def scoring_of(sampling: Sampling, verifier: Verifier) -> Scoring:
    """How candidates of a session are scored."""
    if sampling.temperature <= 0.0:
        return Scoring.GREEDY
    return Scoring.COUPLED if verifier is Verifier.COUPLED else Scoring.BLIND


def is_quick(sampling: Sampling) -> bool:
    """True if nothing but the temperature stands between a session's logits and scores, as far as drafters care."""
    return not (
        sampling.logit_bias or sampling.top_k or sampling.top_p < 1.0 or sampling.min_p > 0.0
    )


class CandidateChooser:
    """Chooses the children of nodes from the logits at them."""

    def __init__(self, vocab_size: int, device: torch.device, width: int) -> None:
        """
        Args:
            vocab_size: Number of token ids.
            device: Where the logits are.
            width: Children of a node, at most.
        """
        self._noise = GumbelNoise(vocab_size, device)
        self._device = device
        self._width = min(width, vocab_size)
        self._num_perturbed = min(NUM_PERTURBED, vocab_size)
        # One more than the width: the runner-up tells how far ahead an only child is.
        self._num_kept = min(self._width + 1, self._num_perturbed)

    def noise_of(self, seed: int) -> NoiseCache:
        """The noise of a session, for `choose`."""
        return NoiseCache(self._noise, seed)

    def choose(
        self,
        logits_RV: torch.Tensor,
        samplings: Sequence[Sampling],
        scorings: Sequence[Scoring],
        positions: Sequence[int],
        noise_RV: torch.Tensor | None = None,
    ) -> list[list[Candidate]]:
        """Candidates for the token after each row.

        Args:
            logits_RV: float32 logits.
            samplings: What decides the token, for each row.
            scorings: How to score, for each row.
            positions: Index in the whole sequence of the token to choose, for each row.
            noise_RV: The noise at those positions, float32, if every row is scored with it and nothing but the
                temperature stands between logits and scores: the quick way, which then sees the whole vocabulary.

        Returns:
            For each row at least one and at most `width` candidates, the likeliest first.
        """
        if noise_RV is not None:
            return self._best(_noisy(logits_RV, samplings, noise_RV), scorings)
        if any(sampling.logit_bias for sampling in samplings):
            logits_RV = _biased(logits_RV, samplings)
        if all(scoring == Scoring.GREEDY for scoring in scorings):
            return self._best(logits_RV, scorings)
        values_RM, ids_RM = logits_RV.topk(self._num_perturbed, dim=-1)
        inverse_R = [1.0 / s.temperature if s.temperature > 0.0 else 1.0 for s in samplings]
        scores_RM = values_RM * torch.tensor(inverse_R, device=self._device).unsqueeze(1)
        if any(s.top_k or s.top_p < 1.0 or s.min_p > 0.0 for s in samplings):
            scores_RM = _restricted(scores_RM, samplings)
        scores_RM = self._perturbed(scores_RM, ids_RM, samplings, scorings, positions)
        best_RW, places_RW = scores_RM.topk(self._num_kept, dim=-1)
        rows = zip(best_RW.tolist(), ids_RM.gather(1, places_RW).tolist(), scorings, strict=True)
        return [self._candidates(scores, ids, scoring) for scores, ids, scoring in rows]

    def _best(self, scores_RV: torch.Tensor, scorings: Sequence[Scoring]) -> list[list[Candidate]]:
        best_RW, ids_RW = scores_RV.topk(self._num_kept, dim=-1)
        rows = zip(best_RW.tolist(), ids_RW.tolist(), scorings, strict=True)
        return [self._candidates(scores, ids, scoring) for scores, ids, scoring in rows]

    def _perturbed(
        self,
        scores_RM: torch.Tensor,
        ids_RM: torch.Tensor,
        samplings: Sequence[Sampling],
        scorings: Sequence[Scoring],
        positions: Sequence[int],
    ) -> torch.Tensor:
        rows = [row for row, scoring in enumerate(scorings) if scoring == Scoring.COUPLED]
        if not rows:
            return scores_RM
        seeds = [samplings[row].seed for row in rows]
        places = [positions[row] for row in rows]
        if len(rows) == len(scorings):
            return scores_RM + self._noise.at_many(seeds, places, ids_RM)
        index_C = torch.tensor(rows, device=self._device)
        noise_CM = self._noise.at_many(seeds, places, ids_RM[index_C])
        return scores_RM.index_add(0, index_C, noise_CM)

    def _candidates(self, scores: list[float], ids: list[int], scoring: Scoring) -> list[Candidate]:
        while len(scores) > 1 and scores[-1] == -math.inf:
            scores.pop()
        features = score_features(scoring, scores)
        return list(map(Candidate, ids[: self._width], features))


def _noisy(
    logits_RV: torch.Tensor, samplings: Sequence[Sampling], noise_RV: torch.Tensor
) -> torch.Tensor:
    """Logits over temperatures, with noise."""
    inverses = [1.0 / sampling.temperature for sampling in samplings]
    if inverses.count(inverses[0]) == len(inverses):
        return torch.add(noise_RV, logits_RV, alpha=inverses[0])
    inverse_R = torch.tensor(inverses, device=logits_RV.device)
    return noise_RV.addcmul(logits_RV, inverse_R.unsqueeze(1))


def _biased(logits_RV: torch.Tensor, samplings: Sequence[Sampling]) -> torch.Tensor:
    logits_RV = logits_RV.clone()
    for row, sampling in enumerate(samplings):
        for token, bias in sampling.logit_bias.items():
            logits_RV[row, token] = -math.inf if bias <= -100.0 else logits_RV[row, token] + bias
    return logits_RV


def _restricted(scores_RM: torch.Tensor, samplings: Sequence[Sampling]) -> torch.Tensor:
    """Excludes what top-k, top-p and min-p would, taking the M tokens for the whole vocabulary."""
    scores_RM = scores_RM.clone()
    for row, sampling in enumerate(samplings):
        scores_M = scores_RM[row]
        probs_M = torch.softmax(scores_M, dim=-1)
        keep_M = torch.ones_like(probs_M, dtype=torch.bool)
        if sampling.top_k:
            keep_M[sampling.top_k :] = False
        if sampling.top_p < 1.0:
            keep_M &= probs_M.cumsum(-1) - probs_M < sampling.top_p
        if sampling.min_p > 0.0:
            keep_M &= probs_M >= sampling.min_p * probs_M[0]
        keep_M[0] = True
        scores_M.masked_fill_(~keep_M, -math.inf)
    return scores_RM
