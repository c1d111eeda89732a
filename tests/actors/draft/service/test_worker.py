"""The draft worker: messages in, messages out, whatever goes wrong."""

from __future__ import annotations

import random
import threading
from dataclasses import replace

import grpc
import numpy as np
import pytest
from tests.actors.draft.bench import (
    CHEAP,
    DRAFT_TABLE,
    TARGET_TABLE,
    MiniTarget,
    TableBench,
    frame_of,
    make_attach,
)
from tests.actors.draft.trees.plain_tree import Pool

from outrider.actors.draft.draft_core import DraftCore
from outrider.actors.draft.draft_worker import DraftWorker
from outrider.actors.draft.model.growing_drafter import RUN_SHARE
from outrider.actors.draft.state.draft_events import (
    Attached,
    CandidatesSent,
    Closed,
    Detach,
    LinkLost,
    ResyncWanted,
    SessionKey,
)
from outrider.actors.draft.state.draft_sessions import DraftSession
from outrider.actors.engine.protocol import Batch
from outrider.actors.exchange.verdicts import TargetActivity
from outrider.actors.speculation.options import Speculation


def test_an_attached_session_is_answered_and_asks_for_the_rest() -> None:
    """The coordinator hears that it is attached; the target is asked for what was committed meanwhile."""
    bench, attach = TableBench(DRAFT_TABLE), make_attach()
    bench.worker.post(attach)
    bench.step()
    attached, asked, *_ = bench.take()
    assert attached == Attached(key=attach.key)
    assert asked == ResyncWanted(key=attach.key, length=5)


def test_every_node_reaches_the_target() -> None:
    """The union of all messages at one base is what the drafter takes as sent."""
    bench, attach = TableBench(DRAFT_TABLE), make_attach()
    target = MiniTarget(TARGET_TABLE, attach)
    bench.worker.post(attach)
    bench.settle()
    pool = Pool()
    messages = bench.take_news()
    assert len(messages) > 1
    for message in messages:
        assert (message.handle, message.length) == (7, 5)
        assert message.hash == target.hash_at(5)
        pool.graft(message.paths)
    assert len(pool) == bench.num_sent(attach.key)


def test_after_a_verdict_only_new_nodes_are_sent() -> None:
    """The target re-roots its pool itself: pool and drafter hold the same tree after every round."""
    bench, attach = TableBench(TARGET_TABLE), make_attach()
    target = MiniTarget(TARGET_TABLE, attach)
    pool, generator = Pool(), random.Random(2)
    bench.worker.post(attach)
    for _ in range(15):
        bench.settle()
        for message in bench.take_news():
            assert message.length == target.length
            pool.graft(message.paths)
        assert len(pool) == bench.num_sent(attach.key)
        verdict = target.commit(generator.randint(1, 4))
        pool.reroot(verdict.verdicts.tokens_T.tolist())
        bench.worker.post(verdict)


@pytest.mark.parametrize("credit_limit", [0, 1, 5, 20])
def test_credits_are_respected(credit_limit: int) -> None:
    """The target never holds more nodes below the base than it allowed."""
    bench, attach = TableBench(DRAFT_TABLE), make_attach()
    target = MiniTarget(TARGET_TABLE, attach)
    target.credits = credit_limit
    bench.worker.post(attach)
    bench.worker.post(target.resync(5))
    pool = Pool()
    most = 0
    for _ in range(15):
        bench.settle()
        for message in bench.take_news():
            pool.graft(message.paths)
        assert len(pool) <= credit_limit
        most = max(most, len(pool))
        verdict = target.commit(2)
        pool.reroot(verdict.verdicts.tokens_T.tolist())
        bench.worker.post(verdict)
    assert most == credit_limit


def test_a_starving_target_is_sent_everything_again() -> None:
    """What the target lost is repeated, though it was sent before."""
    bench, attach = TableBench(TARGET_TABLE), make_attach()
    target = MiniTarget(TARGET_TABLE, attach)
    bench.worker.post(attach)
    bench.settle()
    bench.take()
    bench.worker.post(target.commit(1, starving=True))
    bench.settle()
    pool = Pool()
    for message in bench.take_news():
        pool.graft(message.paths)
    assert len(pool) == bench.num_sent(attach.key)


