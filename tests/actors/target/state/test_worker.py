"""The target worker: whatever drafters do, the output is that of plain decoding."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence

import pytest
from tests.actors.target.state.chaos import (
    VOCAB,
    Harness,
    Verdict,
    candidates,
    commits_of,
    engine,
    opening,
    random_tree,
    run_chaos,
    run_plain,
    verdicts,
)

from outrider.actors.engine.protocol import Logits, Rows
from outrider.actors.engine.tables.tabular_engine import random_table
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.speculation.trees import base_hash
from outrider.actors.speculation.trees.path_keys import Int64s
from outrider.actors.target.state.target_events import (
    CloseSession,
    CloseStream,
    CommitFrame,
    Committed,
    DrafterJoined,
    DrafterLeft,
    Event,
    Failed,
    Finish,
    Finished,
    Opened,
    Resync,
    ResyncRequest,
    SessionClosed,
    SessionOwner,
    Steer,
)
from outrider.actors.target.target_worker import MAX_FAILED_PASSES, EngineBroken
from outrider.actors.target.verify import host_drawing

OPTIONS: dict[str, Sampling] = {
    "greedy": Sampling(seed=3, max_tokens=40, temperature=0.0),
    "sampled": Sampling(seed=3, max_tokens=40, temperature=1.0),
    "cool": Sampling(seed=2**64 - 1, max_tokens=40, temperature=0.6),
    "filtered": Sampling(seed=5, max_tokens=40, temperature=0.9, top_k=4, top_p=0.8, min_p=0.05),
    "penalised": Sampling(
        seed=6,
        max_tokens=40,
        temperature=0.9,
        repetition_penalty=1.3,
        presence_penalty=0.4,
        frequency_penalty=0.3,
    ),
    "penalised greedy": Sampling(
        seed=6, max_tokens=40, temperature=0.0, repetition_penalty=1.5, frequency_penalty=0.5
    ),
    "biased": Sampling(seed=7, max_tokens=40, logit_bias={0: -100.0, 3: 2.0}),
    "stopping": Sampling(seed=8, max_tokens=40, stop_token_ids=(4,), min_tokens=7),
    "endless": Sampling(seed=9, max_tokens=40, ignore_eos=True, logprobs=3),
    "short": Sampling(seed=10, max_tokens=1),
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("seed", range(3))
def test_random_candidates_change_nothing(name: str, seed: int) -> None:
    """Trees that are wrong, stale, repeated, reordered or lost leave the text as plain decoding has it."""
    prompts = [(1, 2, 3), tuple(i * 7 % VOCAB for i in range(40)), (0,)]
    events = [opening(i, OPTIONS[name], prompt=p) for i, p in enumerate(prompts)]
    plain = run_plain(Harness(engine(eos=(5,))), events)
    rng = random.Random(seed)
    harness = Harness(engine(eos=(5,)))
    assert run_chaos(harness, events, rng) == plain
    ends = [harness.end(session) for session in plain]
    assert all(isinstance(end, Finished) for end in ends)
    if name == "sampled":
        assert sum(e.stats.accepted for e in ends if isinstance(e, Finished)) > 0


@pytest.mark.parametrize("name", OPTIONS)
def test_drawing_as_on_a_gpu_changes_nothing(name: str) -> None:
    """All draws and walks of a pass at once: the tokens, log-probabilities and near ties of drawing one at a time."""
    prompts = [(1, 2, 3), tuple(i * 7 % VOCAB for i in range(40)), (0,)]
    events = [opening(i, OPTIONS[name], prompt=p) for i, p in enumerate(prompts)]
    harnesses = [Harness(engine(eos=(5,)), device_draws=where) for where in ("auto", "on")]
    host, device = (run_chaos(each, events, random.Random(5)) for each in harnesses)
    assert host == device == run_plain(Harness(engine(eos=(5,))), events)
    for session in host:
        assert harnesses[0].end(session) == harnesses[1].end(session)
    reported = [
        [o.logprobs for o in each.outputs if isinstance(o, Committed)] for each in harnesses
    ]
    assert len(reported[0]) == len(reported[1])
    for expected, actual in zip(*reported, strict=True):
        for one, other in zip(expected, actual, strict=True):
            assert one.top_ids == other.top_ids
            assert one.chosen == pytest.approx(other.chosen, abs=1e-5)


def test_two_drafters_on_one_session_change_nothing() -> None:
    """The union of several drafters' trees is verified as one, and each token names who proposed it."""
    events = [opening(1, OPTIONS["sampled"], drafters=("d", "e"))]
    plain = run_plain(Harness(engine()), events)
    harness = Harness(engine())
    assert run_chaos(harness, events, random.Random(4), ("d", "e")) == plain
    origins = {origin for one in commits_of(harness.outputs) for origin in one.origins}
    assert origins == {-1, 0, 1}


