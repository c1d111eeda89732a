"""Opening sessions with what slots hold already: the text never changes, only how much of it is computed."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from tests.actors.target.state.chaos import VOCAB, Harness, engine, opening, run_chaos, run_plain

from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.protocol import Engine, Logits, Rows
from outrider.actors.engine.timed_engine import TimedEngine
from outrider.actors.speculation.options import Sampling
from outrider.actors.target.state.target_events import (
    CloseSession,
    Finished,
    OpenSession,
    SessionOwner,
)
from outrider.actors.target.state.target_settings import TargetSettings
from outrider.actors.target.target_worker import TargetWorker


def alone(event: OpenSession) -> list[int]:
    """What a session says on a target that nobody else uses."""
    return run_plain(Harness(engine()), [event])[event.owner.session]


def cached(harness: Harness, session: int) -> int:
    """Prompt tokens that were not computed again."""
    end = harness.end(session)
    assert isinstance(end, Finished), end
    return end.stats.cached_tokens


def sampled(seed: int, max_tokens: int = 20) -> Sampling:
    """Options whose text depends on everything before."""
    return Sampling(seed=seed, max_tokens=max_tokens, temperature=1.0)


def prompt_of(seed: int, length: int) -> tuple[int, ...]:
    """Some tokens; those of another seed differ early on."""
    rng = random.Random(seed)
    return tuple(rng.randrange(VOCAB) for _ in range(length))


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_each_turn_of_a_chat_computes_only_what_is_new(slots: int) -> None:
    """The second turn finds the first one's prompt and answer, whatever came between as long as there is room."""
    harness = Harness(engine(slots=slots))
    text: tuple[int, ...] = ()
    for turn in range(5):
        text += prompt_of(turn, 30)
        event = opening(turn, sampled(turn), prompt=text)
        answer = run_plain(harness, [event])[turn]
        assert answer == alone(event)
        # The last token of an answer was never run: it was drawn, and nothing came after it.
        assert cached(harness, turn) == (0 if turn == 0 else len(text) - 30 - 1)
        text += tuple(answer)


def test_a_chat_with_candidates_computes_only_what_is_new() -> None:
    """Rows of accepted candidates are kept like others, those of rejected ones are not."""
    harness = Harness(engine())
    text: tuple[int, ...] = ()
    for turn in range(4):
        text += prompt_of(turn, 25)
        event = opening(turn, sampled(turn, 40), prompt=text)
        answer = run_chaos(harness, [event], random.Random(turn))[turn]
        assert answer == alone(event)
        assert cached(harness, turn) == (0 if turn == 0 else len(text) - 25 - 1)
        text += tuple(answer)


@pytest.mark.parametrize("slots", [2, 3, 5])
def test_chats_in_turn_under_pressure(slots: int) -> None:
    """Chats beyond the number of slots throw each other's rows away, and every text stays that of a lone session."""
    harness = Harness(engine(slots=slots))
    system = prompt_of(99, 40)
    texts = [system + prompt_of(chat, 10) for chat in range(4)]
    rng, number = random.Random(slots), 0
    for _ in range(14):
        chats = rng.sample(range(4), rng.randint(1, min(slots, 3)))
        events = {}
        for chat in chats:
            number += 1
            events[chat] = opening(number, sampled(number, 12), prompt=texts[chat])
        answers = run_chaos(harness, list(events.values()), rng)
        for chat, event in events.items():
            answer = answers[event.owner.session]
            assert answer == alone(event)
            assert cached(harness, event.owner.session) >= (39 if number > 3 else 0)
            texts[chat] += tuple(answer) + prompt_of(number, 8)


def test_a_burst_with_one_system_prompt_computes_it_once() -> None:
    """Requests that come together wait for the first one's rows rather than compute them too."""
    model = CountingEngine(engine(slots=8))
    harness = Harness(model)
    system = prompt_of(1, 200)
    events = [opening(i, sampled(i), prompt=system + prompt_of(50 + i, 12)) for i in range(8)]
    texts = run_plain(harness, events)
    assert texts == {event.owner.session: alone(event) for event in events}
    # Some openings share a token or two beyond the system prompt.
    assert [cached(harness, i) for i in range(1, 8)] == pytest.approx([201] * 7, abs=2)
    assert model.num_rows < 200 + 8 * (12 + 20) + 1


