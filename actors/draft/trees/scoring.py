"""From a draft model's logits to candidates: the tokens that the target is most likely to draw, and how likely each is.

Under coupled sampling the target adds noise fixed by (seed, position, token) to its scores and takes the best. The drafter adds the same
noise to its own, so that its best are the *likely draws* (Daliri et al. 2024, arXiv 2408.07978). Any choice is
exact; this is only about how often one matches. Options that exclude tokens are in `restrictions.py`.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.actors.draft.trees.calibration import LEAST, MOST, Scoring
from outrider.actors.draft.trees.forest import Float32s, Int64s
from outrider.actors.draft.trees.noise_window import NoiseWindow
from outrider.actors.draft.trees.recorded_choice import ChoiceInputs, LikelyTokens, RecordedChoice
from outrider.actors.draft.trees.token_places import Places, ScoredTokens
from outrider.actors.engine.graphs.cuda_graph import GraphRecorder
from outrider.actors.engine.staging import to_device, to_host
from outrider.actors.speculation.noise.gumbel import GumbelNoise, NoiseCache, pair_halves

CACHED_FROM = 4096
"""Token ids from which on a session's noise is kept for as many positions as its tree has, on a CPU; with fewer, that of all sessions
lies in one array with room for a whole window of each."""

_COUPLED = int(Scoring.COUPLED)

LEAST_SCORE = -1e9
"""Stands for minus infinity where scores are multiplied by probabilities of zero."""

FEW = 8
"""Tokens that the host looks for one after the other: each look takes a sixteenth of what `topk` does, which mispredicts a branch for
every few scores."""


class Scorer:
    """Scores tokens and chooses the children of nodes. Without gradients: to be used in inference mode."""

    def __init__(
        self,
        vocab_size: int,
        device: torch.device,
        width: int,
        num_sessions: int,
        *,
        recorder: GraphRecorder | None = None,
    ) -> None:
        """
        Args:
            vocab_size: Number of token ids.
            device: Where the logits are.
            width: Children of a node, at most.
            num_sessions: `Places.sessions_R` are below this.
            recorder: Records what small passes do; None: nothing is recorded.
        """
        self._noise = GumbelNoise(vocab_size, device)
        self._device = device
        self._width = min(width, vocab_size)
        self._is_cached = device.type == "cpu" and vocab_size >= CACHED_FROM
        self._window: NoiseWindow | None = None
        if device.type == "cpu" and not self._is_cached:
            self._window = NoiseWindow(self._noise, num_sessions)
        self._caches: dict[int, NoiseCache] = {}
        self._recorded: RecordedChoice | None = None
        if recorder is not None:
            self._recorded = RecordedChoice(self._likely, vocab_size, device, recorder)

    def forget(self, session: int) -> None:
        """Drops the noise of a session (`Places.sessions_R`)."""
        self._caches.pop(session, None)
        if self._window is not None:
            self._window.forget(session)

    def scores(self, logits_RV: torch.Tensor, places: Places) -> torch.Tensor:
        """What tokens are ranked by: logits over temperature, with the noise of their position where the target adds it too."""
        inverse_R1 = to_device(places.inverse_temperatures_R[:, None], self._device)
        is_coupled_R = places.scorings_R == _COUPLED
        num_coupled = int(np.count_nonzero(is_coupled_R))
        if not num_coupled:
            return logits_RV * inverse_R1
        if num_coupled == len(logits_RV):
            noise_RV = self._noise_of(
                places.seeds_R, places.lengths_R, places.depths_R, places.sessions_R
            )
            return torch.addcmul(noise_RV, logits_RV, inverse_R1)
        coupled_C = is_coupled_R.nonzero()[0]
        noise_CV = self._noise_of(
            places.seeds_R[coupled_C],
            places.lengths_R[coupled_C],
            places.depths_R[coupled_C],
            places.sessions_R[coupled_C],
        )
        index_C = to_device(coupled_C, self._device)
        return (logits_RV * inverse_R1).index_add_(0, index_C, noise_CV)

    def likely(
        self, logits_RV: torch.Tensor, places: Places, sharpness_R: NDArray[np.float64]
    ) -> ScoredTokens:
        """`choose` of `scores`, where nothing else comes between; the options of `places` are not looked at.

        Args:
            logits_RV: The model's.
            places: What decides the tokens.
            sharpness_R: As of `choose`.
        """
        recorded = self._recorded
        if recorded is None or len(logits_RV) > recorded.most:
            return self.choose(self.scores(logits_RV, places), sharpness_R)
        positions_R = (places.lengths_R + places.depths_R).view(np.uint64)
        return _scored(
            *recorded(
                logits_RV,
                pair_halves(places.seeds_R, positions_R),
                places.inverse_temperatures_R,
                sharpness_R.astype(np.float32),
                places.scorings_R == _COUPLED,
            )
        )

    def _likely(self, logits_RV: torch.Tensor, inputs: ChoiceInputs) -> LikelyTokens:
        """`likely` as work of the device alone."""
        noise_RV = self._noise.of_keys(inputs.halves_2R).mul_(inputs.is_coupled_R1)
        scores_RV = torch.addcmul(noise_RV, logits_RV, inputs.inverse_temperatures_R1)
        return self._chosen(scores_RV, inputs.sharpness_R1)

    def choose(self, scores_RV: torch.Tensor, sharpness_R: NDArray[np.float64]) -> ScoredTokens:
        """The best tokens of each row.

        Args:
            scores_RV: From `scores`; minus infinity excludes a token. Is written into.
            sharpness_R: What makes estimates of scores.
        """
        sharpness_R1 = to_device(sharpness_R.astype(np.float32)[:, None], self._device)
        chosen = self._chosen(scores_RV, sharpness_R1)
        # All are on their way before the first is waited for: a GPU is waited for once.
        coming = [to_host(each) for each in (chosen.stated_RW, chosen.slopes_RW, chosen.tokens_RW)]
        return _scored(*(arrived().numpy() for arrived in coming))

    def _chosen(self, scores_RV: torch.Tensor, sharpness_R1: torch.Tensor) -> LikelyTokens:
        shares_RV = (scores_RV * sharpness_R1).softmax(1)
        means_R1 = (scores_RV.clamp_(min=LEAST_SCORE) * shares_RV).sum(1, keepdim=True)
        best_RW, ids_RW = best_tokens_(scores_RV, self._width)
        return LikelyTokens(
            stated_RW=shares_RV.gather(1, ids_RW),
            slopes_RW=best_RW.sub_(means_R1),
            tokens_RW=ids_RW,
        )

    def _noise_of(
        self,
        seeds_C: NDArray[np.uint64],
        lengths_C: Int64s,
        depths_C: Int64s,
        sessions_C: Int64s,
    ) -> torch.Tensor:
        """The noise at some `Places`. A tensor that is not to be written into."""
        if self._window is not None:
            return self._window.rows(sessions_C, seeds_C, lengths_C, depths_C)
        if not self._is_cached:
            halves_2C = pair_halves(seeds_C, (lengths_C + depths_C).view(np.uint64))
            return self._noise.of_keys(to_device(halves_2C, self._device))
        ends = (sessions_C[1:] != sessions_C[:-1]).nonzero()[0] + 1
        bounds = [0, *ends.tolist(), len(sessions_C)]
        parts: list[torch.Tensor] = []
        for start, end in pairwise(bounds):
            session, seed = int(sessions_C[start]), int(seeds_C[start])
            cache = self._caches.get(session)
            if cache is None or cache.seed != seed:
                cache = self._caches[session] = NoiseCache(self._noise, seed)
            # Counted from the end of the text on, so that the cache keeps what shallower nodes need.
            first = int(lengths_C[start])
            parts.append(cache.rows_after(first, depths_C[start:end].tolist()))
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def _scored(stated_RW: Float32s, slopes_RW: Float32s, tokens_RW: Int64s) -> ScoredTokens:
    is_there_RW = stated_RW > 0.0
    estimates_RW = np.minimum(np.maximum(stated_RW, LEAST), MOST)
    if not is_there_RW.all():
        estimates_RW = np.where(is_there_RW, estimates_RW, np.float32(0.0))
        slopes_RW = np.where(is_there_RW, slopes_RW, np.float32(0.0))
    return ScoredTokens(tokens_RW=tokens_RW, estimates_RW=estimates_RW, slopes_RW=slopes_RW)


def best_tokens_(scores_RV: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores and ids of the best tokens, as `topk` gives them but for the order of equal ones.

    Args:
        scores_RV: Finite, and float32 where they are on the host. May be written into.
        count: Tokens of a row, at most as many as there are.

    Shapes:
        returns: (R, count) each.
    """
    if count > FEW or scores_RV.device.type != "cpu":
        best_RW, ids_RW = scores_RV.topk(count)
        return best_RW, ids_RW
    scores = scores_RV.contiguous().numpy()
    flat = scores.reshape(-1)
    starts_R = np.arange(len(scores)) * scores.shape[1]
    best = np.empty((len(scores), count), scores.dtype)
    ids = np.empty((len(scores), count), np.int64)
    for place in range(count):
        ids_R = scores.argmax(axis=1)
        ids[:, place] = ids_R
        ids_R += starts_R
        best[:, place] = flat.take(ids_R)
        flat.put(ids_R, -np.inf)
    return torch.from_numpy(best), torch.from_numpy(ids)
