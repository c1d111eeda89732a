"""A speculator at a real target worker, through bytes: it drafts from what the target tells, and no text changes."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from tests.actors.draft.heads.nets import spec_of_net, table_net
from tests.actors.pair.pair import Pair, texts_alone

from outrider.actors.draft.heads.head_engine import HeadEngine
from outrider.actors.draft.heads.speculator_drafter import SpeculatorDrafter
from outrider.actors.draft.model.growing_drafter import num_nodes_of
from outrider.actors.draft.state.draft_sessions import DraftSessions
from outrider.actors.engine.tables.tabular_engine import random_table
from outrider.actors.engine.tables.token_table import Table
from outrider.actors.exchange.feedback_request import FeedbackRequest
from outrider.actors.speculation.options import Sampling, Speculation

VOCAB = 24
TARGET = random_table(VOCAB, 1, seed=9, concentration=0.2)
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
SAMPLING = Sampling(seed=3, max_tokens=120, temperature=0.8)

Network = Callable[[list[bytes]], list[bytes]]


def speculating(
    network: Network = lambda frames: frames, *, width: int = 4, law: Table = TARGET
) -> Pair:
    """A pair whose drafter has the target's own law, or the one given, as far as a state tells where it is."""
    net = table_net(law.log_probs, width=VOCAB)
    heads = HeadEngine(net, spec_of_net(net), num_slots=16, max_scratch=96)
    sessions = DraftSessions(16, num_nodes_of(width, 64))
    drafter = SpeculatorDrafter(sessions, heads, width=width, max_ahead=64, prefill_chunk=64)
    return Pair(
        TARGET,
        TARGET,
        feedback=FeedbackRequest(layers=("norm",), width=VOCAB),
        meddle_features=network,
        method=(sessions, drafter),
    )


def text_of(pair: Pair, sampling: Sampling) -> tuple[list[int], float]:
    """The text, and the tokens of a round."""
    pair.open(0, sampling, Speculation(), PROMPT)
    pair.run()
    return pair.texts[0], float(np.mean([len(one) for one in pair.commits[0]]))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_states_carry_it_as_deep_as_the_net_goes(temperature: float) -> None:
    """With the target's own law every round commits what the tree holds; without the states nothing is proposed."""
    sampling = Sampling(seed=3, max_tokens=120, temperature=temperature)
    (plain,) = texts_alone(TARGET, [sampling], PROMPT)
    assert text_of(speculating(lambda frames: []), sampling) == (plain, 1.0)
    text, a_round = text_of(speculating(), sampling)
    assert text == plain
    assert a_round > 3.0


@pytest.mark.parametrize("seed", range(6))
def test_what_the_network_does_to_states_changes_no_token(seed: int) -> None:
    """Lost, late, doubled, in another order: the text is that of plain decoding, and still comes several tokens a round."""
    generator = random.Random(seed)
    waiting: list[bytes] = []

    def network(frames: list[bytes]) -> list[bytes]:
        waiting.extend(frame for frame in frames if generator.random() < 0.8)
        gone = [frame for frame in waiting if generator.random() < 0.6]
        waiting[:] = [frame for frame in waiting if frame not in gone]
        generator.shuffle(gone)
        return gone + gone[: generator.randint(0, 2)]

    (plain,) = texts_alone(TARGET, [SAMPLING], PROMPT)
    text, a_round = text_of(speculating(network), SAMPLING)
    assert text == plain
    assert a_round > 1.3


def test_a_net_of_another_law_costs_rounds_and_no_token() -> None:
    """Equal outputs do not hang on a good drafter."""
    other = random_table(VOCAB, 1, seed=10, concentration=0.2)
    (plain,) = texts_alone(TARGET, [SAMPLING], PROMPT)
    text, a_round = text_of(speculating(law=other), SAMPLING)
    assert text == plain
    assert a_round < 3.0
