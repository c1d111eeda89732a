"""The draft worker: messages in, messages out, whatever goes wrong."""

from __future__ import annotations

import random
import threading
from collections.abc import Collection, Sequence

import grpc
import pytest
from tests.actors.draft.bench import (
    DRAFT_TABLE,
    TARGET_TABLE,
    MiniTarget,
    TableBench,
    make_attach,
)

from outrider.actors.draft.drafter import Progress
from outrider.actors.draft.events import Attached, Closed, Detach, Drafted, LinkLost, ResyncWanted
from outrider.actors.draft.prompt_lookup import PromptLookupDrafter
from outrider.actors.draft.session import DraftSession
from outrider.actors.draft.tree import NOT_RUN, TreeNews
from outrider.actors.draft.worker import DraftWorker
from outrider.actors.speculation.options import Speculation
from outrider.actors.speculation.pool import CandidatePool


def graft(pool: CandidatePool, news: TreeNews, since: Sequence[int] = ()) -> int:
    """What a target does with candidates of a base `since` which so much was committed. How many were new."""
    estimates = [byte / 255 for byte in news.estimates]
    return pool.graft(
        news.tokens, news.parents, estimates, 0, since, lambda estimate: estimate
    ).added


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
    pool = CandidatePool(target.length, 500)
    messages = bench.take_news()
    assert len(messages) > 1
    for message in messages:
        assert (message.handle, message.length) == (7, 5)
        assert message.hash == target.hash_at(5)
        graft(pool, message.tree)
    assert len(pool) == bench.worker.sessions[attach.key].tree.num_sent


def test_after_a_verdict_only_new_nodes_are_sent() -> None:
    """The target re-roots its pool itself: pool and drafter hold the same tree after every round."""
    bench, attach = TableBench(TARGET_TABLE), make_attach()
    target = MiniTarget(TARGET_TABLE, attach)
    pool, generator = CandidatePool(target.length, 500), random.Random(2)
    bench.worker.post(attach)
    for _ in range(15):
        bench.settle()
        for message in bench.take_news():
            assert message.length == target.length
            graft(pool, message.tree)
        assert len(pool) == bench.worker.sessions[attach.key].tree.num_sent
        verdict = target.commit(generator.randint(1, 4))
        pool.reroot(verdict.tokens)
        bench.worker.post(verdict)


@pytest.mark.parametrize("credit_limit", [0, 1, 5, 20])
def test_credits_are_respected(credit_limit: int) -> None:
    """The target never holds more nodes below the base than it allowed."""
    bench, attach = TableBench(DRAFT_TABLE), make_attach()
    target = MiniTarget(TARGET_TABLE, attach)
    target.credits = credit_limit
    bench.worker.post(attach)
    bench.worker.post(target.resync(5))
    pool = CandidatePool(target.length, 500)
    most = 0
    for _ in range(15):
        bench.settle()
        for message in bench.take_news():
            graft(pool, message.tree)
        assert len(pool) <= credit_limit
        most = max(most, len(pool))
        verdict = target.commit(2)
        pool.reroot(verdict.tokens)
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
    pool = CandidatePool(target.length, 500)
    for message in bench.take_news():
        graft(pool, message.tree)
    assert len(pool) == bench.worker.sessions[attach.key].tree.num_sent


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
    bench.worker.post(verdict)
    bench.settle()
    # What was seen before the verdict is lost, the rest comes in late and is re-rooted on arrival.
    pool = CandidatePool(target.length, 500)
    held = sum(graft(pool, message.tree, verdict.tokens) for message in late[num_seen:])
    again = bench.take_news()
    assert held > 0
    for message in again:
        assert graft(pool, message.tree) > 0
    assert len(pool) == bench.worker.sessions[attach.key].tree.num_sent > held


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
    session = bench.worker.sessions[attach.key]
    before = list(session.tree.tokens)
    for verdict in (*verdicts, verdicts[0]):
        bench.worker.post(verdict)
    bench.worker.post(target.resync(5))
    bench.settle()
    assert session.tokens == target.tokens
    assert session.tree.tokens == before
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
    session = bench.worker.sessions[attach.key]
    assert session.tokens == target.tokens
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
    session = bench.worker.sessions[attach.key]
    assert session.tokens == target.tokens
    assert session.tree.is_expanded
    bench.worker.post(target.commit(2))
    bench.settle()
    assert session.tokens == target.tokens


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
        assert bench.worker.sessions[attach.key].tokens == target.tokens


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
        assert not bench.worker.sessions


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
    assert len(bench.worker.sessions) == 1


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
    assert [session.tokens for session in bench.worker.sessions.values()] == [[3, 4, 5]]


def test_a_failing_model_ends_sessions_not_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator hears why; a session attached afterwards is served."""
    bench = TableBench(DRAFT_TABLE)
    bench.worker.post(make_attach(handle=1))
    bench.step()

    def fail(sessions: Collection[DraftSession]) -> Progress:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(bench.model_drafter, "draft", fail)
        bench.step()
    [ended] = bench.take_ended()
    assert "out of memory" in ended.message
    bench.worker.post(make_attach(handle=2))
    bench.settle()
    assert bench.take_news()
    assert bench.worker.num_free_slots == bench.worker.num_slots - 1


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
    assert sum(len(message.tree.tokens) for message in news) > 0


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
        assert len(message.tree.tokens) == 10
        pool = CandidatePool(target.length, 100)
        graft(pool, message.tree)
        assert len(pool.select(100, 4).tokens) == 10
        bench.settle()
        assert bench.take() == []
        bench.worker.post(target.commit(2))


def test_prompt_lookup_is_driven_the_same_way() -> None:
    """A verdict is answered at once with what followed the same words before."""
    bench_reports: list[object] = []
    worker = DraftWorker(
        PromptLookupDrafter(num_slots=2, max_ahead=64), max_ahead=64, emit=bench_reports.append
    )
    attach = make_attach(tokens=[5, 6, 7, 8, 9, 1, 5, 6])
    worker.post(attach)
    assert worker.run_once(0.0)
    assert not worker.run_once(0.0)
    [drafted] = [report for report in bench_reports if isinstance(report, Drafted)]
    assert drafted.entries[0].tree.tokens[:3] == [7, 8, 9]


def test_the_thread_sleeps_wakes_and_stops() -> None:
    """An idle worker takes events at once and ends when told to, freeing its sessions."""
    seen = threading.Event()
    bench = TableBench(DRAFT_TABLE)
    worker = DraftWorker(
        bench.model_drafter,
        max_ahead=64,
        emit=lambda report: seen.set() if isinstance(report, Drafted) else None,
    )
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        worker.post(make_attach())
        assert seen.wait(10.0)
    finally:
        worker.stop()
        thread.join(10.0)
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
    session = bench.worker.sessions[attach.key]
    assert session.tokens == [1, 2, 3]
    assert session.tree.is_expanded
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
    assert bench.worker.sessions[attach.key].tokens == target.tokens


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
        tree = bench.worker.sessions[attach.key].tree
        assert sum(row != NOT_RUN for row in tree.scratch) <= credit_limit
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
    assert bench.worker.sessions[second.key].tree.num_sent > 0
