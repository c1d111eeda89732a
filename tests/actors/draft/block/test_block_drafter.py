"""Trees from a block: what is proposed, before and after verdicts, with states and without."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.actors.draft.block.block_follower import PROMPT, VOCAB, Follower
from tests.actors.draft.block.small_block import (
    block_drafter,
    small_config,
    small_frames,
    small_net,
    states_of,
)
from tests.actors.exchange.test_feedback import Abuse
from tests.actors.pair.pair import Pair, blurred, texts_alone

from outrider.actors.draft.block.block_config import BlockConfig
from outrider.actors.draft.block.block_net import BlockNet
from outrider.actors.draft.state.draft_sessions import DraftSession
from outrider.actors.engine.tables.tabular_engine import random_table
from outrider.actors.speculation.noise.gumbel import GumbelNoise
from outrider.actors.speculation.options import Sampling, Speculation

Floats = NDArray[np.float64]


def net_of(**changes: object) -> BlockNet:
    """A net of six tokens."""
    return small_net(small_config(**{"vocab_size": VOCAB, "width": 8, **changes}))


@pytest.mark.parametrize("rank", [0, 5])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_tree_is_the_best_part_of_all_paths(temperature: float, rank: int) -> None:
    """Best-first growth finds what enumerating every path finds; estimates are those of perturbed scores."""
    follower = Follower(net_of(rank=rank), temperature=temperature)
    assert not follower.bench.tree(follower.attach.key).tokens
    follower.tell(len(PROMPT) - 1)
    follower.check(len(PROMPT) - 1)


def test_a_verdict_goes_on_in_the_block_that_there_is() -> None:
    """Without states: positions are absolute, and the token that was written is the Markov head's. With them: a block of its own."""
    follower = Follower(net_of())
    anchor = len(PROMPT) - 1
    follower.tell(anchor)
    tree = follower.bench.tree(follower.attach.key)
    best = tree.tokens[tree.children(-1)[0]]
    follower.commit(best)
    follower.check(anchor)
    tree = follower.bench.tree(follower.attach.key)
    worst = tree.tokens[tree.children(-1)[-1]]
    assert tree.scratch[tree.children(-1)[-1]] < 0
    follower.commit(worst)
    follower.check(anchor)
    follower.tell(len(follower.text) - 1)
    follower.check(len(follower.text) - 1)


def test_nothing_is_proposed_behind_the_block() -> None:
    """Until the next states; then again."""
    follower = Follower(net_of())
    follower.tell(len(PROMPT) - 1)
    follower.commit(1, 2, 3, 4)
    assert not follower.bench.tree(follower.attach.key).tokens
    follower.tell(len(follower.text) - 2)
    assert not follower.bench.tree(follower.attach.key).tokens
    follower.tell(len(follower.text) - 1)
    follower.check(len(follower.text) - 1)


def test_revealed_tokens_make_a_new_block_of_old_states() -> None:
    """A drafter that was trained for it drafts again after each verdict, as far as it was trained."""
    follower = Follower(net_of(most_revealed=2))
    anchor = len(PROMPT) - 1
    follower.tell(anchor - 1)
    follower.check(anchor - 1, revealed=1)
    follower.commit(4)
    follower.check(anchor - 1, revealed=2)
    follower.commit(1)
    follower.check(anchor - 1, revealed=2)
    follower.tell(anchor + 1)
    follower.check(anchor + 1, revealed=1)


def test_candidates_are_not_sent_twice_for_a_better_block() -> None:
    """What the target has had from the tree before is not said again until it asks."""
    follower = Follower(net_of())
    follower.tell(len(PROMPT) - 1)
    follower.commit(2)
    before = follower.bench.tree(follower.attach.key)
    sent = {path for path, number in zip(before.paths, before.sent, strict=True) if number}
    follower.bench.take()
    follower.tell(len(PROMPT))
    tree = follower.bench.tree(follower.attach.key)
    kept = sent & set(tree.paths)
    assert kept
    said = {path for news in follower.bench.take_news() for path in news.paths}
    for path in said & kept:
        # Only as an ancestor of something new.
        assert any(other[: len(path)] == path and other != path for other in said)


def test_a_replaced_text_takes_its_states_along() -> None:
    """What was told of tokens that are gone is forgotten, and comes again."""
    follower = Follower(net_of())
    follower.tell(len(PROMPT) - 1)
    session = follower.bench.sessions.find(follower.attach.key)
    assert session is not None
    follower.bench.sessions.replace(session.row, 5, [4, 4])
    follower.bench.blocks.rewrite(session, 5)
    follower.bench.settle()
    follower.text[5:] = [4, 4]
    assert not follower.bench.tree(follower.attach.key).tokens
    follower.states = states_of(follower.net.config, 60, seed=1)
    follower.states[:5] = states_of(follower.net.config, 60)[:5]
    follower.told = 5
    follower.tell(6)
    follower.check(6)


TABLE = random_table(24, 2, seed=9, concentration=0.3)
DRAFT = blurred(TABLE, random_table(24, 2, seed=109, concentration=0.3), 0.2)


