"""Workers that share the rows of a step: the result is that of one with all rows."""

from __future__ import annotations

import copy
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.actors.draft.block.small_block import small_config, small_frames, small_net
from tests.actors.draft.diffusion import small_diffusion
from tests.actors.draft.eagle.small_eagle import eagle_config, eagle_net
from tests.actors.draft.heads.nets import WIDTH, random_net
from tests.actors.draft.methods.small_nested import VOCAB, cut_off
from tests.actors.train.loop.thread_workers import together
from torch import nn

from outrider.actors.draft.ctc.ctc_net import CtcNet
from outrider.actors.train.block.block_objective import (
    Blocks,
    at_slots,
    block_loss,
    block_states,
    random_blocks,
)
from outrider.actors.train.ctc.ctc_objective import ctc_loss, prefix_loss
from outrider.actors.train.diffusion.diffusion_objective import diffusion_loss
from outrider.actors.train.eagle.eagle_objective import eagle_loss, reuse_loss
from outrider.actors.train.features.feature_cache import CacheKey, FeatureCache, shuffled
from outrider.actors.train.features.output_layer import product
from outrider.actors.train.heads.head_objective import speculator_loss
from outrider.actors.train.loop import objective, output_head
from outrider.actors.train.loop.data_parallel import (
    average_gradients,
    count_of_all,
    from_first,
    is_first,
    mean_loss_of_all,
    own_part,
)
from outrider.actors.train.loop.pacer import Pacer
from outrider.actors.train.loop.schedule import Schedule
from outrider.actors.train.loop.training_loop import Saving, StepReport, train
from outrider.actors.train.nested.nested_objective import nested_loss
from outrider.actors.train.training_errors import ResumeError, TrainError

ROWS, LENGTH = 5, 12
"""Five rows among two or three workers are parts of different sizes."""


@pytest.fixture(autouse=True)
def float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """What differs is then the order of sums only."""
    for module in (objective, output_head):
        monkeypatch.setattr(module, "has_fast_bfloat16", lambda device: False)


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    """This worker's part of random states of all rows."""
    generator = torch.Generator().manual_seed(seed)
    return own_part(torch.randn(ROWS, *shape, generator=generator))


