"""Features from the real target worker to the real drafter, through bytes: the right rows of the right layers, and no text that they change.

The target is a table: b everywhere after b blocks, the next token's log-probabilities after the final norm. So a layer, a row or a position
that was taken for another shows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.actors.pair.pair import Given, Pair, blurred

from outrider.actors.engine.tables.tabular_engine import NUM_BLOCKS, random_table
from outrider.actors.exchange import features
from outrider.actors.exchange.features import Features, narrowed, widened
from outrider.actors.exchange.feedback_request import FeedbackRequest
from outrider.actors.speculation.options import Sampling, Speculation

VOCAB = 12
TARGET = random_table(VOCAB, 2, seed=9, concentration=0.3)
DRAFT = blurred(TARGET, random_table(VOCAB, 2, seed=109, concentration=0.3), 0.2)

LAYERS = FeedbackRequest(layers=("norm", 0, NUM_BLOCKS))
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]


def laws_of(text: Sequence[int]) -> NDArray[np.float32]:
    """The rows after the final norm at each position of a text, as they come off the wire."""
    rows = [TARGET.log_probs_after(text[: end + 1]) for end in range(len(text))]
    return widened(narrowed(np.stack(rows).astype(np.float32)))


def by_position(given: list[Given], session: int = 0, pair: Pair | None = None) -> dict[int, Given]:
    """What was given of each position of a session; none twice."""
    handle = None if pair is None else pair.handles[session]
    found: dict[int, Given] = {}
    for one in given:
        if one.states_TLD is None or one.rejected is not None:
            continue
        if handle is not None and one.session.key.handle != handle:
            continue
        for row in range(len(one.states_TLD)):
            assert one.start + row not in found
            found[one.start + row] = one
    return found


def check_states(given: list[Given], text: Sequence[int], positions: Sequence[int]) -> None:
    """Rows of exactly these positions came, each with the numbers of its layer."""
    laws_LV = laws_of(text)
    found = by_position(given)
    assert sorted(found) == list(positions)
    for position, one in found.items():
        assert one.states_TLD is not None
        norm_V, embedded_V, last_V = one.states_TLD[position - one.start]
        np.testing.assert_array_equal(norm_V, laws_LV[position])
        assert (embedded_V == 0).all()
        assert (last_V == NUM_BLOCKS).all()
        # Never ahead of what the drafter knows to be written.
        assert position <= len(one.text) - 2


def plain(sampling: Sampling, prompt: Sequence[int] = PROMPT) -> list[int]:
    """The text without a drafter."""
    pair = Pair(TARGET, DRAFT)
    pair.open(0, sampling, Speculation(), prompt, is_attached=False)
    pair.run()
    return pair.texts[0]


@pytest.mark.parametrize(
    ("verifier", "prefill_chunk", "feature_bytes"),
    [("coupled", 256, 1 << 20), ("coupled", 4, 100), ("mcsd_with_replacement", 256, 1 << 20)],
)
def test_every_position_comes_once_with_its_layers(
    verifier: str, prefill_chunk: int, feature_bytes: int
) -> None:
    """Of the prompt and of each round's accepted path, in however many frames; of no position that no pass has run yet."""
    pair = Pair(
        TARGET,
        DRAFT,
        prefill_chunk=prefill_chunk,
        feedback=LAYERS,
        feature_bytes=feature_bytes,
    )
    sampling = Sampling(seed=3, max_tokens=50, temperature=0.8)
    pair.open(0, sampling, Speculation(verifier=verifier), PROMPT)
    pair.run()
    text = PROMPT + pair.texts[0]
    # The last round ends the session: nobody drafts below it.
    rounds = pair.commits[0]
    assert max(len(one) for one in rounds) > 1
    check_states(pair.given, text, range(len(text) - len(rounds[-1]) - 1))


def test_several_sessions_are_kept_apart() -> None:
    """Though their rows are computed in one pass."""
    pair = Pair(TARGET, DRAFT, prefill_chunk=4, feedback=LAYERS)
    for session in range(3):
        sampling = Sampling(seed=session, max_tokens=20 + 7 * session, temperature=0.9)
        pair.open(session, sampling, Speculation(), PROMPT[session:])
    pair.run()
    for session in range(3):
        handle = pair.handles[session]
        of_session = [one for one in pair.given if one.session.key.handle == handle]
        text = PROMPT[session:] + pair.texts[session]
        check_states(of_session, text, range(len(text) - len(pair.commits[session][-1]) - 1))


