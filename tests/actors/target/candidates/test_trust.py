"""How far a drafter is believed."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.actors.target.state.chaos import VOCAB, Harness, candidates, engine, opening, run_plain

from outrider.actors.speculation.learning import PRIOR_DRAWS
from outrider.actors.speculation.options import Sampling
from outrider.actors.target.candidates.trust import Trust
from outrider.actors.target.state.target_events import DrafterJoined, Finished


def tell(trust: Trust, drafter: int, stated: float, drawn: float, rounds: int) -> None:
    """Candidates of one drafter, of which a share is drawn."""
    rng = np.random.default_rng(drafter)
    for _ in range(rounds):
        trust.observe(np.full(8, drafter), np.full(8, stated), rng.random(8) < drawn)


def test_who_was_never_seen_is_believed() -> None:
    """Wholly."""
    trust = Trust()
    assert trust.of(0) == trust.of(7) == 1.0
    trust.observe(np.array([-1, -1]), np.array([0.9, 0.9]), np.array([False, False]))
    assert trust.of(0) == 1.0, "the target's own candidates are nobody's"


def test_what_was_seen_is_weighed_against_some_good_draws() -> None:
    """Of each drafter by itself, from its first candidate on."""
    trust = Trust()
    trust.observe(np.array([2, 0]), np.array([0.5, 1.0]), np.array([False, False]))
    assert trust.of(1) == 1.0
    assert trust.of(0) == pytest.approx(PRIOR_DRAWS / (PRIOR_DRAWS + 1.0))
    assert trust.of(2) == pytest.approx(PRIOR_DRAWS / (PRIOR_DRAWS + 0.5))


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
def test_an_honest_drafter_stays_believed(share: float) -> None:
    """Also one whose candidates are seldom drawn, if it says so."""
    trust = Trust()
    tell(trust, 0, share, share, 200)
    assert trust.of(0) > 0.9


def test_a_modest_drafter_is_not_believed_more_than_it_says() -> None:
    """Nothing is multiplied by more than one."""
    trust = Trust()
    tell(trust, 0, 0.2, 0.9, 50)
    assert trust.of(0) == 1.0


def test_a_drafter_that_lies_is_scaled_down_and_others_are_not() -> None:
    """To what it is worth, in some hundred candidates; it recovers when it mends its ways."""
    trust = Trust()
    tell(trust, 0, 0.5, 0.5, 100)
    tell(trust, 1, 0.9, 0.09, 100)
    tell(trust, 2, 1.0, 0.0, 20)
    assert trust.of(0) > 0.9
    assert trust.of(1) == pytest.approx(0.13, abs=0.05)
    assert trust.of(2) < 0.25
    before = trust.of(1)
    tell(trust, 1, 0.5, 0.5, 500)
    assert trust.of(1) > 0.8 > before


def test_a_target_finds_out_how_far_it_can_believe() -> None:
    """A drafter that is right three times in ten and says nine times: believed a third, no more and no less."""
    event = opening(1, Sampling(seed=1, max_tokens=480, temperature=1.0))
    text = run_plain(Harness(engine()), [event])[1]
    harness, rng = Harness(engine()), random.Random(1)
    harness.worker.post(DrafterJoined(drafter="d"))
    harness.worker.post(event)
    while harness.end(1) is None:
        said = harness.committed(1)
        if 1 in harness.opened() and len(said) < len(text):
            right = text[len(said)]
            token = right if rng.random() < 0.3 else (right + 1) % VOCAB
            tree = ([token], [0], bytes([round(0.9 * 255)]))
            harness.worker.post(candidates([1, 2, 3, *said], tree, handle=harness.handle(1)))
        wait_s = harness.worker.step()
        harness.now += wait_s or 0.0
    assert harness.committed(1) == text
    end = harness.end(1)
    assert isinstance(end, Finished)
    believed = (end.stats.accepted + PRIOR_DRAWS) / (0.9 * end.stats.verified + PRIOR_DRAWS)
    assert believed < 0.45
    assert harness.worker.state.trust.of(0) == pytest.approx(believed, abs=0.01)
