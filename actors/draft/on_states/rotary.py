"""How fast each pair of numbers of a head turns with the position, as released checkpoints ask for it.

Sources: Su et al. 2021, arXiv 2104.09864; Chen et al. 2023, arXiv 2306.15595 (`linear`); Peng et al. 2023, arXiv 2309.00071 (`yarn`); the
configuration of Llama 3.1 (`llama3`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch


def frequencies(
    rotated: int, theta: float, scaling: Mapping[str, Any]
) -> tuple[torch.Tensor, float]:
    """Radians a position of each pair, and what cosines and sines are multiplied by.

    Args:
        rotated: Numbers of a head that are rotated.
        theta: Base of the powers.
        scaling: Parameters by transformers' names, with `rope_type`; empty: the plain kind.

    Returns:
        Float64 [rotated / 2], and a factor.
    """
    half = rotated // 2
    plain = theta ** -(torch.arange(half, dtype=torch.float64) / half)
    if not scaling:
        return plain, 1.0
    factor = float(scaling.get("factor", 1.0))
    if scaling["rope_type"] == "llama3":
        return _llama3(plain, factor, scaling), 1.0
    if scaling["rope_type"] == "yarn":
        return _yarn(plain, factor, theta, rotated, scaling), _yarn_gain(factor, scaling)
    return plain / factor, 1.0


def _llama3(plain: torch.Tensor, factor: float, scaling: Mapping[str, Any]) -> torch.Tensor:
    """Slow pairs are slowed down, fast ones stay, those between are mixed by how often they turned in the old context."""
    low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
    turns = plain * float(scaling["original_max_position_embeddings"]) / (2.0 * math.pi)
    share = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return plain * (share + (1.0 - share) / factor)


def _yarn(
    plain: torch.Tensor, factor: float, theta: float, rotated: int, scaling: Mapping[str, Any]
) -> torch.Tensor:
    """Likewise, mixed by the number of the pair."""
    old = scaling["original_max_position_embeddings"]

    def pair_of(turns: float) -> float:
        """The pair that turns so often in the old context."""
        return rotated * math.log(old / (turns * 2.0 * math.pi)) / (2.0 * math.log(theta))

    first = pair_of(float(scaling.get("beta_fast") or 32.0))
    last = pair_of(float(scaling.get("beta_slow") or 1.0))
    if scaling.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, rotated - 1)
    last += 0.001 if first == last else 0.0
    pairs = torch.arange(len(plain), dtype=torch.float64)
    slowed = ((pairs - first) / (last - first)).clamp(0.0, 1.0)
    return plain * (1.0 - slowed) + plain / factor * slowed


def _yarn_gain(factor: float, scaling: Mapping[str, Any]) -> float:
    if (given := scaling.get("attention_factor")) is not None:
        return float(given)

    def gain(scale: float) -> float:
        return 0.1 * scale * math.log(factor) + 1.0 if factor > 1.0 else 1.0

    mscale, whole = scaling.get("mscale"), scaling.get("mscale_all_dim")
    return gain(mscale) / gain(whole) if mscale and whole else gain(1.0)
