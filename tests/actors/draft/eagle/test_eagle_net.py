"""The net of EAGLE-3: its equations, its names, and what it proposes."""

from __future__ import annotations

import pytest
import torch
from tests.actors.draft.eagle.small_eagle import eagle_config, eagle_net, eagle_states, plainly

from outrider.actors.draft.eagle.eagle_config import EagleConfig
from outrider.actors.draft.eagle.eagle_net import EagleNet


@pytest.mark.parametrize("has_head_norms", [False, True])
def test_all_rows_at_once_are_the_equations(has_head_norms: bool) -> None:
    """One pass with a causal mask, against one row after another in plain arithmetic."""
    net = eagle_net(eagle_config(has_head_norms=has_head_norms))
    tokens, features = [3, 7, 1, 22, 9, 9], eagle_states(net.config, 5)
    states = net.fused(torch.from_numpy(features))[None]
    positions, read = torch.arange(1, 6)[None], torch.tensor([tokens[1:]])
    every = net.keys_values(net.inputs(states, read), positions)[0]
    seen = torch.ones(5, 5, dtype=torch.bool).tril()[None, None]
    found = net(states, read, positions, every, seen)[0]
    torch.testing.assert_close(
        found, torch.stack(plainly(net, features, tokens)), atol=1e-4, rtol=1e-4
    )


def test_only_mapped_ids_can_be_proposed() -> None:
    """Each with the logit of its own row of the target's head; all others are excluded."""
    drafted = [2, 3, 11, 23]
    net = eagle_net(eagle_config(num_drafted=4), drafted=drafted)
    full = eagle_net(eagle_config())
    net.norm.load_state_dict(full.norm.state_dict())
    states = torch.randn(3, 12)
    found, expected = net.logits(states), full.logits(states)
    assert net.d2t is not None
    assert net.d2t.tolist() == [2, 2, 9, 20]
    torch.testing.assert_close(found[:, drafted], expected[:, drafted])
    others = [token for token in range(24) if token not in drafted]
    assert torch.isinf(found[:, others]).all()


def test_names_and_shapes_are_those_of_the_authors() -> None:
    """Weights of a whole net with nothing borrowed, as literals."""
    net = eagle_net(eagle_config(owns_embedding=True, owns_head=True, num_drafted=4))
    shapes = {name: tuple(one.shape) for name, one in net.state_dict().items()}
    assert shapes == {
        "fc.weight": (12, 2 * 24),
        "midlayer.input_layernorm.weight": (12,),
        "midlayer.hidden_norm.weight": (12,),
        "midlayer.self_attn.q_proj.weight": (12, 24),
        "midlayer.self_attn.k_proj.weight": (6, 24),
        "midlayer.self_attn.v_proj.weight": (6, 24),
        "midlayer.self_attn.o_proj.weight": (12, 12),
        "midlayer.post_attention_layernorm.weight": (12,),
        "midlayer.mlp.gate_proj.weight": (20, 12),
        "midlayer.mlp.up_proj.weight": (20, 12),
        "midlayer.mlp.down_proj.weight": (12, 20),
        "norm.weight": (12,),
        "embed_tokens.weight": (24, 12),
        "lm_head.weight": (4, 12),
        "d2t": (4,),
    }


@pytest.mark.parametrize("flag", ["norm_before_fc", "norm_each_tap", "norm_before_residual"])
def test_flags_of_later_checkpoints_change_what_is_computed(flag: str) -> None:
    """Each of them alone; a norm with weights of one leaves the size of what it norms out."""
    plain, flagged = eagle_net(eagle_config()), eagle_net(eagle_config(**{flag: True}))
    flagged.load_state_dict(plain.state_dict(), strict=False)
    for norm in (flagged.input_norm, *flagged.fc_norm):
        if norm is not None:
            norm.weight.fill_(1.0)
    features = torch.from_numpy(eagle_states(plain.config, 1))
    read, position = torch.tensor([[4]]), torch.tensor([[1]])

    def run(net: EagleNet, scale: float) -> torch.Tensor:
        states = net.fused(scale * features)[None]
        every = net.keys_values(net.inputs(states, read), position)[0]
        after: torch.Tensor = net(states, read, position, every, torch.ones(1, 1, 1, 1).bool())
        return after

    assert not torch.allclose(run(plain, 1.0), run(plain, 3.0), atol=1e-3)
    torch.testing.assert_close(run(flagged, 1.0), run(flagged, 3.0), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inner": 0}, "inner"),
        ({"num_drafted": 25}, "num_drafted"),
        ({"num_key_heads": 3}, "num_heads"),
        ({"head_dim": 5}, "head_dim"),
        ({"taps": ()}, "taps"),
        ({"norm_before_fc": True, "norm_each_tap": True}, "exclude"),
    ],
)
def test_wrong_eagle_shapes_are_refused(changes: dict[str, object], message: str) -> None:
    """With the field's name."""
    with pytest.raises(ValueError, match=message):
        eagle_config(**changes)


def test_an_eagle_shape_survives_its_file() -> None:
    """And what is unknown does not pass."""
    config = eagle_config(num_drafted=4)
    assert EagleConfig.from_json(config.as_json()) == config
    with pytest.raises(ValueError, match="gamma"):
        EagleConfig.from_json({**config.as_json(), "gamma": 7})
