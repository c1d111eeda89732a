"""The trainer of EAGLE-3 nets: what it unrolls is what is drafted, and it goes on where it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.actors.draft.eagle.small_eagle import eagle_config, eagle_net, eagle_states, plainly

from outrider.actors.draft.eagle.eagle_file import load_eagle
from outrider.actors.train.eagle.eagle_evaluation import eagle_acceptance
from outrider.actors.train.eagle.eagle_objective import Unrolling, eagle_loss, reuse_loss
from outrider.actors.train.eagle.eagle_options import EagleTrainingOptions
from outrider.actors.train.features.output_layer import product
from outrider.actors.train.features.training_rows import HeldOut
from outrider.actors.train.methods.eagle3_trainer import run
from outrider.actors.train.training_errors import TrainError

TOKENS = torch.randint(24, (2, 10), generator=torch.Generator().manual_seed(1))


def test_every_step_is_what_would_be_drafted_there() -> None:
    """At each place, on the net's own states, seeing the target's up to there and its own steps; other places are not seen."""
    net = eagle_net()
    features = [eagle_states(net.config, 10, seed=seed) for seed in range(2)]
    both = torch.stack([torch.from_numpy(one) for one in features])
    for step, states in enumerate(Unrolling(net, TOKENS, both, 7).steps(3)):
        for row in range(2):
            for place in (0, 2, 6):
                text = TOKENS[row, : place + 2 + step].tolist()
                wanted = plainly(net, features[row][: place + 1], text)[-1]
                torch.testing.assert_close(states[row, place], wanted, atol=1e-3, rtol=1e-3)


def test_labels_stand_where_the_target_draws_them() -> None:
    """Step s of a place learns the law of position place + 1 + s and no other."""
    net = eagle_net(eagle_config(target_width=12, taps=(1,)))
    features = torch.from_numpy(eagle_states(net.config, 10))[None]
    last = torch.from_numpy(eagle_states(net.config, 10, seed=3))[None, :, 0]
    head = net.head()

    def loss(last: torch.Tensor) -> float:
        places = torch.tensor([[4]])
        given = {"num_steps": 2, "decay": 0.5, "output": product(head)}
        return eagle_loss(net, TOKENS[:1], features, last, places, **given).item()  # type: ignore[arg-type]

    other = last.clone()
    other[0, :5] = other[0, 7:] = 0.0
    assert loss(other) == pytest.approx(loss(last), rel=1e-5)
    for position in (5, 6):
        moved = last.clone()
        moved[0, position] = 0.0
        assert loss(moved) != pytest.approx(loss(last), rel=1e-3)


def test_the_map_of_kept_states_learns() -> None:
    """Alone: everything else is as it was, and it gets better at what it is for."""
    net = eagle_net(eagle_config(target_width=12, taps=(1,), reuse_rank=4))
    assert net.reuse_in is not None
    assert net.reuse_out is not None
    torch.nn.init.zeros_(net.reuse_out.weight)
    maps = [net.reuse_in.weight.requires_grad_(True), net.reuse_out.weight.requires_grad_(True)]
    optimizer = torch.optim.Adam(maps, lr=0.02)
    features = torch.stack([torch.from_numpy(eagle_states(net.config, 10, seed=n)) for n in (0, 1)])
    with torch.no_grad():
        # The target's law is the net's own, so that all that is lost is the token.
        unrolling = Unrolling(net, TOKENS, features, 8)
        _, second = unrolling.step(), unrolling.step()
    last = torch.zeros(2, 10, 12)
    last[:, 2:] = net.norm(second).detach()
    places = torch.arange(8).expand(2, -1)
    losses = []
    for _ in range(60):
        generator = torch.Generator().manual_seed(2)
        loss = reuse_loss(
            net, TOKENS, features, last, places, output=product(net.head()), generator=generator
        )
        losses.append(loss.item())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("given", [{}, {"num_drafted": 6}, {"num_drafted": 6, "owns_head": True}])
def test_every_weight_learns(given: dict[str, Any]) -> None:
    """Whichever tokens may be proposed, and whosever the head is: the layer in the first stage, the map of kept states in the second."""
    net = eagle_net(eagle_config(target_width=12, taps=(1,), reuse_rank=4, **given))
    maps = ("reuse_in.weight", "reuse_out.weight")
    features = torch.from_numpy(eagle_states(net.config, 10))[None]
    last = torch.from_numpy(eagle_states(net.config, 10, seed=3))[None, :, 0]
    head = torch.randn(24, 12, generator=torch.Generator().manual_seed(5))
    batch = (TOKENS[:1], features, last, torch.arange(8)[None])
    net.requires_grad_(True)
    eagle_loss(net, *batch, num_steps=2, decay=0.5, output=product(head)).backward()  # type: ignore[no-untyped-call]
    generator = torch.Generator().manual_seed(2)
    still = [n for n, one in net.named_parameters() if one.grad is None or not one.grad.any()]
    assert sorted(still) == sorted(maps)
    for name, one in net.named_parameters():
        one.requires_grad_(name in maps)
    reuse_loss(net, *batch, output=product(head), generator=generator).backward()  # type: ignore[no-untyped-call]
    assert all(net.get_parameter(name).grad is not None for name in maps)


def test_acceptance_of_a_net_that_agrees() -> None:
    """Its own draws against themselves, by depth; and against those of the place before."""
    net = eagle_net(eagle_config(target_width=12, taps=(1,)))
    features = torch.from_numpy(eagle_states(net.config, 10))[None]
    place, depth = 5, 3
    states = [one[0, place] for one in Unrolling(net, TOKENS[:1], features, 6).steps(depth)]
    last = torch.zeros(1, 10, 12)
    last[0, place + 1 : place + 1 + depth] = net.norm(torch.stack(states))
    rows = torch.cat((features[:, :, 0], last), dim=-1)
    held = HeldOut(TOKENS[:1], rows, place + 1)
    assert eagle_acceptance(net, held, product(net.head()), depth).first == (1.0,) * depth
    shifted = torch.cat((features[:, :, 0], last.roll(1, 1)), dim=-1)
    wrong = HeldOut(TOKENS[:1], shifted, place + 1)
    assert min(eagle_acceptance(net, wrong, product(net.head()), depth).overlap) < 0.9


def options_of(data: Path, out: Path, **given: object) -> EagleTrainingOptions:
    """A training of seconds on the target beside the texts."""
    small = {
        "num_steps": 2,
        "steps": 4,
        "reuse_steps": 2,
        "reuse_rank": 4,
        "inner": 16,
        "text_rows": 8,
        "own_rows": 8,
        "row_length": 16,
        "prompt_length": 6,
        "rows_per_step": 2,
        "places_per_row": 3,
        "minutes": 0.0,
        "device": "cpu",
        "target": str(data.with_name("small-target")),
    }
    return EagleTrainingOptions(data=data, out=out, **{**small, **given})  # type: ignore[arg-type]


def test_eagle_training_from_files_to_a_folder_that_loads(tiny_data: Path, tmp_path: Path) -> None:
    """It is measured by depth; done again, nothing is; a longer run goes on."""
    result = run(options_of(tiny_data, tmp_path))
    reports = result.report["acceptance"]
    assert len(reports["training"]["text"]["first"]) == 4
    assert json.loads((tmp_path / "report.json").read_text()) == json.loads(json.dumps(reports))
    net = load_eagle(tmp_path / "eagle3")
    assert net.config.taps == (2, 3, 4)
    assert net.config.target_fingerprint
    assert "2503.01840" in (tmp_path / "eagle3" / "README.md").read_text()
    assert run(options_of(tiny_data, tmp_path)).report == result.report
    run(options_of(tiny_data, tmp_path, steps=6))
    before = net.state_dict()["fc.weight"]
    assert not torch.equal(load_eagle(tmp_path / "eagle3").state_dict()["fc.weight"], before)


def test_a_reduced_vocabulary_with_a_head_of_its_own(tiny_data: Path, tmp_path: Path) -> None:
    """The most frequent tokens of the training; the bound on the time holds."""
    given = {"num_drafted": 200, "own_head": True, "steps": 400}
    run(options_of(tiny_data, tmp_path, minutes=1e-6, **given))
    net = load_eagle(tmp_path / "eagle3")
    assert net.drafted_ids is not None
    assert len(set(net.drafted_ids.tolist())) == 200
    assert int(torch.isfinite(net.logits(torch.randn(1, 160))).sum()) == 200


def test_eagle_options_that_leave_nothing_are_refused() -> None:
    """With the field's name."""
    with pytest.raises(ValueError, match="row_length"):
        EagleTrainingOptions(data=Path(), out=Path(), row_length=36)
    with pytest.raises(ValueError, match="decay"):
        EagleTrainingOptions(data=Path(), out=Path(), decay=0.0)
    with pytest.raises(ValueError, match="num_heads"):
        EagleTrainingOptions(data=Path(), out=Path(), num_heads=0)


def test_a_draft_net_is_no_target(tiny_data: Path, tmp_path: Path) -> None:
    """It is named as what it is."""
    with pytest.raises(TrainError, match=r"demo:dspark.* is a draft net of the method dspark"):
        run(options_of(tiny_data, tmp_path, target="demo:dspark"))


def test_a_shape_that_the_target_forbids_is_refused_before_anything_is_read(
    tiny_data: Path, tmp_path: Path
) -> None:
    """Reading and writing texts may take most of the time."""
    with pytest.raises(TrainError, match="num_drafted is 5000; it must be 0 to 4096"):
        run(options_of(tiny_data, tmp_path, num_drafted=5000))
    assert not list(tmp_path.rglob("features*"))