@pytest.mark.parametrize("seed", range(6))
def test_candidates_taken_in_while_a_pass_runs_change_nothing(seed: int) -> None:
    """What is grafted between a pass and its walk is stale or hangs below what the walk commits."""
    prompts = [(1, 2, 3), tuple(i * 7 % VOCAB for i in range(40)), (0,)]
    events = [opening(i, OPTIONS["sampled"], prompt=p) for i, p in enumerate(prompts)]
    plain = run_plain(Harness(engine()), events)
    harness = Harness(engine(), is_meddled_with=True)
    assert run_chaos(harness, events, random.Random(seed)) == plain
    ends = [harness.end(session) for session in plain]
    assert sum(e.stats.accepted for e in ends if isinstance(e, Finished)) > 0


def test_candidates_are_in_their_pool_before_the_pass_is_over() -> None:
    """Whoever posts them while the model runs puts them there; at other times they wait for the worker."""
    harness = Harness(engine())
    harness.worker.post(DrafterJoined(drafter="d"))
    harness.worker.post(opening(1, OPTIONS["sampled"], drafters=("d",)))
    harness.worker.step()
    handle = harness.handle(1)
    text = [1, 2, 3, *harness.committed(1)]
    sizes_S = harness.worker.state.pools.sizes_S
    sizes = []
    forward = harness.engine.forward

    def beside(batch: Sequence[Rows]) -> Logits:
        message = candidates(text, ([0, 1, 2], [0, 0, 0], bytes(3)), handle=handle, drafter="d")
        network = threading.Thread(target=harness.worker.post, args=(message,))
        network.start()
        network.join(60)
        sizes.append(int(sizes_S.sum()))
        return forward(batch)

    setattr(harness.engine, "forward", beside)  # noqa: B010 - a method of this one instance
    harness.worker.step()
    assert sizes == [3]
    setattr(harness.engine, "forward", forward)  # noqa: B010
    text = [1, 2, 3, *harness.committed(1)]
    size = int(sizes_S.sum())
    harness.worker.post(
        candidates(text, ([0, 1, 2], [0, 0, 0], bytes(3)), handle=handle, drafter="d")
    )
    assert sizes_S.sum() == size


def test_lockstep_gives_the_same_text() -> None:
    """Waiting for every draft changes the time, not the text."""
    events = [opening(1, OPTIONS["sampled"])]
    plain = run_plain(Harness(engine()), events)
    assert run_chaos(Harness(engine(), lockstep=True), events, random.Random(1)) == plain


