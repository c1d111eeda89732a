"""Log-probabilities as reported to the client: of the model's own distribution, before any sampling option."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Logprobs:
    """Natural log-probabilities of chosen tokens and of the most probable ones."""

    chosen_N: Tensor
    """float32."""

    top_ids_NK: Tensor
    """int64, in descending order of probability, equal ones by ascending id."""

    top_NK: Tensor
    """float32."""


def logprobs(logits_NV: Tensor, ids_N: Tensor, k: int) -> Logprobs:
    """Report the log-probability of `ids_N` and of the `k` most probable tokens (fewer if V is less).

    Args:
        logits_NV: float32, as the model gave them.
        ids_N: int64, one token id a row.
        k: Number of alternatives; may be 0.
    """
    return _report(logits_NV, ids_N, _top_ids(logits_NV, min(k, logits_NV.shape[1])))


def logprobs_on_device(logits_NV: Tensor, ids_N: Tensor, k: int) -> Logprobs:
    """As `logprobs`, without asking the host."""
    top_ids_NK = logits_NV.argsort(descending=True, stable=True)[:, :k]
    return _report(logits_NV, ids_N, top_ids_NK)


def _report(logits_NV: Tensor, ids_N: Tensor, top_ids_NK: Tensor) -> Logprobs:
    normaliser_N1 = logits_NV.logsumexp(dim=1, keepdim=True)
    return Logprobs(
        chosen_N=(logits_NV.gather(1, ids_N.unsqueeze(1)) - normaliser_N1).squeeze(1),
        top_ids_NK=top_ids_NK,
        top_NK=logits_NV.gather(1, top_ids_NK) - normaliser_N1,
    )


def _top_ids(logits_NV: Tensor, k: int) -> Tensor:
    """The k greatest of each row in descending order, lower ids first among equals; int64 (N, k)."""
    if k == 0:
        return logits_NV.topk(0).indices
    best_NK, ids_NK = logits_NV.topk(k)
    least_N1 = best_NK[:, -1:]
    num_reaching_N = (logits_NV >= least_N1).sum(dim=1)
    ids_NK = ids_NK.sort().values
    order_NK = logits_NV.gather(1, ids_NK).argsort(descending=True, stable=True)
    ids_NK = ids_NK.gather(1, order_NK)
    for row in (num_reaching_N > k).nonzero().flatten().tolist():
        ids_NK[row] = logits_NV[row].argsort(descending=True, stable=True)[:k]
    return ids_NK