@pytest.mark.parametrize("num_seen", [0, 1, 2])
def test_what_is_on_its_way_is_not_sent_again(num_seen: int) -> None:
    """A target that starves because messages take long gets each node once; what it saw and dropped is repeated."""
    bench, attach = TableBench(TARGET_TABLE), make_attach()
    target = MiniTarget(TARGET_TABLE, attach)
    bench.worker.post(attach)
    bench.settle()
    late = bench.take_news()
    assert [message.number for message in late] == list(range(1, len(late) + 1))
    assert len(late) > 2
    verdict = target.commit(1, starving=True, seen=num_seen)
    fresh = verdict.verdicts.tokens_T.tolist()
    bench.worker.post(verdict)
    bench.settle()
    # What was seen before the verdict is lost, the rest comes in late and is re-rooted on arrival.
    pool = Pool()
    held = sum(pool.graft(message.paths, fresh) for message in late[num_seen:])
    again = bench.take_news()
    assert held > 0
    for message in again:
        assert pool.graft(message.paths) > 0
    assert len(pool) == bench.num_sent(attach.key) > held


def test_repeated_verdicts_change_nothing() -> None:
    """A verdict counts once, however often and late it arrives."""
    bench, attach = TableBench(DRAFT_TABLE), make_attach()
    target = MiniTarget(TARGET_TABLE, attach)
    bench.worker.post(attach)
    verdicts = [target.commit(2) for _ in range(4)]
    for verdict in verdicts:
        bench.worker.post(verdict)
    bench.settle()
    bench.take()
    before = bench.tree(attach.key)
    for verdict in (*verdicts, verdicts[0]):
        bench.worker.post(verdict)
    bench.worker.post(target.resync(5))
    bench.settle()
    assert bench.text(attach.key) == target.tokens
    assert bench.tree(attach.key) == before
    assert bench.take() == []
    assert bench.worker.stats.stale == 5


def test_a_lost_verdict_is_asked_for_once() -> None:
    """A gap is asked for; nothing is drafted meanwhile; the answer brings the drafter back."""
    bench, attach = TableBench(DRAFT_TABLE), make_attach()
    target = MiniTarget(TARGET_TABLE, attach)
    bench.worker.post(attach)
    bench.settle()
    bench.take()
    target.commit(3)
    for _ in range(3):
        bench.worker.post(target.commit(2))
        bench.step()
    assert bench.take() == [ResyncWanted(key=attach.key, length=5)]
    bench.worker.post(target.resync(5))
    bench.settle()
    assert bench.text(attach.key) == target.tokens
    assert [message.length for message in bench.take_news()][-1] == target.length


def test_an_unanswered_request_is_repeated() -> None:
    """If the answer does not come within a second, the next verdict asks again."""
    bench, attach = TableBench(DRAFT_TABLE), make_attach()
    target = MiniTarget(TARGET_TABLE, attach)
    bench.worker.post(attach)
    bench.settle()
    bench.take()
    target.commit(1)
    bench.worker.post(target.commit(1))
    bench.step()
    bench.now += 2.0
    bench.worker.post(target.commit(1))
    bench.step()
    assert len(bench.take_asked()) == 2


def test_a_wrong_text_is_replaced() -> None:
    """A session attached with tokens that the target never committed finds the truth."""
    bench = TableBench(DRAFT_TABLE)
    attach = make_attach(tokens=[1, 2, 3, 4, 5, 6, 7, 8], prompt_length=3)
    target = MiniTarget(TARGET_TABLE, make_attach(tokens=[1, 2, 3]))
    target.commit(6)
    bench.worker.post(attach)
    bench.settle()
    asked = bench.take_asked()[0]
    bench.worker.post(target.resync(asked.length))
    bench.step()
    again = bench.take_asked()[0]
    assert again.length == 0
    bench.worker.post(target.resync(0))
    bench.settle()
    assert bench.text(attach.key) == target.tokens
    assert bench.is_expanded(attach.key)
    bench.worker.post(target.commit(2))
    bench.settle()
    assert bench.text(attach.key) == target.tokens