def test_wrong_verdict_rule_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail: a walk that prefers candidates to draws gives another text."""
    events = [opening(1, OPTIONS["sampled"])]
    plain = run_plain(Harness(engine()), events)
    draw = host_drawing.Family.draw

    def credulous(
        self: host_drawing.Family,
        places_A: Int64s,
        tokens_A: Int64s,
        margins_A: host_drawing.Float32s,
    ) -> None:
        children = {int(parent): node for node, parent in reversed(list(enumerate(self.parents_N)))}
        for index, place in enumerate(places_A.tolist()):
            if place in children and place >= len(self.tokens_N):
                tokens_A[index] = self.tokens_N[children[place]]
        draw(self, places_A, tokens_A, margins_A)

    monkeypatch.setattr(host_drawing.Family, "draw", credulous)
    assert run_chaos(Harness(engine()), events, random.Random(1)) != plain


def test_same_seed_same_text_and_other_seed_other_text() -> None:
    """The seed decides the text, not the number or the company of the session."""
    sampling = Sampling(seed=11, max_tokens=40)
    alone = run_plain(Harness(engine()), [opening(1, sampling)])[1]
    crowd = run_plain(
        Harness(engine()),
        [opening(7, Sampling(seed=12, max_tokens=40)), opening(8, sampling)],
    )
    assert crowd[8] == alone
    assert crowd[7] != alone


def test_resumed_session_goes_on_where_it_was() -> None:
    """From prompt, committed tokens and seed a session goes on token for token, penalties included."""
    for name in ("sampled", "penalised", "greedy"):
        whole = run_plain(Harness(engine()), [opening(1, OPTIONS[name])])[1]
        for cut in (1, 17, 39):
            rest = run_plain(Harness(engine()), [opening(1, OPTIONS[name], committed=whole[:cut])])[
                1
            ]
            assert whole[:cut] + rest == whole


def test_output_ends_exactly_at_a_stop_token_inside_an_accepted_run() -> None:
    """Nothing follows the first stop token, though the tree went on below it."""
    sampling = Sampling(seed=8, max_tokens=40)
    text = run_plain(Harness(engine()), [opening(1, sampling)])[1]
    stop = text[5]
    position = text.index(stop)
    sampling = Sampling(seed=8, max_tokens=40, stop_token_ids=(stop,))
    harness = Harness(engine())
    harness.worker.post(DrafterJoined(drafter="d"))
    harness.worker.post(opening(1, sampling))
    chain = (text[:20], list(range(20)), b"\xff" * 20)
    harness.worker.post(candidates((1, 2, 3), chain, handle=1))
    for _ in range(50):
        harness.worker.step()
    assert harness.committed(1) == text[: position + 1]
    end = harness.end(1)
    assert isinstance(end, Finished)
    assert end.reason is Finish.STOP_TOKEN


def test_perfect_drafter_needs_few_passes() -> None:
    """A chain that is right is committed whole, with a bonus token, in one pass."""
    sampling = Sampling(seed=8, max_tokens=40, temperature=0.8)
    text = run_plain(Harness(engine()), [opening(1, sampling)])[1]
    harness = Harness(engine())
    harness.worker.post(DrafterJoined(drafter="d"))
    harness.worker.post(opening(1, sampling, speculation=Speculation(max_nodes=16, max_depth=8)))
    harness.worker.post(candidates((1, 2, 3), (text, list(range(40)), b"\xff" * 40), handle=1))
    for _ in range(50):
        harness.worker.step()
    assert harness.committed(1) == text
    end = harness.end(1)
    assert isinstance(end, Finished)
    assert (end.stats.rounds, end.stats.plain_passes) == (5, 0)
    assert end.stats.accepted == 40 - 5
    assert end.stats.reached_by_depth[0] == 5


def test_drafter_is_told_each_round_and_can_follow() -> None:
    """Verdicts of a drafter that takes part join up to the whole text, with the right hashes."""
    harness = Harness(engine())
    run_chaos(harness, [opening(1, OPTIONS["sampled"])], random.Random(2))
    told = verdicts(harness, "d")
    assert told
    text = [1, 2, 3, *harness.committed(1)]
    for message in told:
        assert message.base_hash == base_hash.extend_all(
            base_hash.EMPTY, text[: message.base_length]
        )
        begin = message.base_length - len(message.tokens)
        assert list(message.tokens) == text[begin : message.base_length]


def test_resync_tells_what_is_missing() -> None:
    """A drafter that lost the thread gets the tokens from where it is."""
    harness = Harness(engine())
    harness.worker.post(DrafterJoined(drafter="d"))
    harness.worker.post(opening(1, Sampling(seed=1, max_tokens=100)))
    for _ in range(10):
        harness.worker.step()
    harness.worker.post(ResyncRequest(drafter="d", handle=1, length=5))
    harness.worker.step()
    (resync,) = [o for o in harness.outputs if isinstance(o, Resync)]
    text = [1, 2, 3, *harness.committed(1)]
    assert list(resync.tokens) == text[5 : resync.base_length]


def test_candidates_of_an_unknown_base_are_dropped_and_answered() -> None:
    """A wrong hash or a base ahead of the text never reaches the pool."""
    harness = Harness(engine())
    harness.worker.post(DrafterJoined(drafter="d"))
    harness.worker.post(opening(1, Sampling(seed=1, max_tokens=100)))
    harness.worker.step()
    rng = random.Random(1)
    harness.worker.post(candidates((1, 2, 4), random_tree(rng, 5), handle=1))
    harness.worker.post(candidates([1] * 90, random_tree(rng, 5), handle=1))
    harness.worker.step()
    assert any(isinstance(o, Resync) for o in harness.outputs)
    for _ in range(200):
        harness.worker.step()
        harness.now += 1.0
    end = harness.end(1)
    assert isinstance(end, Finished)
    assert (end.stats.proposed, end.stats.stale, end.stats.verified) == (10, 10, 0)


def test_candidates_for_an_ended_session_are_answered() -> None:
    """A drafter that missed the end is told."""
    harness = Harness(engine())
    harness.worker.post(DrafterJoined(drafter="d"))
    harness.worker.post(candidates((1, 2, 3), random_tree(random.Random(1), 3), handle=77))
    harness.worker.step()
    assert harness.outputs == [SessionClosed(drafter="d", handle=77)]


def test_close_frees_the_slot_at_once() -> None:
    """Closing, and the end of a coordinator's stream, free slots without finishing."""
    model = engine(slots=2)
    harness = Harness(model)
    harness.worker.post(opening(1, Sampling(seed=1, max_tokens=400)))
    harness.worker.post(opening(2, Sampling(seed=1, max_tokens=400)))
    harness.worker.step()
    assert model.num_free == 0
    harness.worker.post(CloseSession(owner=SessionOwner(stream=1, session=1)))
    harness.worker.post(CloseSession(owner=SessionOwner(stream=1, session=99)))
    harness.worker.step()
    assert model.num_free == 1
    harness.worker.post(CloseStream(stream=1))
    harness.worker.step()
    assert (model.num_free, harness.worker.num_sessions) == (2, 0)