def run(net: BlockNet, sampling: Sampling, meddle: object = None) -> tuple[Pair, list[int]]:
    """A text by a real target worker, with a block drafter."""
    given = {} if meddle is None else {"meddle_features": meddle}
    pair = Pair(
        TABLE,
        DRAFT,
        prefill_chunk=4,
        feedback=net.config.request,
        method=block_drafter(net),
        **given,  # type: ignore[arg-type]
    )
    pair.open(0, sampling, Speculation(), PROMPT)
    pair.run()
    return pair, pair.texts[0]


def _nothing(frames: list[bytes]) -> list[bytes]:
    return []


class Missing:
    """Loses every other frame and doubles and delays the rest."""

    def __init__(self, seed: int) -> None:
        self._rng, self._late = random.Random(seed), list[bytes]()

    def __call__(self, frames: list[bytes]) -> list[bytes]:
        self._late += [frame for frame in frames if self._rng.random() < 0.6]
        self._rng.shuffle(self._late)
        count = self._rng.randrange(len(self._late) + 1)
        now, self._late = self._late[:count], self._late[count:]
        return now + now


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(
    "config",
    [small_config(), small_config(most_revealed=2), small_frames()],
    ids=["plain", "told", "frames"],
)
def test_text_is_plain_decodings_whatever_happens_to_states(
    temperature: float, config: BlockConfig
) -> None:
    """In order, late, missing, doubled, false or not at all: the drafter proposes, and the text is that of the target alone."""
    net = small_net(config)
    networks = ((None, Missing(0)), (Abuse(1), _nothing))
    for seed, of_seed in enumerate(networks):
        sampling = Sampling(seed=seed, max_tokens=50, temperature=temperature)
        (plain,) = texts_alone(TABLE, [sampling], PROMPT)
        for network in of_seed:
            pair, text = run(net, sampling, network)
            assert text == plain
            assert not pair.ended
            assert (pair.draft.stats.passes > 5) == (network is not _nothing)


def test_states_are_those_of_the_layers_that_were_asked_for() -> None:
    """The target is b everywhere after b blocks, and its law after the norm: what the drafter is told says which layer it is."""
    net = small_net()
    sessions, drafter = block_drafter(net)
    told: list[tuple[int, Floats]] = []
    take = drafter.take_features

    def noted(session: DraftSession, start: int, features_TLD: NDArray[np.float32]) -> None:
        told.append((start, features_TLD.astype(np.float64)))
        take(session, start, features_TLD)

    drafter.take_features = noted  # type: ignore[method-assign]
    pair = Pair(TABLE, DRAFT, feedback=net.config.request, method=(sessions, drafter))
    pair.open(0, Sampling(seed=1, max_tokens=20), Speculation(), PROMPT)
    pair.run()
    text = [*PROMPT, *pair.texts[0]]
    assert len(told) > 3
    for start, states_TLD in told:
        assert (states_TLD[:, net.config.taps.index(1)] == 1.0).all()
        for row, law_V in enumerate(states_TLD[:, net.config.taps.index("norm")]):
            expected = TABLE.log_probs_after(text[: start + row + 1])
            np.testing.assert_allclose(law_V, expected, rtol=1e-2, atol=1e-2)


def calibration(*, learns: bool, rounds: int = 120) -> float:
    """How far the values of paths are from how often they are drawn, where the target's law is the net's with an error."""
    follower = Follower(net_of(block=3, window=8))
    if learns:
        del follower.bench.blocks.sharpness.learn
    noise = GumbelNoise(VOCAB, torch.device("cpu"))
    sampling, net = follower.attach.sampling, follower.net
    follower.states = states_of(net.config, len(PROMPT) + 4 * rounds)
    errors = torch.from_numpy(states_of(net.config, len(follower.states), seed=5)[:, 0, :VOCAB])
    seen: list[tuple[float, bool]] = []
    assert net.markov_head is not None
    for number in range(rounds):
        length = len(follower.text)
        follower.tell(length - 1)
        tree = follower.bench.tree(follower.attach.key)
        unary_BV = net.unary(follower.slots(length - 1, 0))
        drawn: list[int] = []
        for step in range(net.config.block):
            before = drawn[-1] if drawn else follower.text[-1]
            law_V = (
                unary_BV[step] + net.markov_head(torch.tensor(before)) + 0.4 * errors[length + step]
            )
            noise_V = noise.rows(sampling.seed, length + step, 1)[0]
            drawn.append(int((law_V / sampling.temperature + noise_V).argmax()))
        if number >= rounds // 3:
            seen += [
                (value, tuple(drawn[: len(path)]) == path)
                for path, value in zip(tree.paths, tree.values, strict=True)
            ]
        right = next(
            (
                k
                for k, path in enumerate([tuple(drawn[:1]), tuple(drawn[:2])])
                if path not in tree.paths
            ),
            2,
        )
        follower.commit(*drawn[: right + 1])
    values, hits = np.array([v for v, _ in seen]), np.array([h for _, h in seen])
    bins = np.minimum((values * 10).astype(int), 9)
    gaps = [abs(values[bins == b].sum() - hits[bins == b].sum()) for b in range(10)]
    return float(sum(gaps) / hits.sum())


def test_values_of_paths_become_true() -> None:
    """Learned from verdicts, a path's value is how often it is drawn; as first believed it is further off."""
    learned = calibration(learns=True)
    assert learned < 0.25
    assert learned < calibration(learns=False)