def test_messages_in_any_order_end_in_the_same_state() -> None:
    """Lost, doubled and reordered verdicts and answers leave the text of the target."""
    for seed in range(8):
        generator = random.Random(seed)
        bench, attach = TableBench(DRAFT_TABLE), make_attach()
        target = MiniTarget(TARGET_TABLE, attach)
        bench.worker.post(attach)
        for _ in range(25):
            batch = [target.commit(generator.randint(1, 3)) for _ in range(generator.randint(1, 3))]
            generator.shuffle(batch)
            for verdict in batch:
                for _ in range(generator.choice([0, 1, 1, 1, 2])):
                    bench.worker.post(verdict)
            bench.step(generator.randint(1, 3))
            bench.now += generator.choice([0.0, 1.5])
            for asked in bench.take_asked():
                if generator.random() < 0.6:
                    bench.worker.post(target.resync(min(asked.length, target.length)))
        bench.now += 2.0
        for _ in range(4):
            bench.worker.post(target.commit(1))
            bench.settle()
            for asked in bench.take_asked():
                bench.worker.post(target.resync(min(asked.length, target.length)))
            bench.settle()
        assert bench.text(attach.key) == target.tokens


def test_detaching_frees_the_slot() -> None:
    """After a detach, a close or a lost link another session fits; repeating it is harmless."""
    bench = TableBench(DRAFT_TABLE, num_slots=1)
    key = make_attach().key
    for end in (Detach(key=key), Closed(key=key), LinkLost(link=key.link)):
        bench.worker.post(make_attach())
        bench.settle()
        assert bench.worker.num_free_slots == 0
        bench.take()
        bench.worker.post(end)
        bench.worker.post(end)
        bench.settle()
        assert bench.worker.num_free_slots == 1
        assert len(bench.take_ended()) == isinstance(end, Closed)
        assert len(bench.sessions) == 0


def test_a_full_drafter_refuses() -> None:
    """The refusal names the limit, and the attached session goes on."""
    bench = TableBench(DRAFT_TABLE, num_slots=1)
    bench.worker.post(make_attach(handle=1))
    bench.worker.post(make_attach(handle=2))
    bench.settle()
    [refused] = bench.take_refused()
    assert refused.key.handle == 2
    assert refused.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "num_slots" in refused.message
    assert len(bench.sessions) == 1


@pytest.mark.parametrize(
    ("tokens", "word"), [([1, 2**32], "4294967296"), ([1] * 50, "context"), ([], "empty")]
)
def test_a_text_that_does_not_fit_is_refused(tokens: list[int], word: str) -> None:
    """Unknown token ids and texts beyond the context are refused before any work, and take no slot."""
    bench = TableBench(DRAFT_TABLE, max_context=40)
    bench.worker.post(make_attach(tokens=tokens))
    bench.settle()
    [refused] = bench.take_refused()
    assert refused.code is grpc.StatusCode.FAILED_PRECONDITION
    assert word in refused.message
    assert bench.worker.num_free_slots == bench.worker.num_slots


def test_attaching_again_starts_over() -> None:
    """The same session attached twice is one session, with the newer text."""
    bench = TableBench(DRAFT_TABLE, num_slots=1)
    bench.worker.post(make_attach(tokens=[1, 2]))
    bench.settle()
    bench.worker.post(make_attach(tokens=[3, 4, 5]))
    bench.settle()
    assert [session.tokens for session in bench.sessions] == [[3, 4, 5]]