def written(vocab: int) -> torch.Tensor:
    """This worker's part of random tokens of all rows, many of them repeated."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(vocab, (ROWS, LENGTH), generator=generator)
    tokens[::2, 1::2] = tokens[::2, ::2]
    return own_part(tokens)


def blocks(net: nn.Module) -> Blocks:
    """At random, of which some are told tokens."""
    return random_blocks(
        len(written(2)),
        3,
        first=2,
        length=LENGTH,
        block=4,
        most_revealed=2,
        generator=torch.Generator().manual_seed(2),
    )


def of_blocks(how: str) -> tuple[nn.Module, Callable[[nn.Module], torch.Tensor]]:
    """DSpark and DFlash."""

    def loss(net: nn.Module) -> torch.Tensor:
        tokens, states, last = written(24), drawn(LENGTH, 2, 24), drawn(LENGTH, 24, seed=1)
        return block_loss(net, tokens, states, last, blocks(net), how)  # type: ignore[arg-type]

    return small_net(small_config(most_revealed=2)), loss


def of_frames(how: Callable[..., torch.Tensor]) -> tuple[nn.Module, Callable[..., torch.Tensor]]:
    """CTC."""

    def loss(net: CtcNet) -> torch.Tensor:
        tokens, here = written(24), blocks(net)
        frames = net.frames(block_states(net, tokens, drawn(LENGTH, 2, 24), here)).flatten(0, 1)
        return how(frames, at_slots(tokens, here, 3, 1).flatten(0, 1))

    return small_net(small_frames()), loss


def of_eagle(*, reuse: bool) -> tuple[nn.Module, Callable[..., torch.Tensor]]:
    """EAGLE-3 with a reduced vocabulary, and the map of `hidden_reuse`."""
    config = eagle_config(target_width=12, taps=(1,), num_drafted=9, reuse_rank=4)
    net = eagle_net(config, drafted=(0, 1, 3, 4, 8, 11, 15, 16, 20))
    table = torch.randn(24, 12, generator=torch.Generator().manual_seed(5))

    def loss(net: nn.Module) -> torch.Tensor:
        generator = torch.Generator().manual_seed(3)
        places = own_part(torch.randint(1, LENGTH - 3, (ROWS, 4), generator=generator))
        tokens = own_part(torch.randint(9, (ROWS, LENGTH), generator=generator))
        given = (net, tokens, drawn(LENGTH, 1, 12), drawn(LENGTH, 12, seed=1), places)
        if reuse:
            return reuse_loss(*given, output=product(table), generator=generator)  # type: ignore[arg-type]
        return eagle_loss(*given, num_steps=3, decay=0.8, output=product(table))  # type: ignore[arg-type]

    return net, loss


def of_heads(net: nn.Module) -> torch.Tensor:
    """MLP speculator."""
    tokens, states = written(24), drawn(LENGTH, WIDTH)
    table = torch.randn(24, WIDTH, generator=torch.Generator().manual_seed(4))
    return speculator_loss(net, tokens, states, first=3, labels="law", output=product(table))  # type: ignore[arg-type]


def of_exits(net: nn.Module) -> torch.Tensor:
    """Sorted."""
    table = torch.randn(VOCAB, 16, generator=torch.Generator().manual_seed(4))
    return nested_loss(net, written(VOCAB), drawn(LENGTH, 16), product(table), (1, 2))  # type: ignore[arg-type]


def of_masks(net: nn.Module) -> torch.Tensor:
    """Diffusion."""
    table = torch.randn(24, 12, generator=torch.Generator().manual_seed(4))
    return diffusion_loss(net, written(24), drawn(LENGTH, 12), product(table), blocks(net), 2)  # type: ignore[arg-type]


LOSSES = {
    "diffusion": (small_diffusion.small_net(), of_masks),
    "dspark": of_blocks("overlap"),
    "dflash": of_blocks("tokens"),
    "ctc": of_frames(ctc_loss),
    "prefix": of_frames(prefix_loss),
    "eagle3": of_eagle(reuse=False),
    "hidden_reuse": of_eagle(reuse=True),
    "mlp_speculator": (random_net(), of_heads),
    "sorted": (cut_off(2), of_exits),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("count", [2, 3])
def test_parts_make_the_gradient_of_the_whole(name: str, count: int) -> None:
    """Of every trainer's loss, also where what counts is unevenly spread, and where a weight has a gradient in one part only, or in none."""
    net, loss_of = LOSSES[name]

    def gradients() -> tuple[float, dict[str, torch.Tensor | None]]:
        own = copy.deepcopy(net).requires_grad_(True)
        loss = loss_of(own)
        loss.backward()  # type: ignore[no-untyped-call]
        average_gradients(own)
        return mean_loss_of_all(loss), {key: p.grad for key, p in own.named_parameters()}

    whole, wanted = gradients()
    for mean, found in together(count, gradients):
        assert mean == pytest.approx(whole, rel=1e-5)
        for key, gradient in wanted.items():
            part = found[key]
            if gradient is None or part is None:
                assert gradient is part is None
            else:
                torch.testing.assert_close(part, gradient, rtol=1e-3, atol=1e-6)