def test_sequences_of_one_request_and_a_later_one() -> None:
    """The prompt is computed once for all, and again used when the request is repeated."""
    prompt = prompt_of(3, 70)
    events = [opening(i, sampled(i), prompt=prompt, group=5) for i in range(3)]
    harness = Harness(engine())
    assert run_plain(harness, events) == {i: alone(event) for i, event in enumerate(events)}
    again = opening(9, sampled(2), prompt=prompt)
    assert run_plain(harness, [again])[9] == alone(again)
    assert [cached(harness, i) for i in (0, 1, 2, 9)] == [0, 69, 69, 69]


def test_a_prompt_that_is_asked_again_still_runs_its_last_token() -> None:
    """With one output token, too: nothing else tells what comes next."""
    prompt = prompt_of(3, 50)
    harness = Harness(engine())
    for number in range(3):
        event = opening(number, sampled(number, 1), prompt=prompt)
        assert run_plain(harness, [event])[number] == alone(event)
    assert [cached(harness, i) for i in range(3)] == [0, 49, 49]


def test_a_closed_session_leaves_what_it_computed() -> None:
    """Cancelled in its prompt or in its answer: the next one goes on from there, token for token."""
    harness = Harness(engine())
    prompt = prompt_of(4, 60)
    harness.worker.post(opening(1, sampled(1), prompt=prompt))
    harness.worker.step()
    harness.worker.step()
    harness.worker.post(CloseSession(owner=SessionOwner(stream=1, session=1)))
    event = opening(2, sampled(2, 100), prompt=prompt)
    harness.worker.post(event)
    for _ in range(20):
        harness.worker.step()
    said = harness.committed(2)
    assert len(said) > 5
    harness.worker.post(CloseSession(owner=SessionOwner(stream=1, session=2)))
    resumed = opening(3, sampled(2, 100), prompt=prompt, committed=said)
    rest = run_plain(harness, [resumed])[3]
    assert said + rest == alone(event)
    # Two chunks of the first prompt; all of the second, which the coordinator opened again elsewhere.
    assert (cached(harness, 2), cached(harness, 3)) == (32, 60)


def test_a_failed_session_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in its slot may be why it failed."""
    model = engine()
    harness = Harness(model)
    prompt = prompt_of(4, 60)
    harness.worker.post(opening(1, sampled(1, 100), prompt=prompt))
    for _ in range(10):
        harness.worker.step()
    with monkeypatch.context() as patch:
        patch.setattr(model, "forward", lambda batch: 1 / 0)
        harness.worker.step()
    assert harness.worker.num_sessions == 0
    event = opening(2, sampled(2), prompt=prompt)
    assert run_plain(harness, [event])[2] == alone(event)
    assert cached(harness, 2) == 0


def test_with_reuse_turned_off_requests_share_nothing() -> None:
    """No time tells one request what another asked; sequences of one request still share."""
    model = engine()
    harness = Harness(model)
    settings = TargetSettings(
        name="t",
        incarnation=1,
        model_name="m",
        engine=EngineSettings(model="tabular:x"),
        prefill_chunk=16,
        prefix_reuse=False,
    )
    harness.worker = TargetWorker(model, settings, harness.outputs.extend, harness.clock)
    prompt = prompt_of(6, 90)
    for number in range(2):
        event = opening(number, sampled(number), prompt=prompt)
        assert run_plain(harness, [event])[number] == alone(event)
    group = [opening(number, sampled(number), prompt=prompt, group=1) for number in (2, 3)]
    run_plain(harness, group)
    assert [cached(harness, i) for i in range(4)] == [0, 0, 0, 89]


class CountingEngine(TimedEngine):
    """Counts rows."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self.num_rows = 0

    def forward(self, batch: Sequence[Rows]) -> Logits:
        """Counts."""
        self.num_rows += sum(len(rows.tokens) for rows in batch)
        return super().forward(batch)
