"""The pass written out gives the net's numbers, whatever its options."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.actors.draft.eagle.small_eagle import eagle_config, eagle_net

from outrider.actors.draft.eagle.eagle_forward import EagleForward, lines_of


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"has_head_norms": True},
        {"norm_before_residual": True},
        {"has_biases": True},
        {"num_heads": 4, "num_key_heads": 2},
        {"projects": True, "taps": ("norm",), "target_width": 12},
        {"fuses": False, "taps": ("norm",), "target_width": 12},
        {"num_drafted": 7},
        {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    ],
    ids=lambda options: ",".join(options) or "none",
)
@pytest.mark.parametrize("positions", [(3, 4, 9, 4), (2000, 2001, 2002, 5)], ids=["near", "far"])
def test_it_is_the_nets_pass(options: dict[str, object], positions: tuple[int, ...]) -> None:
    """Two texts of three rows and one: states and logits, also of positions that no table was made for yet."""
    config = eagle_config(**options)
    net = eagle_net(config, drafted=range(2, 9) if "num_drafted" in options else None)
    states, tokens = torch.randn(4, config.width), torch.tensor([3, 7, 1, 22])
    places = torch.tensor(positions)
    before = torch.randn(2, 5, 2, config.num_key_heads, config.head_dim)
    slots_E, lines_EN, places_R = lines_of(np.array([1, 1, 1, 0]))
    assert (slots_E.tolist(), places_R.tolist()) == ([1, 0], [0, 1, 2, 3])
    assert lines_EN.tolist() == [[0, 1, 2], [3, 0, 0]]
    lines = torch.from_numpy(lines_EN)
    # The net: every line with rows of its own, in the way of its modules.
    inputs, rotation = net.inputs(states, tokens), net.rotation(places)
    own = net.midlayer.keys_values(inputs, rotation)
    every = torch.cat((before, own[lines]), dim=1)
    seen = torch.rand(2, 1, 3, 8) < 0.7
    seen[..., 0] = True
    turned = rotation[0][lines], rotation[1][lines]
    wanted = net.midlayer(states[lines], inputs[lines], turned, every, seen)
    wanted = torch.cat((wanted[0], wanted[1, :1]))
    wanted_logits = net.logits(wanted)

    forward = EagleForward(net)
    around, queries, keys_values = forward.rows(states, tokens, places, max(positions) + 1)
    torch.testing.assert_close(keys_values, own, atol=1e-4, rtol=1e-4)
    found = forward.after(around, queries, every, seen, lines, torch.from_numpy(places_R))
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(forward.logits(found), wanted_logits, atol=1e-3, rtol=1e-4)
    # The net goes on working with the joined weights.
    again = net.midlayer(states[lines], inputs[lines], turned, every, seen)
    torch.testing.assert_close(again[0], wanted[:3], atol=1e-4, rtol=1e-4)
