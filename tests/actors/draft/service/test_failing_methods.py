"""Drafting methods that raise: at most the session that they raised for ends, and never the drafter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from tests.actors.draft.bench import (
    DRAFT_TABLE,
    TARGET_TABLE,
    Bench,
    MiniTarget,
    TableBench,
    frame_of,
    make_attach,
)

from outrider.actors.draft.methods.repeat_last import RepeatLast
from outrider.actors.draft.state.draft_sessions import DraftSession
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.draft.text.proposal import Proposal
from outrider.actors.draft.text.text_drafter import text_drafter
from outrider.actors.engine.protocol import Batch

BAD = 2
"""Handle of the session that the method raises for."""

HANDLES = (1, BAD, 3)
SETTINGS = DraftSettings(name="d", incarnation=1, method="repeat_last", num_slots=4)


class Picky:
    """A proposer that raises for one session."""

    def __init__(self, session: DraftSession) -> None:
        self._is_bad = session.key.handle == BAD
        self._proposer = RepeatLast()

    def propose(
        self, text_T: np.ndarray[Any, np.dtype[np.int64]], *, depth: int, rates: Sequence[float]
    ) -> Proposal:
        """Raises, or repeats the last token."""
        if self._is_bad:
            raise RuntimeError("a defect of the method")
        return self._proposer.propose(text_T, depth=depth, rates=rates)


def attached(bench: Bench) -> list[MiniTarget]:
    """Three sessions that were attached at once, before anything was drafted."""
    targets = []
    for handle in HANDLES:
        attach = make_attach(handle=handle)
        bench.worker.post(attach)
        targets.append(MiniTarget(TARGET_TABLE, attach))
    return targets


def serves(bench: Bench, targets: Sequence[MiniTarget], handles: Sequence[int]) -> None:
    """These sessions, and no others, are drafted for from now on; whoever comes is served, too."""
    assert {session.key.handle for session in bench.sessions} == set(handles)
    bench.take()
    here = [target for target in targets if target.key.handle in handles]
    bench.worker.post(frame_of([target.decide(2) for target in here]))
    bench.settle()
    assert {news.handle for news in bench.take_news()} == set(handles)
    bench.worker.post(make_attach(handle=9))
    bench.settle()
    assert 9 in {news.handle for news in bench.take_news()}


def test_a_proposer_that_raises_for_one_text_ends_that_session_only() -> None:
    """Its coordinator hears why; the others of the pass are drafted for."""
    loaded = text_drafter(SETTINGS, Picky, [0.1, 0.8])
    bench = Bench(loaded.sessions, loaded.drafter)
    targets = attached(bench)
    bench.settle()
    ended = bench.take_ended()
    assert [(one.key.handle, "a defect of the method" in one.message) for one in ended] == [
        (BAD, True)
    ]
    serves(bench, targets, [1, 3])


HOOKS = ("plan", "grow", "follow", "took", "forward")


def raising(bench: TableBench, hook: str, *, needs_company: bool = False) -> Any:
    """A hook of the model drafter, or its engine, that raises whenever the bad session takes part (and another one, too)."""
    owner: Any = bench.engine if hook == "forward" else bench.model_drafter
    real = getattr(owner, hook)

    def handles_of(first: Any) -> list[int]:
        if isinstance(first, Batch):
            by_slot = {bench.slot(s.key): s.key.handle for s in bench.sessions}
            return [by_slot[slot] for slot in first.slots_E.tolist() if slot in by_slot]
        rows = first if isinstance(first, np.ndarray) else first.rows_E
        return [bench.sessions.at(row).key.handle for row in rows.tolist()]

    def fail(*args: Any) -> Any:
        handles = handles_of(args[0])
        if BAD in handles and (len(handles) > 1 or not needs_company):
            raise RuntimeError("a defect of the method")
        return real(*args)

    return owner, fail


@contextmanager
def failing(
    monkeypatch: pytest.MonkeyPatch, hook: str, *, needs_company: bool = False
) -> Iterator[tuple[TableBench, list[MiniTarget]]]:
    """Three sessions whose method raises at a hook, as `raising`, until the context ends; verdicts are on their way if it is about them."""
    bench = TableBench(DRAFT_TABLE)
    targets = attached(bench)
    if hook == "follow":
        bench.settle()
        bench.take()
    owner, fail = raising(bench, hook, needs_company=needs_company)
    with monkeypatch.context() as patch:
        patch.setattr(owner, hook, fail)
        if hook == "follow":
            bench.worker.post(frame_of([target.decide(2) for target in targets]))
        yield bench, targets


@pytest.mark.parametrize("hook", HOOKS)
def test_a_call_that_raises_ends_the_session_that_it_raises_for(
    monkeypatch: pytest.MonkeyPatch, hook: str
) -> None:
    """Wherever the method raises, for one of several sessions: the others go on as if it had not been there."""
    with failing(monkeypatch, hook) as (bench, targets):
        bench.settle()
        ended = bench.take_ended()
        assert [(one.key.handle, "a defect of the method" in one.message) for one in ended] == [
            (BAD, True)
        ]
        for target in targets:
            if target.key.handle != BAD:
                assert bench.text(target.key) == target.tokens
        serves(bench, targets, [1, 3])
    assert bench.worker.num_free_slots == bench.worker.num_slots - 3


@pytest.mark.parametrize("hook", HOOKS)
def test_a_call_that_raises_for_several_sessions_only_ends_none_that_it_serves_alone(
    monkeypatch: pytest.MonkeyPatch, hook: str
) -> None:
    """The sessions have their passes one by one, and all are drafted for."""
    with failing(monkeypatch, hook, needs_company=True) as (bench, targets):
        bench.step(12)
        assert bench.take_ended() == []
    bench.settle()
    serves(bench, targets, HANDLES)


def test_a_method_that_cannot_tell_what_is_complete_ends_its_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In lockstep it is asked before anything is sent."""
    bench = TableBench(DRAFT_TABLE, lockstep=True)
    targets = attached(bench)
    real = bench.model_drafter.is_complete

    def fail(rows_E: Any) -> Any:
        if BAD in [bench.sessions.at(row).key.handle for row in rows_E.tolist()]:
            raise RuntimeError("a defect of the method")
        return real(rows_E)

    monkeypatch.setattr(bench.model_drafter, "is_complete", fail)
    bench.settle()
    assert [one.key.handle for one in bench.take_ended()] == [BAD]
    serves(bench, targets, [1, 3])


def test_a_method_that_cannot_tell_its_free_slots_is_believed_to_have_one_for_each_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever asks for the drafter's state gets an answer."""
    bench = TableBench(DRAFT_TABLE)
    attached(bench)
    bench.settle()

    def fail(_: object) -> int:
        raise RuntimeError("a defect of the method")

    monkeypatch.setattr(type(bench.model_drafter), "num_free_slots", property(fail))
    assert bench.worker.num_free_slots == bench.worker.num_slots - len(HANDLES)