def test_a_failing_model_ends_sessions_not_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator hears why; a session attached afterwards is served."""
    bench = TableBench(DRAFT_TABLE)
    bench.worker.post(make_attach(handle=1))
    bench.step()

    def fail(batch: Batch) -> None:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(bench.engine, "forward", fail)
        bench.step()
    [ended] = bench.take_ended()
    assert "out of memory" in ended.message
    bench.worker.post(make_attach(handle=2))
    bench.settle()
    assert bench.take_news()
    assert bench.worker.num_free_slots == bench.worker.num_slots - 1


@pytest.mark.parametrize("hook", ["attach", "detach"])
def test_a_failing_method_ends_its_session_not_the_worker(
    monkeypatch: pytest.MonkeyPatch, hook: str
) -> None:
    """Also where a session comes or goes: the coordinator hears why, the others go on, and the room is free again."""
    bench = TableBench(DRAFT_TABLE)
    bench.worker.post(make_attach(handle=1))
    bench.settle()
    bench.take()
    real = getattr(bench.model_drafter, hook)

    def fail(session: DraftSession) -> None:
        if hook == "detach":
            real(session)
        raise RuntimeError("a defect of the method")

    with monkeypatch.context() as patch:
        patch.setattr(bench.model_drafter, hook, fail)
        bench.worker.post(make_attach(handle=2))
        bench.settle()
        bench.worker.post(Detach(key=SessionKey(1, 2)))
        bench.settle()
    refused = [(refusal.code, refusal.message) for refusal in bench.take_refused()]
    assert len(refused) == (hook == "attach")
    assert all(
        code is grpc.StatusCode.INTERNAL and "a defect of the method" in message
        for code, message in refused
    )
    assert [session.key.handle for session in bench.sessions] == [1]
    assert bench.worker.num_free_slots == bench.worker.num_slots - 1
    assert bench.worker.stats.failures == 1
    bench.worker.post(make_attach(handle=3))
    bench.settle()
    assert {news.handle for news in bench.take_news()} == {3}


def test_a_token_outside_the_vocabulary_ends_nothing() -> None:
    """A wider target may commit what the model does not have: it reads another token there, and drafts on."""
    bench, attach = TableBench(DRAFT_TABLE), make_attach()
    target = MiniTarget(TARGET_TABLE, attach)
    bench.worker.post(attach)
    bench.settle()
    bench.take()
    target.tokens.append(1000)
    bench.worker.post(target.resync(5))
    bench.settle()
    news = bench.take_news()
    assert {message.length for message in news} == {6}
    assert sum(len(message.tokens) for message in news) > 0


def test_lockstep_sends_one_tree_and_waits() -> None:
    """One message of at most `max_nodes` nodes and `max_depth` levels a verdict, and nothing in between."""
    bench = TableBench(DRAFT_TABLE, lockstep=True)
    attach = make_attach(speculation=Speculation(max_nodes=10, max_depth=4))
    target = MiniTarget(TARGET_TABLE, attach)
    bench.worker.post(attach)
    for _ in range(20):
        bench.settle()
        [message] = bench.take_news()
        assert message.length == target.length
        assert len(message.tokens) == 10
        assert max(map(len, message.paths)) <= 4
        bench.settle()
        assert bench.take() == []
        bench.worker.post(target.commit(2))


def test_the_thread_sleeps_wakes_and_stops() -> None:
    """An idle worker takes events at once and ends when told to, freeing its sessions."""
    seen = threading.Event()
    bench = TableBench(DRAFT_TABLE)
    core = DraftCore(bench.sessions, bench.model_drafter, max_ahead=64, bytes_per_token=CHEAP)
    worker = DraftWorker(
        core, emit=lambda report: seen.set() if isinstance(report, CandidatesSent) else None
    )
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        worker.post(make_attach())
        assert seen.wait(60)
    finally:
        worker.stop()
        thread.join(60)
    assert not thread.is_alive()
    assert worker.num_free_slots == worker.num_slots


def test_a_text_that_is_too_long_is_cut() -> None:
    """When the target holds only the beginning of our text, the last token left is run again and drafting goes on."""
    bench = TableBench(DRAFT_TABLE)
    attach = make_attach(tokens=[1, 2, 3, 4, 5], prompt_length=3)
    target = MiniTarget(TARGET_TABLE, make_attach(tokens=[1, 2, 3]))
    bench.worker.post(attach)
    bench.settle()
    bench.take()
    bench.worker.post(target.resync(0))
    bench.settle()
    assert bench.text(attach.key) == [1, 2, 3]
    assert bench.is_expanded(attach.key)
    assert [message.length for message in bench.take_news()][-1] == 3


def test_an_overtaken_resync_does_not_roll_back() -> None:
    """Committed tokens from an earlier epoch than the last verdict's are old news."""
    bench, attach = TableBench(DRAFT_TABLE), make_attach()
    target = MiniTarget(TARGET_TABLE, attach)
    bench.worker.post(attach)
    old = target.resync(0)
    bench.worker.post(target.commit(3))
    bench.worker.post(old)
    bench.settle()
    assert bench.text(attach.key) == target.tokens


