"""Frames that are collapsed: the law of their strings, and what is proposed of it, against the enumeration of every path."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch
from tests.actors.draft.block.block_follower import PROMPT, VOCAB, Follower
from tests.actors.draft.block.small_block import small_frames, small_net

from outrider.actors.draft.block.block_net import BlockNet
from outrider.actors.draft.ctc import ctc_engine
from outrider.actors.draft.ctc.ctc_net import CtcNet
from outrider.actors.draft.ctc.prefix_masses import (
    NO_TOKEN,
    appended,
    empty_string,
    next_masses,
)
from outrider.actors.draft.trees.forest import Float64s
from outrider.actors.train.ctc.ctc_objective import ctc_loss, prefix_log_masses

String = tuple[int, ...]


def collapsed(path: String, blank: int) -> String:
    """Deletes adjacent repeats, then blanks."""
    kept = [one for at, one in enumerate(path) if at == 0 or one != path[at - 1]]
    return tuple(one for one in kept if one != blank)


def enumerated(frames: torch.Tensor) -> dict[String, float]:
    """P of every string that frames [U, V + 1] can hold, by every path."""
    probs = frames.double().exp().numpy()
    count, width = probs.shape
    law: dict[String, float] = {}
    for path in product(range(width), repeat=count):
        mass = float(np.prod(probs[np.arange(count), path]))
        string = collapsed(path, width - 1)
        law[string] = law.get(string, 0.0) + mass
    return law


def prefixes(law: dict[String, float]) -> dict[String, float]:
    """Mass of the strings that begin with each."""
    sums: dict[String, float] = {}
    for string, mass in law.items():
        for length in range(len(string) + 1):
            sums[string[:length]] = sums.get(string[:length], 0.0) + mass
    return sums


def frames_of(count: int, vocab: int, seed: int = 0) -> torch.Tensor:
    """Frames at random."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, vocab + 1, generator=generator).mul(1.5).log_softmax(-1)


def test_masses_are_sums_over_every_path() -> None:
    """P of each string by CTC's loss, Pref of each by both recursions, and the law of what comes next, at V = 3 and U = 4; repeats among them."""
    vocab, count = 3, 4
    frames = frames_of(count, vocab)
    law = enumerated(frames)
    begin = prefixes(law)
    assert sum(law.values()) == pytest.approx(1.0)
    probs_UV, blanks_NU = frames[:, :-1].exp(), frames[None, :, -1].double().exp().numpy()
    assert (0, 0) in law
    assert len(law) > 50
    for string in law:
        if string:
            labels = torch.tensor([string])
            loss = len(string) * float(ctc_loss(frames[None], labels))
            assert np.exp(-loss) == pytest.approx(law[string], rel=1e-4)
            masses_L = prefix_log_masses(frames[None], labels)[0].exp()
            for length in range(1, len(string) + 1):
                expected = begin[string[:length]]
                assert float(masses_L[length - 1]) == pytest.approx(expected, rel=1e-4)
        masses, last = empty_string(blanks_NU), NO_TOKEN
        for token in string:
            said_NU = probs_UV[None, :, token].double().numpy()
            masses = appended(masses, np.array([token == last]), said_NU, blanks_NU)
            last = token
        coming = [begin.get((*string, token), 0.0) for token in range(vocab)]
        assert sum(coming) + law[string] == pytest.approx(begin[string])
        found_V = next_masses(masses, np.array([last]), probs_UV)[0]
        if sum(coming):
            torch.testing.assert_close(
                found_V / found_V.sum(), torch.tensor(coming) / sum(coming), rtol=1e-4, atol=1e-6
            )
        else:
            assert float(found_V.sum()) == 0.0


def test_a_string_that_does_not_fit_costs_nothing() -> None:
    """Two equal tokens need a frame between them: the loss of the others is as without it, and finite."""
    frames = torch.stack([frames_of(3, 4), frames_of(3, 4, seed=1)]).requires_grad_()
    labels = torch.tensor([[1, 2, 3], [2, 2, 2]])
    loss = ctc_loss(frames, labels)
    assert float(loss.detach()) == pytest.approx(float(ctc_loss(frames[:1], labels[:1]).detach()))
    loss.backward()  # type: ignore[no-untyped-call]
    assert frames.grad is not None
    assert bool(frames.grad.isfinite().all())
    assert not frames.grad[1].any()


class FramedFollower(Follower):
    """Expects the exact law of collapsed strings."""

    def laws(self, anchor: int, revealed: int) -> Callable[[String], torch.Tensor]:
        """See `Follower`."""
        assert isinstance(self.net, CtcNet)
        begin = prefixes(enumerated(self.net.frames(self.slots(anchor, revealed))))

        def after(string: String) -> torch.Tensor:
            masses = [begin.get((*string[1:], token), 0.0) for token in range(VOCAB)]
            return torch.tensor(masses).clamp(min=1e-37).log()

        return after


def framed_net(seed: int = 0, count: int = 4) -> BlockNet:
    """A net of so many frames that are blank often enough."""
    net = small_net(small_frames(vocab_size=VOCAB, width=8, block=count, labels=count), seed=seed)
    net.get_parameter("blank_bias").fill_(2.0)
    return net


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_tree_is_the_best_part_of_all_strings(temperature: float, seed: int) -> None:
    """Below the text, and below what was committed since the states came: a candidate that was run, or one that was not."""
    anchor = len(PROMPT) - 1
    for child in (0, -1):
        follower = FramedFollower(framed_net(seed), temperature=temperature)
        follower.tell(anchor)
        follower.check(anchor)
        tree = follower.bench.tree(follower.attach.key)
        follower.commit(tree.tokens[tree.children(-1)[child]])
        follower.check(anchor)
        follower.commit(1)
        follower.tell(len(follower.text) - 1)
        follower.check(len(follower.text) - 1)


def test_a_text_that_is_read_again_goes_on_in_its_frames() -> None:
    """States came for a new block, but more was committed before it was drafted: the old frames hold the whole string since they were made."""
    follower = FramedFollower(framed_net(count=5))
    anchor = len(PROMPT) - 1
    follower.tell(anchor)
    follower.commit(2)
    session = follower.bench.sessions.find(follower.attach.key)
    assert session is not None
    follower.bench.blocks.take_features(session, anchor, follower.states[anchor : anchor + 1])
    follower.commit(3, 1)
    follower.check(anchor)


def test_frames_taken_for_positions_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The forbidden variants: a candidate at the place of its frame instead of its place in the collapsed string."""

    def at_its_place(blanks_NU: Float64s) -> Float64s:
        masses = np.zeros((len(blanks_NU), 2, blanks_NU.shape[1] + 1))
        masses[:, 0, 0] = 1.0
        return masses

    monkeypatch.setattr(ctc_engine, "empty_string", at_its_place)
    monkeypatch.setattr(ctc_engine, "appended", lambda masses, *_: np.roll(masses, 1, axis=-1))
    follower = FramedFollower(framed_net())
    follower.tell(len(PROMPT) - 1)
    with pytest.raises(AssertionError):
        follower.check(len(PROMPT) - 1)