def test_likeliest_tokens_come_from_where_logits_are() -> None:
    """The prompt's last position, and all that follow; under the model's own law, whatever the temperature."""
    pair = Pair(TARGET, DRAFT, feedback=FeedbackRequest(top_k=3))
    pair.open(0, Sampling(seed=3, max_tokens=40, temperature=0.5), Speculation(), PROMPT)
    pair.run()
    text = PROMPT + pair.texts[0]
    positions = []
    for one in pair.given:
        assert one.top_tokens_TK is not None
        assert one.top_logprobs_TK is not None
        for row, (tokens, logprobs) in enumerate(
            zip(one.top_tokens_TK, one.top_logprobs_TK, strict=True)
        ):
            positions.append(one.start + row)
            law = TARGET.log_probs_after(text[: positions[-1] + 1])
            assert tokens.tolist() == np.argsort(-law)[:3].tolist()
            np.testing.assert_allclose(logprobs, law[tokens], rtol=2e-3, atol=1e-3)
    assert positions == list(range(len(PROMPT) - 1, len(text) - len(pair.commits[0][-1]) - 1))


def test_rejected_candidates_are_told_with_their_paths() -> None:
    """Each hangs below the written text or another rejected one, and none is the token that was written there."""
    pair = Pair(TARGET, DRAFT, feedback=FeedbackRequest(layers=("norm",), wants_rejected=True))
    pair.open(0, Sampling(seed=3, max_tokens=40, temperature=0.9), Speculation(), PROMPT)
    pair.run()
    text = PROMPT + pair.texts[0]
    num_nodes = num_deep = 0
    for one in pair.given:
        if one.rejected is None:
            continue
        assert one.states_TLD is not None
        nodes, paths = one.rejected, dict[int, list[int]]()
        for node, (token, parent, position) in enumerate(
            zip(nodes.tokens_R, nodes.parents_R, nodes.positions_R, strict=True)
        ):
            above = paths[parent] if parent >= 0 else text[:position]
            assert len(above) == position
            if parent < 0:
                assert token != text[position]
            paths[node] = [*above, int(token)]
            law = TARGET.log_probs_after(paths[node]).astype(np.float32)
            np.testing.assert_array_equal(one.states_TLD[node, 0], widened(narrowed(law)))
            num_nodes += 1
            num_deep += parent >= 0
    assert num_nodes > 20
    assert num_deep > 5


def test_a_prompt_that_begins_like_an_earlier_one_leaves_a_gap() -> None:
    """Nobody ran what was reused; the drafter goes on behind it, and knows that it is missing."""
    pair = Pair(TARGET, DRAFT, prefill_chunk=64, feedback=LAYERS)
    long = [random.Random(1).randrange(VOCAB) for _ in range(300)]
    pair.open(0, Sampling(seed=1, max_tokens=10), Speculation(), long)
    pair.run()
    pair.given.clear()
    pair.open(1, Sampling(seed=2, max_tokens=10), Speculation(), [*long, 1, 2, 3])
    pair.run()
    reused = pair.stats(1).cached_tokens
    assert reused > 0
    text = [*long, 1, 2, 3, *pair.texts[1]]
    check_states(pair.given, text, range(reused, len(text) - len(pair.commits[1][-1]) - 1))
    assert pair.draft.stats.features_missing == reused


def test_nobody_is_told_unasked() -> None:
    """No frame, no row."""
    pair = Pair(TARGET, DRAFT)
    pair.open(0, Sampling(seed=1, max_tokens=10), Speculation(), PROMPT)
    pair.run()
    assert pair.draft.stats.feature_bytes == 0


