"""From the model's logits to the scores whose softmax is the request's target distribution.

In this order, each on the result of the one before, in float32:

1. `logit_bias` is added; a bias of -100 or less excludes the token.
2. `repetition_penalty` divides positive and multiplies other scores of tokens in prompt or output, up to 1e37.
3. `presence_penalty` (once) plus `frequency_penalty` (times the count) is subtracted from tokens in the output.
4. `min_tokens`: while fewer tokens have been output, the end-of-text tokens (unless `ignore_eos`) and
   `stop_token_ids` are excluded.
5. `temperature` divides. At 0 the scores stay as they are, the greatest is chosen without noise, and the filters
   below, which never remove the greatest, are skipped.
6. Filters. Order tokens by descending score, equal scores by ascending id. `top_k` keeps the first k. `top_p` keeps
   the shortest prefix of what remains whose share of what remains reaches p, never less than one token. `min_p` keeps
   scores of at least the greatest + ln(min_p).

"Output" means the committed tokens and, in a candidate tree, the tokens on the path to the row: a row below a
candidate is scored as if the candidate had been committed. Whether a row is scored alone, in a tree or in a batch
does not change one bit of it: everything is elementwise, a maximum, or a sum of integers (`top_p` adds up weights
rounded to multiples of 2^-40 of the greatest).

Called by the target for its draws and by drafters for their candidates. Nothing here writes into its inputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from outrider.actors.speculation.options import Sampling
from outrider.actors.speculation.sampling.filters import greatest, keep_most_probable
from outrider.actors.speculation.sampling.penalties import Penalties

_EXCLUDING_BIAS = -100.0
"""A logit bias at or below this excludes the token altogether."""

_LOW = 0.1
"""Of temperature and repetition penalty. Below this the greatest score is moved to 0 before the temperature divides: else float32 has
too few digits left for the noise."""


def is_plain(sampling: Sampling) -> bool:
    """True if one division by the temperature, or nothing if it is 0, makes the scores of the logits, with the bits of `SamplingTransform`."""
    if sampling.uses_counts() or sampling.logit_bias or sampling.min_tokens > 0:
        return False
    if is_greedy(sampling):
        return True
    return sampling.temperature >= _LOW and not _filters(sampling)


def is_greedy(sampling: Sampling) -> bool:
    """True if the most probable token is chosen without noise: the temperature is 0 in float32."""
    return float(torch.tensor(sampling.temperature, dtype=torch.float32)) == 0.0


def _filters(sampling: Sampling) -> bool:
    return sampling.top_k > 0 or sampling.top_p < 1.0 or sampling.min_p > 0.0


class SamplingTransform:
    """The transformation of one session: its options, and the counts of its committed tokens."""

    def __init__(
        self,
        sampling: Sampling,
        *,
        vocab_size: int,
        prompt: Sequence[int],
        eos_token_ids: Sequence[int],
        device: torch.device,
    ) -> None:
        """Prepare the transformation for a session that has output nothing yet.

        Raises:
            ValueError: If `logit_bias`, or it and the stop tokens that `min_tokens` forbids, exclude every token, or
                if an option names a token id outside the vocabulary.
        """
        self.sampling = sampling
        self.vocab_size = vocab_size
        self.uses_noise = not is_greedy(sampling)
        self._device = device
        self._stop_ids = _stop_ids(sampling, eos_token_ids, vocab_size)
        self._bias_V = _bias(sampling, vocab_size, device)
        _check_something_remains(sampling, self._stop_ids, vocab_size)
        self._stop_ids_S = torch.tensor(self._stop_ids, dtype=torch.long, device=device)
        self._temperature = torch.tensor(sampling.temperature, dtype=torch.float32, device=device)
        self._divides = self.uses_noise and sampling.temperature != 1.0
        least = min(sampling.temperature, sampling.repetition_penalty)
        self._moves = self.uses_noise and least < _LOW
        self._filters = self.uses_noise and _filters(sampling)
        self._penalties = Penalties(sampling, prompt, device) if sampling.uses_counts() else None

    def commit(self, tokens: Sequence[int]) -> None:
        """Count tokens that have become part of the output."""
        if self._penalties is not None:
            self._penalties.commit(tokens)

    def apply(
        self, logits_NV: Tensor, paths_N: Sequence[Sequence[int]], num_output_N: Sequence[int]
    ) -> Tensor:
        """Return the scores; the target distribution of row n is softmax(scores[n]).

        The result may be `logits_NV` itself where nothing is to be done; it is not to be written into.

        Shapes:
            logits_NV: float32, of the model.
            paths_N: the candidate tokens between the committed output and row n, in order.
            num_output_N: how many tokens are output before row n's draw, those on its path included.

        Raises:
            ValueError: If there is not one path and one number for each row.
        """
        if not len(logits_NV) == len(paths_N) == len(num_output_N):
            raise ValueError(
                f"{len(logits_NV)} rows of logits with {len(paths_N)} paths and "
                f"{len(num_output_N)} numbers of output tokens; give one of each for each row"
            )
        scores_NV = logits_NV
        if self._bias_V is not None:
            scores_NV = scores_NV + self._bias_V
        if self._penalties is not None:
            scores_NV = self._penalties.apply(scores_NV, paths_N)
        if self.sampling.min_tokens:
            scores_NV = self._forbid_stopping(scores_NV, num_output_N)
        if self._moves:
            scores_NV = scores_NV - greatest(scores_NV)
        if self._divides:
            scores_NV = scores_NV / self._temperature
        if self._filters:
            scores_NV = self._filter(scores_NV)
        return scores_NV

    def _filter(self, scores_NV: Tensor) -> Tensor:
        sampling = self.sampling
        filtered_NV = keep_most_probable(scores_NV, top_k=sampling.top_k, top_p=sampling.top_p)
        if sampling.min_p > 0.0:
            below_NV = scores_NV - greatest(scores_NV) < math.log(sampling.min_p)
            filtered_NV = filtered_NV.masked_fill(below_NV, -torch.inf)
        return filtered_NV

    def _forbid_stopping(self, scores_NV: Tensor, num_output_N: Sequence[int]) -> Tensor:
        rows = [n for n, num in enumerate(num_output_N) if num < self.sampling.min_tokens]
        if not rows:
            return scores_NV
        rows_R1 = torch.tensor(rows, device=self._device).unsqueeze(1)
        scores_NV = scores_NV.clone()
        scores_NV[rows_R1, self._stop_ids_S] = -torch.inf
        return scores_NV


def _stop_ids(sampling: Sampling, eos_token_ids: Sequence[int], vocab_size: int) -> list[int]:
    """What ends the output, ascending: end-of-text unless ignored, and the request's own stop tokens.

    A model may name end-of-text tokens that its vocabulary does not reach; these can never be drawn and are left out.
    """
    for token_id in sampling.stop_token_ids:
        _check_id("stop_token_ids", token_id, vocab_size)
    eos = () if sampling.ignore_eos else (i for i in eos_token_ids if 0 <= i < vocab_size)
    return sorted({*eos, *sampling.stop_token_ids})


def _bias(sampling: Sampling, vocab_size: int, device: torch.device) -> Tensor | None:
    if not sampling.logit_bias:
        return None
    bias_V = torch.zeros(vocab_size, dtype=torch.float32)
    for token_id, bias in sampling.logit_bias.items():
        _check_id("logit_bias", token_id, vocab_size)
        bias_V[token_id] = -torch.inf if bias <= _EXCLUDING_BIAS else bias
    return bias_V.to(device)


def _check_id(name: str, token_id: int, vocab_size: int) -> None:
    if not 0 <= token_id < vocab_size:
        raise ValueError(
            f"{name} names token id {token_id}; the vocabulary has ids 0 to {vocab_size - 1}"
        )


def _check_something_remains(sampling: Sampling, stop_ids: Sequence[int], vocab_size: int) -> None:
    excluded = {i for i, bias in sampling.logit_bias.items() if bias <= _EXCLUDING_BIAS}
    if len(excluded) >= vocab_size:
        raise ValueError(
            f"logit_bias excludes all {vocab_size} tokens; leave at least one above {_EXCLUDING_BIAS:g}"
        )
    if sampling.min_tokens > 0 and len(excluded.union(stop_ids)) >= vocab_size:
        raise ValueError(
            f"logit_bias excludes every token that does not end the output, and min_tokens is "
            f"{sampling.min_tokens}; leave such a token above {_EXCLUDING_BIAS:g} or set min_tokens to 0"
        )
