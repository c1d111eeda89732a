"""From the model's logits to the scores whose softmax is the request's target distribution.

In this order, each on the result of the one before, in float32:

1. `logit_bias` is added; a bias of -100 or less excludes the token.
2. `repetition_penalty` divides positive and multiplies other scores of tokens in prompt or output.
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
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from outrider.actors.speculation.filters import keep_most_probable
from outrider.actors.speculation.options import Sampling

_EXCLUDING_BIAS = -100.0
"""A logit bias at or below this excludes the token altogether."""

_LOW_TEMPERATURE = 0.1
"""Below this the greatest score is moved to 0 before dividing: else float32 has too few digits left for the noise."""


def is_plain(sampling: Sampling) -> bool:
    """True if nothing but the temperature stands between the logits and the scores."""
    return (
        not sampling.uses_counts()
        and not sampling.logit_bias
        and sampling.min_tokens == 0
        and (is_greedy(sampling) or not _filters(sampling))
    )


def is_greedy(sampling: Sampling) -> bool:
    """True if the most probable token is chosen without noise: the temperature is 0 in float32."""
    return float(torch.tensor(sampling.temperature, dtype=torch.float32)) == 0.0


def _filters(sampling: Sampling) -> bool:
    return sampling.top_k > 0 or sampling.top_p < 1.0 or sampling.min_p > 0.0


def apply_temperature(logits_NV: Tensor, temperatures_N1: Tensor) -> Tensor:
    """Divide each row by its temperature: what `SamplingTransform` does for plain sampling, many sessions at once.

    Args:
        logits_NV: float32; rows of sessions for which `is_plain` is true and `is_greedy` false.
        temperatures_N1: float32, at least 0.1; lower ones need the session's own `SamplingTransform`.
    """
    return logits_NV / temperatures_N1


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
        self._filters = self.uses_noise and _filters(sampling)
        self._counts_tokens = sampling.uses_counts()
        penalised_prompt = sampling.repetition_penalty != 1.0
        self._seen = dict.fromkeys(prompt if penalised_prompt else ())
        self._counts: Counter[int] = Counter()
        self._seen_ids_S = self._ids_tensor(list(self._seen))
        self._counts_S = torch.zeros(len(self._seen), dtype=torch.float32, device=device)
        self._stale = False

    def commit(self, tokens: Sequence[int]) -> None:
        """Count tokens that have become part of the output."""
        if self._counts_tokens and tokens:
            self._counts.update(tokens)
            self._seen.update(dict.fromkeys(tokens))
            self._stale = True

    def apply(
        self, logits_NV: Tensor, paths_N: Sequence[Sequence[int]], num_output_N: Sequence[int]
    ) -> Tensor:
        """Return the scores; the target distribution of row n is softmax(scores[n]).

        The result may be `logits_NV` itself where nothing is to be done; it is not to be written into.

        Shapes:
            logits_NV: float32, of the model.
            paths_N: the candidate tokens between the committed output and row n, in order.
            num_output_N: how many tokens are output before row n's draw, those on its path included.
        """
        scores_NV = logits_NV
        if self._bias_V is not None:
            scores_NV = scores_NV + self._bias_V
        if self._counts_tokens:
            scores_NV = self._penalise_all(scores_NV, paths_N)
        if self.sampling.min_tokens and self._stop_ids:
            scores_NV = self._forbid_stopping(scores_NV, num_output_N)
        if self._divides:
            if self.sampling.temperature < _LOW_TEMPERATURE:
                scores_NV = scores_NV - _greatest(scores_NV)
            scores_NV = scores_NV / self._temperature
        if self._filters:
            scores_NV = self._filter(scores_NV)
        return scores_NV

    def _filter(self, scores_NV: Tensor) -> Tensor:
        sampling = self.sampling
        filtered_NV = scores_NV
        if sampling.top_k > 0 or sampling.top_p < 1.0:
            filtered_NV = keep_most_probable(scores_NV, top_k=sampling.top_k, top_p=sampling.top_p)
        if sampling.min_p > 0.0:
            below_NV = scores_NV - _greatest(scores_NV) < math.log(sampling.min_p)
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

    def _penalise_all(self, scores_NV: Tensor, paths_N: Sequence[Sequence[int]]) -> Tensor:
        """Penalise the committed tokens in every row at once, then those on a row's path in that row."""
        self._refresh()
        penalised_NV = scores_NV.clone()
        seen_NS = scores_NV.index_select(1, self._seen_ids_S)
        penalised_NV.index_copy_(1, self._seen_ids_S, self._penalise(seen_NS, self._counts_S))
        rows: list[int] = []
        ids: list[int] = []
        counts: list[int] = []
        for row, path in enumerate(paths_N):
            for token_id, count in Counter(path).items():
                rows.append(row)
                ids.append(token_id)
                counts.append(self._counts[token_id] + count)
        if rows:
            at_P = (self._ids_tensor(rows), self._ids_tensor(ids))
            counts_P = torch.tensor(counts, dtype=torch.float32, device=self._device)
            penalised_NV[at_P] = self._penalise(scores_NV[at_P], counts_P)
        return penalised_NV

    def _penalise(self, scores: Tensor, counts: Tensor) -> Tensor:
        """Penalise scores of tokens that prompt or output contain, `counts` times in the output; elementwise."""
        sampling = self.sampling
        if sampling.repetition_penalty != 1.0:
            penalty = torch.tensor(sampling.repetition_penalty, device=self._device)
            scores = torch.where(scores > 0, scores / penalty, scores * penalty)
        presence = (counts > 0).to(torch.float32) * sampling.presence_penalty
        return scores - (presence + counts * sampling.frequency_penalty)

    def _refresh(self) -> None:
        """Bring the tensors of seen tokens up to date with what has been committed."""
        if self._stale:
            self._seen_ids_S = self._ids_tensor(list(self._seen))
            self._counts_S = torch.tensor(
                [self._counts[token_id] for token_id in self._seen],
                dtype=torch.float32,
                device=self._device,
            )
            self._stale = False

    def _ids_tensor(self, ids: Sequence[int]) -> Tensor:
        return torch.tensor(ids, dtype=torch.long, device=self._device)


def _greatest(scores_NV: Tensor) -> Tensor:
    """The greatest score of each row, (N, 1); finite even if everything is excluded."""
    return scores_NV.amax(dim=-1, keepdim=True).clamp_(min=torch.finfo(torch.float32).min)


def _stop_ids(sampling: Sampling, eos_token_ids: Sequence[int], vocab_size: int) -> list[int]:
    """What ends the output, ascending: end-of-text unless ignored, and the request's own stop tokens."""
    for token_id in sampling.stop_token_ids:
        _check_id("stop_token_ids", token_id, vocab_size)
    eos = () if sampling.ignore_eos else tuple(eos_token_ids)
    return sorted({token_id for token_id in (*eos, *sampling.stop_token_ids)})


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