REFUSED = {
    "slots": (opening(9, Sampling(seed=1, max_tokens=5)), "RESOURCE_EXHAUSTED", "slots"),
    "empty": (opening(9, Sampling(seed=1, max_tokens=5), prompt=()), "INVALID_ARGUMENT", "prompt"),
    "context": (opening(9, Sampling(seed=1, max_tokens=5000)), "OUT_OF_RANGE", "512"),
    "token": (
        opening(9, Sampling(seed=1, max_tokens=5), prompt=(1, VOCAB)),
        "INVALID_ARGUMENT",
        "token id",
    ),
    "bias": (
        opening(9, Sampling(seed=1, max_tokens=5, logit_bias=dict.fromkeys(range(VOCAB), -100.0))),
        "INVALID_ARGUMENT",
        "logit_bias",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_and_takes_nothing(case: str) -> None:
    """The refusal names the cause, and slots stay as they were."""
    event, code, word = REFUSED[case]
    model = engine(slots=1)
    harness = Harness(model)
    if case == "slots":
        harness.worker.post(opening(1, Sampling(seed=1, max_tokens=400)))
        harness.worker.step()
    free = model.num_free
    harness.worker.post(event)
    harness.worker.step()
    end = harness.end(9)
    assert isinstance(end, Failed)
    assert end.code == code
    assert word in end.message
    assert model.num_free == free


def test_a_session_that_is_open_is_not_opened_again() -> None:
    """Its number is taken until it ends, whatever the second one asks for; its text goes on, and the target serves everybody."""
    events = [opening(number, Sampling(seed=number, max_tokens=20)) for number in (1, 2)]
    plain = run_plain(Harness(engine()), events)
    harness = Harness(engine())
    for event in events:
        harness.worker.post(event)
    harness.worker.step()
    harness.worker.post(opening(1, Sampling(seed=9, max_tokens=3)))
    _to_the_end(harness)
    refused = [output for output in harness.outputs if isinstance(output, Failed)]
    assert [(one.code, "session 1 is open already" in one.message) for one in refused] == [
        ("ALREADY_EXISTS", True)
    ]
    assert {number: harness.committed(number) for number in (1, 2)} == plain
    harness.worker.post(opening(1, Sampling(seed=1, max_tokens=20)))
    _to_the_end(harness)
    assert harness.committed(1) == plain[1] * 2


def test_who_came_is_told_before_the_next_pass() -> None:
    """A session's handle leaves before its prompt is run, so that drafters read the prompt at the same time."""
    model = engine()
    harness = Harness(model)
    original = model.forward
    told: list[bool] = []

    def watched(batch: Sequence[Rows]) -> Logits:
        told.append(any(isinstance(output, Opened) for output in harness.outputs))
        return original(batch)

    model.forward = watched  # type: ignore[method-assign]
    harness.worker.post(opening(1, OPTIONS["greedy"]))
    harness.worker.step()
    assert told == [True]


def _two_sessions_with_candidates() -> tuple[Harness, dict[int, list[int]]]:
    """A worker with two sessions, each with candidates in its pool, and what plain decoding makes of them."""
    events = [opening(i, Sampling(seed=i, max_tokens=20)) for i in (1, 2)]
    plain = run_plain(Harness(engine()), events)
    harness = Harness(engine())
    harness.worker.post(DrafterJoined(drafter="d"))
    for event in events:
        harness.worker.post(event)
    harness.worker.step()
    for session in (1, 2):
        text = [*events[session - 1].prompt, *harness.committed(session)]
        tree = random_tree(random.Random(session), 9)
        harness.worker.post(candidates(text, tree, handle=harness.handle(session)))
    return harness, plain


def _to_the_end(harness: Harness) -> None:
    for _ in range(200):
        harness.worker.step()


@pytest.mark.parametrize("fails_in", ["forward", "after the rows were written"])
def test_a_pass_that_fails_is_run_again_without_candidates(fails_in: str) -> None:
    """Whatever candidates do to a pass, every text is that of plain decoding."""
    harness, plain = _two_sessions_with_candidates()
    original = harness.engine.forward
    failed: list[int] = []

    def broken_by_trees(batch: Sequence[Rows]) -> Logits:
        has_tree = any(rows.logits == "all" for rows in batch)
        if has_tree and fails_in == "forward":
            failed.append(1)
            raise IndexError("a token id is out of range")
        logits = original(batch)
        if has_tree:
            failed.append(1)
            raise MemoryError("no room")
        return logits

    setattr(harness.engine, "forward", broken_by_trees)  # noqa: B010 - a method of this one instance
    _to_the_end(harness)
    assert failed
    assert {session: harness.committed(session) for session in plain} == plain
    assert all(isinstance(harness.end(session), Finished) for session in plain)


@pytest.mark.parametrize("max_scratch", [1, 2, 3, 12, 24])
@pytest.mark.parametrize("length", [1, 7, 40])
def test_trees_and_prompts_fit_the_scratch_rows(max_scratch: int, length: int) -> None:
    """A slot with few scratch rows takes smaller trees and shorter parts of prompts; no pass fails for them."""
    prompt = tuple(i * 7 % VOCAB for i in range(length))
    events = [
        opening(i, Sampling(seed=i, max_tokens=20), prompt=prompt, speculation=Speculation())
        for i in (1, 2)
    ]
    plain = run_plain(Harness(engine()), events)
    harness = Harness(engine(max_scratch=max_scratch), prefill_chunk=min(16, max_scratch))
    assert run_chaos(harness, events, random.Random(length)) == plain
    assert harness.worker.state.tally.failed_passes == 0
    ends = [harness.end(session) for session in plain]
    verified = sum(end.stats.verified for end in ends if isinstance(end, Finished))
    assert (verified > 0) == (max_scratch > 1)


def test_a_session_that_no_pass_can_take_ends_alone() -> None:
    """The others go on; its coordinator is told to open it elsewhere, and its slot is free."""
    harness, plain = _two_sessions_with_candidates()
    original = harness.engine.forward

    def refuses_the_first(batch: Sequence[Rows]) -> Logits:
        if any(rows.slot == 0 for rows in batch):
            raise MemoryError("no room")
        return original(batch)

    setattr(harness.engine, "forward", refuses_the_first)  # noqa: B010 - as above
    _to_the_end(harness)
    ends = [harness.end(session) for session in (1, 2)]
    lost = next(end for end in ends if isinstance(end, Failed))
    kept = next(i for i, end in enumerate(ends, start=1) if isinstance(end, Finished))
    assert (lost.code, "no room" in lost.message) == ("ABORTED", True)
    assert harness.committed(kept) == plain[kept]
    assert harness.engine.num_free == 4


def test_an_engine_that_always_fails_ends_the_worker() -> None:
    """A request that fails alone ends nothing but itself; one after the other they end the actor."""
    model = engine(slots=2)
    harness = Harness(model)
    original = model.forward

    def broken(batch: Sequence[Rows]) -> Logits:
        raise MemoryError("no room")

    model.forward = broken  # type: ignore[method-assign]
    harness.worker.post(opening(1, Sampling(seed=1, max_tokens=20)))
    harness.worker.step()
    end = harness.end(1)
    assert isinstance(end, Failed)
    assert (end.code, "no room" in end.message) == ("ABORTED", True)
    assert model.num_free == 2
    model.forward = original  # type: ignore[method-assign]
    assert len(run_plain(harness, [opening(2, Sampling(seed=1, max_tokens=20))])[2]) == 20
    model.forward = broken  # type: ignore[method-assign]

    def ask(session: int) -> None:
        harness.worker.post(opening(session, Sampling(seed=1, max_tokens=20)))
        harness.worker.step()

    for session in range(3, 2 + MAX_FAILED_PASSES):
        ask(session)
    with pytest.raises(EngineBroken):
        ask(2 + MAX_FAILED_PASSES)
    assert isinstance(harness.end(3), Failed)


def test_siblings_share_the_prompt() -> None:
    """Sessions of one request compute the prompt once, and each gives the text of its own seed."""
    prompt = tuple(i * 5 % VOCAB for i in range(60))
    events = [
        opening(i, Sampling(seed=100 + i, max_tokens=20), prompt=prompt, group=1) for i in range(4)
    ]
    alone = {
        i: run_plain(Harness(engine()), [event])[event.owner.session]
        for i, event in enumerate(events)
    }
    harness = Harness(engine())
    assert run_plain(harness, events) == alone
    cached = [e.stats.cached_tokens for i in range(4) if isinstance(e := harness.end(i), Finished)]
    assert sorted(cached) == [0, 59, 59, 59]


def test_steering_away_from_a_drafter_ends_its_part() -> None:
    """A drafter that is steered away is told, and its later candidates are not used."""
    harness = Harness(engine())
    harness.worker.post(DrafterJoined(drafter="d"))
    harness.worker.post(opening(1, Sampling(seed=1, max_tokens=60)))
    harness.worker.post(candidates((1, 2, 3), random_tree(random.Random(1), 9), handle=1))
    harness.worker.step()
    harness.worker.post(Steer(owner=SessionOwner(stream=1, session=1), drafters={}))
    harness.worker.step()
    assert SessionClosed(drafter="d", handle=1) in harness.outputs
    told = len(verdicts(harness, "d"))
    text = [1, 2, 3, *harness.committed(1)]
    harness.worker.post(candidates(text, random_tree(random.Random(1), 9), handle=1))
    for _ in range(100):
        harness.worker.step()
    assert len(verdicts(harness, "d")) == told


def test_target_waits_for_a_live_drafter_and_not_for_a_dead_one() -> None:
    """With a drafter that just answered the target is patient; once its stream is gone it decodes."""
    model = engine()
    harness = Harness(model)
    original = model.forward

    def slow(batch: Sequence[Rows]) -> Logits:
        harness.now += 0.02
        return original(batch)

    model.forward = slow  # type: ignore[method-assign]
    harness.worker.warm_up()
    harness.worker.post(DrafterJoined(drafter="d"))
    harness.worker.post(opening(1, Sampling(seed=1, max_tokens=60)))
    harness.worker.post(candidates((1, 2, 3), random_tree(random.Random(1), 2), handle=1))
    harness.worker.step()
    wait_s = harness.worker.step()
    assert wait_s is not None
    assert wait_s > 0.0
    before = len(harness.committed(1))
    harness.worker.post(DrafterLeft(drafter="d"))
    assert harness.worker.step() == 0.0
    assert len(harness.committed(1)) > before


def test_logprobs_are_of_the_models_own_distribution() -> None:
    """Reported log-probabilities ignore temperature and penalties, and come in order."""
    harness = Harness(engine())
    run_chaos(
        harness,
        [opening(1, Sampling(seed=9, max_tokens=30, temperature=0.3, logprobs=2))],
        random.Random(3),
    )
    table = random_table(VOCAB, 2, seed=1, concentration=0.7).log_probs
    text = [1, 2, 3]
    for output in harness.outputs:
        if isinstance(output, Committed):
            for token, logprob in zip(output.tokens, output.logprobs, strict=True):
                row = table[text[-2], text[-1]]
                assert logprob.chosen == pytest.approx(float(row[token]), abs=1e-5)
                assert logprob.top[0] == pytest.approx(float(row.max()), abs=1e-5)
                assert logprob.top[0] >= logprob.top[1]
                text.append(token)


def test_session_is_opened_before_anything_is_committed() -> None:
    """The coordinator learns the handle first."""
    harness = Harness(engine())
    run_plain(harness, [opening(1, Sampling(seed=1, max_tokens=3))])
    kinds = [type(o) for o in harness.outputs]
    assert kinds == [Opened, CommitFrame, CommitFrame, CommitFrame, Finished]
    assert [one.epoch for one in commits_of(harness.outputs)] == [1, 2, 3]


def test_verdicts_tell_which_candidates_were_seen() -> None:
    """The last taken in before the round, whatever became of them; after a drafter came back it counts again."""
    harness = Harness(engine())
    harness.worker.post(DrafterJoined(drafter="d"))
    harness.worker.post(opening(1, Sampling(seed=3, max_tokens=30)))
    harness.worker.step()
    harness.worker.post(candidates((1, 2, 3), ([], [], b""), handle=1, number=1))
    harness.worker.step()
    harness.worker.post(candidates((9, 9), ([5], [0], b"\xff"), handle=1, number=4))
    harness.worker.step()
    harness.worker.step()

    def seen() -> list[int]:
        return [told.seen for told in verdicts(harness, "d") if isinstance(told, Verdict)]

    assert seen() == [1, 4, 4]
    harness.worker.post(DrafterLeft(drafter="d"))
    harness.worker.post(DrafterJoined(drafter="d"))
    harness.worker.post(ResyncRequest(drafter="d", handle=1, length=3))
    harness.worker.step()
    harness.worker.step()
    assert seen()[3:] == [0, 0]


@pytest.mark.parametrize(("sessions", "lockstep"), [(1, False), (2, False), (1, True)])
def test_a_verdict_says_how_long_the_target_waits(
    monkeypatch: pytest.MonkeyPatch, sessions: int, *, lockstep: bool
) -> None:
    """If it has nothing to verify; its next pass waits no longer than that."""
    slow = engine()
    forward = slow.forward

    def slowly(batch: Sequence[Rows]) -> Logits:
        harness.now += 0.02
        return forward(batch)

    monkeypatch.setattr(slow, "forward", slowly)
    harness = Harness(slow, lockstep=lockstep)
    harness.worker.state.cost.set_curve(dict.fromkeys((1, 2, 4, 8, 16, 32, 64), 0.02))
    harness.worker.post(DrafterJoined(drafter="d"))
    for number in range(sessions):
        harness.worker.post(opening(number, OPTIONS["endless"]))
    harness.worker.step()
    for number in range(sessions):
        text = (1, 2, 3, *harness.committed(number))
        tree = random_tree(random.Random(1), 4)
        harness.worker.post(candidates(text, tree, handle=harness.handle(number)))
    for _ in range(30):
        told = [v for v in verdicts(harness, "d") if isinstance(v, Verdict)]
        if told:
            break
        left_s = harness.worker.step()
        harness.now += left_s or 0.0
    assert told
    assert told[0].starving
    assert told[0].wait_s > 0.0
    committed = harness.committed(0)
    assert harness.worker.step() == pytest.approx(told[0].wait_s, abs=0.002)
    assert harness.committed(0) == committed
    harness.now += told[0].wait_s
    harness.worker.step()
    assert len(harness.committed(0)) > len(committed)


def test_a_verdict_says_how_long_a_round_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass and the mean wait before one: against less, drafters that are waited for would give growth up too early."""
    sampling = Sampling(seed=9, max_tokens=200, ignore_eos=True)
    plain = run_plain(Harness(engine()), [opening(1, sampling)])[1]
    slow = engine()
    forward = slow.forward

    def slowly(batch: Sequence[Rows]) -> Logits:
        harness.now += 0.02
        return forward(batch)

    monkeypatch.setattr(slow, "forward", slowly)
    harness = Harness(slow)
    harness.worker.state.cost.set_curve(dict.fromkeys((1, 2, 4, 8, 16, 32, 64), 0.02))
    harness.worker.post(DrafterJoined(drafter="d"))
    harness.worker.post(opening(1, sampling))
    harness.worker.step()
    ends: list[float] = []
    for _ in range(40):
        done = harness.committed(1)
        right = candidates(
            (1, 2, 3, *done), ([plain[len(done)]], [0], b"\xff"), handle=harness.handle(1)
        )
        harness.now += 0.01
        harness.worker.post(right)
        for _ in range(10):
            if len(harness.committed(1)) > len(done):
                break
            left_s = harness.worker.step()
            harness.now += left_s or 0.0
        ends.append(harness.now)
    told = [v for v in verdicts(harness, "d") if isinstance(v, Verdict)]
    round_s = (ends[-1] - ends[-11]) / 10
    assert round_s > 0.029
    assert told[-1].pass_s == pytest.approx(round_s, rel=0.1)


def test_a_flood_of_candidates_holds_no_pass_up() -> None:
    """A drafter that sends the next ones while the last are taken in is heard between passes, and the text grows."""
    harness = Harness(engine())
    sampling = Sampling(seed=3, max_tokens=10)
    plain = run_plain(Harness(engine()), [opening(1, sampling)])
    harness.worker.post(DrafterJoined(drafter="d"))
    harness.worker.post(opening(1, sampling))
    harness.worker.step()
    core = harness.worker._core
    take, flood = core.take, candidates((1, 2, 3), ([0], [-1], b"\xff"), handle=harness.handle(1))
    left = 10_000

    def take_and_get_more(event: Event, now: float, arrived: float | None = None) -> None:
        nonlocal left
        left -= 1
        assert left, "the worker never stops to take candidates in"
        take(event, now, arrived)
        harness.worker.post(flood)

    setattr(core, "take", take_and_get_more)  # noqa: B010 - a method of this one instance
    harness.worker.post(flood)
    while harness.end(1) is None:
        harness.worker.step()
    assert harness.committed(1) == plain[1]