def test_credits_bound_the_work_not_only_what_is_sent() -> None:
    """Further ahead than the target allows nothing is run; with more credits the tree grows on where it was."""
    bench, attach = TableBench(DRAFT_TABLE), make_attach()
    target = MiniTarget(TARGET_TABLE, attach)
    session_passes = []
    bench.worker.post(attach)
    for credit_limit in (0, 3, 12):
        target.credits = credit_limit
        bench.worker.post(target.resync(target.length) if credit_limit == 0 else target.commit(1))
        before = bench.worker.stats.passes
        bench.settle()
        session_passes.append(bench.worker.stats.passes - before)
        assert bench.tree(attach.key).num_run <= credit_limit
    assert session_passes[0] == 0
    assert session_passes[2] > 1


def test_a_new_session_rests_with_the_others() -> None:
    """Until the target says otherwise: it has sent the drafters to rest, so a prompt would be run for nobody."""
    bench = TableBench(DRAFT_TABLE)
    first, second = make_attach(handle=7), make_attach(handle=8)
    target = MiniTarget(TARGET_TABLE, first)
    bench.worker.post(first)
    bench.settle()
    target.credits = 0
    bench.worker.post(target.commit(1))
    bench.settle()
    before = bench.worker.stats.passes
    bench.worker.post(second)
    bench.settle()
    assert bench.worker.stats.passes == before
    woken = MiniTarget(TARGET_TABLE, second)
    bench.worker.post(woken.resync(woken.length))
    bench.settle()
    assert bench.worker.stats.passes > before
    assert bench.num_sent(second.key) > 0


def test_one_frame_answers_all_sessions_of_a_target() -> None:
    """What several sessions have to say goes out together, each below its own base."""
    bench = TableBench(DRAFT_TABLE)
    attaches = [make_attach(handle=handle, tokens=range(1, 3 + handle)) for handle in (1, 2, 3)]
    targets = [MiniTarget(TARGET_TABLE, attach) for attach in attaches]
    for attach in attaches:
        bench.worker.post(attach)
    bench.settle()
    bench.take()
    verdicts = [target.decide(2, starving=True) for target in targets]
    bench.worker.post(frame_of(verdicts, target=TargetActivity(pass_s=1.0, free_s=1.0)))
    bench.settle()
    [frame] = [report for report in bench.take() if isinstance(report, CandidatesSent)]
    assert frame.candidates is not None
    assert frame.candidates.handles_E.tolist() == [1, 2, 3]
    assert frame.candidates.lengths_E.tolist() == [target.length for target in targets]


def test_a_busy_target_is_told_when_it_can_listen() -> None:
    """While it is known to be busy candidates gather, though the tree grows on; they leave in time for it."""
    bench, attach = TableBench(TARGET_TABLE), make_attach(round_trip_s=0.004)
    target = MiniTarget(TARGET_TABLE, attach)
    bench.worker.post(attach)
    bench.settle()
    bench.take()
    bench.worker.post(
        target.commit(9, starving=True, target=TargetActivity(pass_s=0.02, free_s=0.02))
    )
    arrived = bench.now + 0.001
    sent_at = None
    for _ in range(40):
        bench.step()
        if sent_at is None and bench.take_news():
            sent_at = bench.now
    assert sent_at is not None
    passes_left = bench.worker.run_once()
    # Nothing is left to gather for, or the target's pass ends once the message is there.
    assert not passes_left or arrived + 0.012 <= sent_at <= arrived + 0.016