class Line(nn.Module):
    """The least that the loop trains."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(6, 5)
        self.idle = nn.Linear(3, 3)


LEFT = torch.randn(64, 6, generator=torch.Generator().manual_seed(1))
RIGHT = LEFT @ torch.randn(6, 5, generator=torch.Generator().manual_seed(2))


def fit(path: Path, *, steps: int = 12, left: float | None = None) -> dict[str, torch.Tensor]:
    """Trains one, with so many seconds left; its weights, and the loss of every step."""
    net, said = Line(), list[StepReport]()
    generator = torch.Generator().manual_seed(0 if is_first() else 1)
    for weight in net.parameters():
        nn.init.normal_(weight, generator=generator)

    def loss(step: int) -> torch.Tensor:
        rows = shuffled(step, 7, 64, 0)
        found: torch.Tensor = net.map(LEFT[rows]) - RIGHT[rows]
        return found.square().sum() / count_of_all(len(rows))

    is_bounded = left is not None and is_first()
    schedule = Schedule(steps, warmup=2, matrix_rate=0.2, other_rate=0.1)
    pacer = Pacer(schedule, lambda: left or math.inf, 1.0 if is_bounded else 0.0)
    train(net, pacer, loss, Saving(path, "run", resume=True), said.append)
    return {**net.state_dict(), "losses": torch.tensor([one.loss for one in said])}


def test_many_train_what_one_does(tmp_path: Path) -> None:
    """Weights and losses; from the first worker's weights, with progress on disk from which another number of workers goes on."""
    alone = fit(tmp_path / "alone.pt")
    assert alone["losses"][-1] < alone["losses"][0]
    for one in together(3, lambda: fit(tmp_path / "many.pt")):
        torch.testing.assert_close(one, alone, rtol=1e-4, atol=1e-5)
    fit(tmp_path / "cut.pt", steps=5)
    # Another number of steps is another schedule, so that all are compared with one that went on alone.
    shutil.copy(tmp_path / "cut.pt", tmp_path / "other.pt")
    on = fit(tmp_path / "cut.pt")
    assert len(on["losses"]) == 7
    for one in together(2, lambda: fit(tmp_path / "other.pt")):
        torch.testing.assert_close(one, on, rtol=1e-4, atol=1e-5)


def test_the_first_one_decides_how_many_steps_there_are(tmp_path: Path) -> None:
    """By its clock; the others, who have no bound, end with it."""
    many = together(2, lambda: fit(tmp_path / "run.pt", steps=400, left=1e-9))
    assert len(many[0]["losses"]) == len(many[1]["losses"]) < 400


def test_a_loss_that_is_no_number_ends_all_of_them(tmp_path: Path) -> None:
    """Whoever has it: nobody waits for the others."""

    def diverged() -> None:
        net = Line()
        value = 1.0 if is_first() else math.nan
        pacer = Pacer(Schedule(3), lambda: math.inf)
        saving = Saving(tmp_path / "x.pt", "run", resume=False)
        train(net, pacer, lambda _: net.map.weight.sum() * value, saving, lambda _: None)

    with pytest.raises(TrainError, match="loss is nan"):
        together(2, diverged)


def test_rows_are_written_by_the_first_and_read_by_all(tmp_path: Path) -> None:
    """What another worker cannot see is an error that names the cause."""
    key = CacheKey(target="t", layers=("norm",), width=3, row_length=4, first=0, text="x")
    tokens, states = np.arange(8, dtype=np.int32).reshape(2, 4), torch.arange(24.0).view(2, 4, 3)

    def filled() -> tuple[int, list[int]]:
        cache = FeatureCache(tmp_path / "cache", key, 2)
        if is_first():
            cache.append(tokens, states)
        from_first(0)
        if not is_first():
            cache.reopen()
        found, features = cache.rows(np.array([1]))
        torch.testing.assert_close(features[0], states[1])
        return cache.num_rows, found[0].tolist()

    assert together(2, filled) == [(2, [4, 5, 6, 7])] * 2

    def apart() -> None:
        folder = tmp_path / ("mine" if is_first() else "yours")
        cache = FeatureCache(folder, key, 2)
        from_first(0)
        if not is_first():
            cache.reopen()

    with pytest.raises(ResumeError, match="every node reaches"):
        together(2, apart)
