"""The kernel's plain path, and where a registered function must not be called from."""

from __future__ import annotations

import pytest
import torch

from outrider.actors.engine.attention import attend, tree_attention


@pytest.mark.parametrize("key_heads", [1, 2, 4])
def test_softcapped_attention_tends_to_the_kernel(key_heads: int) -> None:
    """With a cap far above all scores the plain path gives what the kernel gives, with grouped heads and a mask."""
    generator = torch.Generator().manual_seed(key_heads)
    query = torch.randn(2, 4, 3, 8, generator=generator)
    keys = torch.randn(2, key_heads, 5, 8, generator=generator)
    values = torch.randn(2, key_heads, 5, 6, generator=generator)
    mask = torch.zeros(3, 5)
    mask[0, 2:] = mask[1, 1] = -torch.inf
    fused = attend(query, keys, values, mask, 0.3, False, None)
    plain = attend(query, keys, values, mask, 0.3, False, 1e4)
    torch.testing.assert_close(plain, fused, atol=1e-5, rtol=0)
    capped = attend(query, keys, values, mask, 0.3, False, 0.1)
    assert (capped - fused).abs().max() > 0.1


def test_a_taken_over_model_says_so() -> None:
    """A model whose engine is bypassed fails with the reason, not with wrong logits."""
    states = torch.zeros(1, 1, 1, 4)
    with pytest.raises(RuntimeError, match="call the engine's forward"):
        tree_attention(torch.nn.Module(), states, states, states, None)