def test_what_is_worth_less_than_its_row_is_sent_and_not_gone_on_from() -> None:
    """A verdict may raise it above what a row costs at the target: then it is there. What is worth hardly any of that is not run."""
    bench, attach = TableBench(DRAFT_TABLE), make_attach()
    target = MiniTarget(TARGET_TABLE, attach)
    bench.worker.post(attach)
    bench.settle()
    bench.take()

    def least(floor: float) -> tuple[float, float]:
        """Least value of what is sent, and of what was gone on from."""
        bench.worker.post(target.commit(1, starving=True, target=TargetActivity(floor=floor)))
        bench.settle()
        found, run = [1.0], [1.0]
        for news in bench.take_news():
            worth: list[float] = []
            for parent, estimate in zip(news.parents, news.estimates, strict=True):
                worth.append(estimate * (worth[parent] if parent >= 0 else 1.0))
                run += worth[parent : parent + 1] if parent >= 0 else []
            found += worth
        return min(found), min(run)

    for _ in range(8):
        least(0.9)  # What was run before is not of this floor.
    sent, run = least(0.9)
    # Estimates are in 255ths on the wire.
    assert sent < 0.8
    assert run > RUN_SHARE * 0.9 - 0.02
    _, run = least(0.01)
    assert run < RUN_SHARE * 0.9 - 0.02


def test_dear_bytes_send_less() -> None:
    """With fewer bytes for a token only what is worth them goes out."""
    sent = []
    for bytes_per_token in (CHEAP, 100.0, 20.0):
        bench, attach = TableBench(DRAFT_TABLE, bytes_per_token=bytes_per_token), make_attach()
        bench.worker.post(attach)
        bench.settle()
        sent.append(bench.num_sent(attach.key))
    assert sent[0] > sent[1] > sent[2]


def test_a_target_that_commits_too_much_loses_its_session() -> None:
    """More tokens than the request allows end the session, with the reason; another goes on."""
    bench = TableBench(DRAFT_TABLE)
    short, other = make_attach(handle=1, max_tokens=3), make_attach(handle=2)
    targets = [MiniTarget(TARGET_TABLE, attach) for attach in (short, other)]
    for attach in (short, other):
        bench.worker.post(attach)
    bench.settle()
    bench.take()
    bench.worker.post(frame_of([target.decide(4) for target in targets]))
    bench.settle()
    [ended] = bench.take_ended()
    assert ended.key == short.key
    assert "more tokens" in ended.message
    assert bench.text(other.key) == targets[1].tokens


def test_a_session_twice_in_a_frame_counts_once() -> None:
    """A frame that no target sends: the second verdict for a session is dropped."""
    bench, attach = TableBench(DRAFT_TABLE), make_attach()
    target = MiniTarget(TARGET_TABLE, attach)
    bench.worker.post(attach)
    bench.worker.post(frame_of([target.decide(1), target.decide(1)]))
    bench.settle()
    assert bench.text(attach.key) == target.tokens[:-1]
    bench.worker.post(target.commit(1))
    bench.settle()
    assert bench.take_asked()[-1].length == 6


def test_long_verdicts_are_followed() -> None:
    """A round may commit hundreds of tokens: the hash and the text are right all the same."""
    bench, attach = TableBench(DRAFT_TABLE), make_attach()
    target = MiniTarget(TARGET_TABLE, attach)
    bench.worker.post(attach)
    bench.settle()
    for count in (64, 65, 200):
        bench.worker.post(target.commit(count))
        bench.settle()
        assert bench.text(attach.key) == target.tokens
    assert int(bench.sessions.hashes_S[bench.row(attach.key)]) == target.hash_at(target.length)
    assert not np.isfinite(bench.sessions.asked_at_S[bench.row(attach.key)])


@pytest.mark.parametrize("recording_s", [0.0, 0.15])
def test_what_a_pass_takes_is_not_learned_from_one_with_a_recording(
    recording_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its shape was recorded with it, which takes as long as ten passes."""
    bench, attach = TableBench(DRAFT_TABLE), make_attach()
    forward, known = bench.engine.forward, bench.model_drafter.cost.predict(4)
    monkeypatch.setattr(
        bench.engine, "forward", lambda batch: replace(forward(batch), recording_s=recording_s)
    )
    bench.worker.post(attach)
    bench.settle()
    assert bench.take_news()
    assert (bench.model_drafter.cost.predict(4) == known) == (recording_s > 0.0)
