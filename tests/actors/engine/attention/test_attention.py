"""The kernel's plain path, and where a registered function must not be called from."""

from __future__ import annotations

import pytest
import torch

from outrider.actors.engine.attention.attention import AttentionParams, attend, attend_plainly
from outrider.actors.engine.attention.attention_hook import tree_attention


def states(key_heads: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Random queries of 4 heads, keys, values and a mask."""
    generator = torch.Generator().manual_seed(key_heads)
    query = torch.randn(2, 4, 3, 8, generator=generator)
    keys = torch.randn(2, key_heads, 5, 8, generator=generator)
    values = torch.randn(2, key_heads, 5, 6, generator=generator)
    mask = torch.zeros(3, 5)
    mask[0, 2:] = mask[1, 1] = -torch.inf
    return query, keys, values, mask


@pytest.mark.parametrize("key_heads", [1, 2, 4])
def test_plain_attention_is_the_kernels(key_heads: int) -> None:
    """Step by step, or with a cap or a sink that does nothing, comes what the kernel gives, with grouped heads too."""
    query, keys, values, mask = states(key_heads)
    fused = attend(query, keys, values, mask, AttentionParams(scaling=0.3))
    no_sink = torch.full((4,), -torch.inf)
    for softcap, sinks in [(None, None), (1e4, None), (None, no_sink)]:
        plain = attend_plainly(
            query, keys, values, mask, AttentionParams(scaling=0.3, softcap=softcap, sinks=sinks)
        )
        torch.testing.assert_close(plain, fused, atol=1e-5, rtol=0)
    every = attend_plainly(query, keys, values, None, AttentionParams(scaling=None))
    fused = attend(query, keys, values, None, AttentionParams(scaling=None))
    torch.testing.assert_close(every, fused, atol=1e-5, rtol=0)


def test_sinks_take_their_share() -> None:
    """A sink is one more key, of its head's score and without a value."""
    query, keys, values, mask = states(4)
    sinks = torch.tensor([0.5, -1.0, 2.0, 0.0])
    scores = query @ keys.transpose(-1, -2) * 0.3 + mask
    shares = scores.exp() / (scores.exp().sum(-1, keepdim=True) + sinks.exp().view(4, 1, 1))
    actual = attend_plainly(query, keys, values, mask, AttentionParams(scaling=0.3, sinks=sinks))
    torch.testing.assert_close(actual, shares @ values, atol=1e-5, rtol=0)


def test_softcap_bounds_scores() -> None:
    """Under a cap near zero all visible rows weigh alike."""
    query, keys, values, mask = states(2)
    actual = attend_plainly(query, keys, values, mask, AttentionParams(scaling=0.3, softcap=1e-4))
    mean = values[:, :, :2].mean(dim=2)
    torch.testing.assert_close(actual[:, 0, 0], mean[:, 0], atol=1e-3, rtol=0)


def test_a_taken_over_model_says_so() -> None:
    """A model whose engine is bypassed fails with the reason, not with wrong logits."""
    zeros = torch.zeros(1, 1, 1, 4)
    with pytest.raises(RuntimeError, match="call the engine's forward"):
        tree_attention(torch.nn.Module(), zeros, zeros, zeros, None)
