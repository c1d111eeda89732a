"""Linear layers with packed weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from outrider.actors.engine import packed_linear
from outrider.actors.engine.packed_linear import (
    MOST_ROWS,
    PackedLinear,
    can_pack,
    fewest_rows,
    pack_linears,
    should_pack,
)


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 16, 64, MOST_ROWS + 1])
def test_packed_layer_gives_the_same_product(rows: int, has_bias: bool) -> None:
    """Up to rounding, whatever the number of rows."""
    generator = torch.Generator().manual_seed(rows)
    layer = nn.Linear(40, 24, bias=has_bias)
    input_1NI = torch.randn(1, rows, 40, generator=generator)
    with torch.inference_mode():
        torch.testing.assert_close(
            PackedLinear(layer)(input_1NI), layer(input_1NI), rtol=1e-5, atol=1e-5
        )


def test_parameters_stay_shared_with_the_embedding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packing replaces layers, not parameters: names, ties and counts stay."""
    model = nn.Sequential(nn.Embedding(30, 8), nn.Linear(8, 8), nn.Linear(8, 30, bias=False))
    model[2].weight = model[0].weight
    before = {name: id(p) for name, p in model.named_parameters()}
    monkeypatch.setattr(packed_linear, "fewest_rows", lambda shape, **_: 3)
    assert pack_linears(model) == (2 if can_pack() else 0)
    assert {name: id(p) for name, p in model.named_parameters()} == before


def test_shapes_that_do_not_gain_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which layers are packed, and from how many rows on, is what was timed."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 30))
    monkeypatch.setattr(packed_linear, "fewest_rows", lambda shape, **_: 6 if shape[0] == 30 else 0)
    packed = pack_linears(model)
    assert packed == (1 if can_pack() else 0)
    assert type(model[0]) is nn.Linear
    if packed:
        assert model[1].fewest_rows == 6


def test_timing_gives_a_tried_number() -> None:
    """Zero, or one of the numbers of rows that were tried."""
    if can_pack():
        assert fewest_rows(torch.Size((64, 64))) in (0, *packed_linear.TRIED_ROWS)


def test_only_float32_is_packed() -> None:
    """Other types have kernels of their own."""
    assert pack_linears(nn.Sequential(nn.Linear(8, 8, dtype=torch.bfloat16))) == 0


def test_large_models_are_packed_only_if_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy takes memory."""
    layer = nn.Linear(8, 8)
    assert should_pack(layer, None)
    assert not should_pack(layer, False)
    monkeypatch.setattr(packed_linear, "LARGEST_BYTES", 100)
    assert not should_pack(layer, None)
    assert should_pack(layer, True)


def test_models_on_other_devices_are_not_packed() -> None:
    """The packed product is a CPU's."""
    with torch.device("meta"):
        assert not should_pack(nn.Linear(8, 8), True)