class Abuse:
    """A network and a target that do everything wrong that can be done with features."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._numbers = np.random.default_rng(seed)
        self._old: list[bytes] = []

    def __call__(self, frames: list[bytes]) -> list[bytes]:
        """Loses, doubles, delays, permutes and falsifies."""
        self._old += frames
        said = []
        for _ in range(self._rng.randrange(9)):
            frame = self._rng.choice(self._old)
            wrong = self._rng.choice([_as_it_is, self._random, _broken, _of_another, _displaced])
            said.append(features.encode(wrong(features.decode(frame))))
        self._rng.shuffle(said)
        return said

    def _random(self, found: Features) -> Features:
        shape = found.states_RLD.shape
        bits = narrowed(self._numbers.standard_normal(shape).astype(np.float32))
        return _changed(found, states_RLD=bits)


def _as_it_is(found: Features) -> Features:
    return found


def _broken(found: Features) -> Features:
    bits = found.states_RLD.copy()
    bits[-1:] = 0x7FC0
    return _changed(found, states_RLD=bits)


def _of_another(found: Features) -> Features:
    return _changed(found, revision=found.revision ^ 1)


def _displaced(found: Features) -> Features:
    return _changed(found, firsts_E=found.firsts_E + 5)


def _changed(found: Features, **changes: object) -> Features:
    names = Features.__dataclass_fields__
    return Features(**({name: getattr(found, name) for name in names} | changes))


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("seed", range(3))
def test_lossless_under_abuse(seed: int, temperature: float) -> None:
    """Random, stale, permuted, doubled, broken or missing features: the text is that of plain decoding; only counters differ."""
    request = FeedbackRequest(layers=(1, "norm"), wants_rejected=True)
    pair = Pair(TARGET, DRAFT, prefill_chunk=5, feedback=request, meddle_features=Abuse(seed))
    sampling = Sampling(seed=seed, max_tokens=60, temperature=temperature)
    pair.open(0, sampling, Speculation(), PROMPT)
    pair.run()
    assert pair.texts[0] == plain(sampling)
    stats = pair.draft.stats
    assert stats.features_doubled > 0
    assert stats.features_broken > 0
    assert stats.features_dropped > 0
    assert all(
        np.isfinite(one.states_TLD).all() for one in pair.given if one.states_TLD is not None
    )


@pytest.mark.parametrize("after", [0, 3])
def test_features_may_come_before_their_session(after: int) -> None:
    """A target begins with a prompt before the drafter is attached; what comes early waits."""
    pair = Pair(TARGET, DRAFT, prefill_chunk=4, feedback=LAYERS)
    sampling = Sampling(seed=3, max_tokens=30, temperature=0.8)
    pair.open(0, sampling, Speculation(), PROMPT, is_attached=False)
    for _ in range(after):
        pair.step()
    pair.attach(0, PROMPT, sampling, Speculation())
    pair.run()
    text = PROMPT + pair.texts[0]
    check_states(pair.given, text, range(len(text) - len(pair.commits[0][-1]) - 1))


def test_a_drafter_that_comes_late_goes_on_behind_the_gap() -> None:
    """As after its restart: what was told before is gone, and the text is what it is."""
    lost: list[bool] = [True]
    pair = Pair(
        TARGET,
        DRAFT,
        prefill_chunk=4,
        feedback=LAYERS,
        meddle_features=lambda frames: [] if lost[0] else frames,
    )
    sampling = Sampling(seed=3, max_tokens=40, temperature=0.8)
    pair.open(0, sampling, Speculation(), PROMPT, is_attached=False)
    for _ in range(8):
        pair.step()
    lost[0] = False
    # It is attached with the prompt and hears the rest by a resync.
    pair.attach(0, PROMPT, sampling, Speculation())
    first = len(PROMPT) + len(pair.texts[0]) - 1
    pair.run()
    text = PROMPT + pair.texts[0]
    assert pair.texts[0] == plain(sampling)
    check_states(pair.given, text, range(first, len(text) - len(pair.commits[0][-1]) - 1))
    assert pair.draft.stats.features_missing == first


def test_lost_verdicts_hold_features_back_until_the_text_is_there() -> None:
    """They wait for the resync; then they come all."""
    losses = iter([True, False, False] * 1000)
    pair = Pair(TARGET, DRAFT, feedback=LAYERS, is_lost=lambda: next(losses))
    sampling = Sampling(seed=5, max_tokens=40, temperature=0.8)
    pair.open(0, sampling, Speculation(), PROMPT)
    pair.run()
    assert pair.texts[0] == plain(sampling)
    assert pair.draft.stats.resyncs > 1
    positions = sorted(by_position(pair.given))
    assert positions == list(range(len(positions)))
    check_states(pair.given, PROMPT + pair.texts[0], positions)


def test_a_method_that_fails_over_features_ends_its_session_only() -> None:
    """The text goes on without it."""
    pair = Pair(TARGET, DRAFT, feedback=LAYERS)
    sampling = Sampling(seed=5, max_tokens=20)
    pair.open(0, sampling, Speculation(), PROMPT)

    def fail(*_: object) -> None:
        raise RuntimeError("no head for this")

    failing: Callable[..., None] = fail
    pair.draft.core.drafter.take_features = failing  # type: ignore[attr-defined]
    pair.run()
    assert pair.texts[0] == plain(sampling)
    assert len(pair.ended) == 1


def test_the_frames_say_what_the_docs_state() -> None:
    """36 bytes a frame, 16 a session, and two for each number of a hidden state."""
    sizes: list[int] = []

    def weigh(frames: list[bytes]) -> list[bytes]:
        sizes.extend(len(frame) for frame in frames)
        return frames

    pair = Pair(TARGET, DRAFT, feedback=LAYERS, meddle_features=weigh)
    pair.open(0, Sampling(seed=3, max_tokens=30), Speculation(), PROMPT)
    pair.run()
    rows = len(by_position(pair.given))
    assert sum(sizes) == len(sizes) * (36 + 16) + rows * 3 * VOCAB * 2


def test_a_request_for_endless_layers_is_refused_in_few_words() -> None:
    """The reason travels in a field of gRPC's that holds a few thousand bytes."""
    with pytest.raises(ValueError, match="layers are 100000; 64 at most") as refused:
        FeedbackRequest(layers=tuple(range(100_000)))
    assert len(str(refused.value)) < 100
