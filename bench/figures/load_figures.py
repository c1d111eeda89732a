"""What a run of many requests amounts to, ours and transformers': the figures of a result row. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

from outrider.client.measuring.figures import Figures, percentile


def numbers(result: Figures) -> dict[str, float]:
    """Of a run of ours."""
    return {
        "tokens_per_s": result.tokens_per_s,
        "first_token_p50_s": result.first_token_p50_s or 0.0,
        "first_token_p99_s": result.first_token_p99_s or 0.0,
        "token_p50_s": result.token_p50_s or 0.0,
        "token_p99_s": result.token_p99_s or 0.0,
        "tokens_per_pass": result.mean_tokens_per_pass,
        "candidate_rounds_share": result.rounds / max(result.rounds + result.plain_passes, 1),
        "bytes_per_token": result.wire_bytes_per_token,
    }


def continuous_figures(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Medians over the runs of transformers' continuous batching, or why there are none."""
    reasons = [answer["unavailable"] for answer in answers if "unavailable" in answer]
    if reasons:
        return {"unavailable": reasons[0]}
    found = {
        "tokens_per_s": median([answer["tokens_per_s"] for answer in answers]),
        "token_mean_s": median([fmean(answer["token_s"]) for answer in answers]),
    }
    for name in ("first_token_s", "token_s"):
        for share, label in ((0.5, "p50"), (0.99, "p99")):
            values = [percentile(answer[name], share) or 0.0 for answer in answers]
            found[f"{name.removesuffix('_s')}_{label}_s"] = median(values)
    return found
