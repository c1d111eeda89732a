"""The state machine of one sequence."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.cluster.requests.session import MAX_FRUITLESS_OPENS, Session
from outrider.cluster.requests.session_commands import (
    AttachDrafter,
    Close,
    Command,
    Complete,
    Deliver,
    Fail,
    Open,
)
from outrider.cluster.requests.session_states import TRANSITIONS, SessionEvent, SessionState
from outrider.cluster.text.detokenise import Detokeniser
from outrider.v1 import generation_pb2

STOP_TOKEN = generation_pb2.FINISH_REASON_STOP_TOKEN
STOP_STRING = generation_pb2.FINISH_REASON_STOP_STRING
LENGTH = generation_pb2.FINISH_REASON_LENGTH
ABORTED = generation_pb2.FINISH_REASON_ABORTED


def decode(ids: Sequence[int]) -> str:
    """One byte a token."""
    return bytes(ids).decode(errors="replace")


def make(
    *,
    stops: tuple[str, ...] = (),
    stop_tokens: frozenset[int] = frozenset(),
    max_tokens: int = 100,
    min_tokens: int = 0,
    resume: Sequence[int] = (),
) -> Session:
    """A session over bytes."""
    return Session(
        detokeniser=Detokeniser(decode),
        stops=stops,
        stop_tokens=stop_tokens,
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        resume=resume,
    )


def running(session: Session) -> Session:
    """The session, opened."""
    assert session.start() == [Open()]
    assert session.opened() == [AttachDrafter()]
    return session


def commit(session: Session, epoch: int, text: str | bytes) -> list[Command]:
    """What the session commands when the bytes of a text are committed, all the target's own tokens."""
    data = text.encode() if isinstance(text, str) else text
    return session.committed(epoch, list(data), [-1] * len(data))


def finish(session: Session, reason: generation_pb2.FinishReason.ValueType) -> list[Command]:
    """What the session commands when the target ends it."""
    return session.finished(
        reason, generation_pb2.SpeculationStats(rounds=1), generation_pb2.Timing(), 0
    )


def text_of(commands: list[Command]) -> str:
    """The text delivered."""
    return "".join(command.text for command in commands if isinstance(command, Deliver))


def ids_of(commands: list[Command]) -> list[int]:
    """The tokens delivered."""
    return [token for command in commands if isinstance(command, Deliver) for token in command.ids]


def test_commits_become_text_and_the_target_ends_it() -> None:
    """The plain way through all states."""
    session = running(make())
    assert text_of(commit(session, 1, "hel")) == "hel"
    assert text_of(commit(session, 2, "lo")) == "lo"
    assert finish(session, LENGTH) == [Complete(reason=LENGTH)]
    assert session.state is SessionState.ENDED
    assert commit(session, 3, "x") == []


def test_the_text_of_the_stop_token_is_left_out_and_its_token_is_not() -> None:
    """It counts and is reported, but is no text."""
    session = running(make(stop_tokens=frozenset({ord(".")})))
    delivered = commit(session, 1, "end.")
    ended = finish(session, STOP_TOKEN)
    assert text_of(delivered + ended) == "end"
    assert ids_of(delivered) == list(b"end.")
    assert ended == [Complete(reason=STOP_TOKEN, stop=str(ord(".")))]
    assert len(session.output) == 4


@pytest.mark.parametrize("commits", [["one STOP two"], ["one ST", "OP two"], list("one STOP two")])
def test_a_stop_string_ends_the_output_exactly_before_it(commits: list[str]) -> None:
    """Inside one commit or over several: the text ends before it, the tokens with the one that completed it."""
    session = running(make(stops=("STOP",)))
    commands: list[Command] = []
    for epoch, piece in enumerate(commits, 1):
        commands += commit(session, epoch, piece)
    assert text_of(commands) == "one "
    assert bytes(ids_of(commands)) == b"one STOP"
    assert bytes(session.output) == b"one STOP"
    assert commands[-1] == Close()
    assert session.state is SessionState.CLOSING
    assert finish(session, ABORTED) == [Complete(reason=STOP_STRING, stop="STOP")]


def test_a_closed_session_completes_without_the_targets_last_word() -> None:
    """A target that does not answer, or breaks off, keeps nobody waiting."""
    lasts: list[Callable[[Session], list[Command]]] = [
        lambda s: s.closing_expired(),
        lambda s: s.lost("broken"),
        lambda s: s.failed(13, "broken"),
        lambda s: s.abort(),
    ]
    for last in lasts:
        session = running(make(stops=("x",)))
        commit(session, 1, "axb")
        assert last(session) == [Complete(reason=STOP_STRING, stop="x")]


def test_a_stop_string_before_min_tokens_is_text() -> None:
    """Only one completed from the given token on ends the output."""
    session = running(make(stops=("a",), min_tokens=4))
    commands = commit(session, 1, "aabaa")
    assert text_of(commands) == "aab"
    assert bytes(ids_of(commands)) == b"aaba"


def test_held_text_comes_out_at_the_end() -> None:
    """What might have become a stop string or a character, and did not, is not lost."""
    session = running(make(stops=("abc",)))
    first = commit(session, 1, "xab")
    assert text_of(first) == "x"
    assert text_of(finish(session, LENGTH)) == "ab"
    cut = running(make())
    assert text_of(commit(cut, 1, "é".encode()[:1])) == ""
    assert text_of(finish(cut, LENGTH)) == "\ufffd"


@pytest.mark.parametrize("epoch", [0, 1, 3, 9])
def test_a_commit_out_of_turn_opens_the_session_again(epoch: int) -> None:
    """A gap or a repetition is never delivered; the target is asked from what is committed."""
    session = running(make())
    commit(session, 1, "ab")
    commands = commit(session, epoch, "zz")
    assert [type(command) for command in commands] == [Close, Open]
    assert bytes(session.output) == b"ab"
    assert session.opened() == [AttachDrafter()]
    assert text_of(commit(session, 1, "cd")) == "cd"


def test_a_lost_target_is_opened_again_and_statistics_add_up() -> None:
    """What the coordinator saw of the lost opening stands beside what the next target tells."""
    session = running(make())
    commit(session, 1, "ab")
    assert isinstance(session.lost("gone")[0], Open)
    session.opened()
    commit(session, 1, "cd")
    finish(session, LENGTH)
    assert bytes(session.output) == b"abcd"
    assert len(session.parts) == 2


def test_openings_without_progress_are_bounded() -> None:
    """A sequence that brings every target down is given up; progress starts the count again."""
    session = running(make())
    for _ in range(MAX_FRUITLESS_OPENS):
        assert isinstance(session.lost("gone")[0], Open)
    session.opened()
    commit(session, 1, "a")
    for _ in range(MAX_FRUITLESS_OPENS):
        assert isinstance(session.lost("gone")[0], Open)
    (failed,) = session.lost("gone")
    assert isinstance(failed, Fail)
    assert failed.refusal.code is grpc.StatusCode.UNAVAILABLE


def test_what_another_try_cannot_mend_fails_at_once() -> None:
    """The target's own refusal reaches the client with its code."""
    session = make()
    session.start()
    (failed,) = session.failed(grpc.StatusCode.OUT_OF_RANGE.value[0], "too long")
    assert isinstance(failed, Fail)
    assert (failed.refusal.code, failed.refusal.message) == (
        grpc.StatusCode.OUT_OF_RANGE,
        "too long",
    )


@pytest.mark.parametrize(
    ("session", "reason", "stop"),
    [
        (make(max_tokens=3, resume=b"abc"), LENGTH, ""),
        (make(stop_tokens=frozenset({99}), resume=b"abc"), STOP_TOKEN, "99"),
        (make(stops=("bc",), resume=b"abc"), STOP_STRING, "bc"),
    ],
)
def test_a_resumed_output_that_is_whole_needs_no_target(
    session: Session, reason: generation_pb2.FinishReason.ValueType, stop: str
) -> None:
    """A stream that lost only its last message is completed at once."""
    assert session.start()[-1] == Complete(reason=reason, stop=stop)
    assert session.state is SessionState.ENDED


def test_a_lost_target_that_had_said_everything_is_not_asked_again() -> None:
    """The last commit came through, its end did not."""
    session = running(make(max_tokens=2))
    commit(session, 1, "ab")
    assert session.lost("gone") == [Complete(reason=LENGTH)]


def test_aborting_delivers_what_is_there() -> None:
    """Before, while and after running; twice is as good as once."""
    queued = make()
    assert queued.abort() == [Complete(reason=ABORTED)]
    session = running(make(stops=("bx",)))
    commit(session, 1, "ab")
    commands = session.abort()
    assert [type(command) for command in commands] == [Close, Deliver, Complete]
    assert text_of(commands) == "b"
    assert session.abort() == []


@given(
    text=st.text(alphabet="aé日STOP", max_size=20),
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=8),
    breaks=st.sets(st.integers(0, 30), max_size=4),
)
def test_text_and_tokens_are_the_same_whatever_breaks(
    text: str, sizes: list[int], breaks: set[int]
) -> None:
    """Any commits, any breaks between them: the same text, every token once."""
    data = text.encode()
    expected = text.split("STOP")[0]
    session = running(make(stops=("STOP",), max_tokens=len(data) + 1))
    commands: list[Command] = []
    epoch = turn = 0
    while session.state is SessionState.RUNNING and len(session.output) < len(data):
        if turn in breaks:
            commands += session.lost("gone")
            session.opened()
            epoch = 0
        start = len(session.output)
        size = sizes[turn % len(sizes)]
        epoch, turn = epoch + 1, turn + 1
        commands += commit(session, epoch, data[start : start + size])
    commands += finish(session, LENGTH)
    assert text_of(commands) == expected
    assert bytes(ids_of(commands)) == bytes(session.output)
    assert data.startswith(bytes(session.output))


@given(text=st.text(alphabet="aé日ST", max_size=12), cut=st.integers(0, 30))
def test_a_resumed_stream_fits_the_broken_one(text: str, cut: int) -> None:
    """The text before a break and the text after a resume make the whole."""
    data = text.encode()
    cut = min(cut, len(data))
    before = running(make(stops=("STS",)))
    first = commit(before, 1, data[:cut]) if cut else []
    if before.state is SessionState.CLOSING:
        return
    after = running(make(stops=("STS",), resume=data[:cut]))
    second = commit(after, 1, data[cut:]) + finish(after, LENGTH)
    whole = running(make(stops=("STS",)))
    expected = commit(whole, 1, data) + finish(whole, LENGTH)
    assert text_of(first) + text_of(second) == text_of(expected)


TELLINGS: tuple[tuple[SessionEvent, Callable[[Session], list[Command]]], ...] = (
    (SessionEvent.START, lambda session: session.start()),
    (SessionEvent.OPENED, lambda session: session.opened()),
    (SessionEvent.COMMITTED, lambda session: session.committed(1, [*b"a"], [-1])),
    (SessionEvent.COMMITTED, lambda session: session.committed(2, [*b"a"], [-1])),
    (SessionEvent.COMMITTED, lambda session: session.committed(1, [*b"."], [-1])),
    (SessionEvent.FINISHED, lambda session: finish(session, LENGTH)),
    (SessionEvent.CLOSING_EXPIRED, lambda session: session.closing_expired()),
    (SessionEvent.FAILED, lambda session: fail(session, grpc.StatusCode.UNAVAILABLE)),
    (SessionEvent.FAILED, lambda session: fail(session, grpc.StatusCode.INVALID_ARGUMENT)),
    (SessionEvent.LOST, lambda session: session.lost("cut")),
    (SessionEvent.ABORT, lambda session: session.abort()),
)
"""Each event, in the ways that lead to different states."""


def fail(session: Session, status: grpc.StatusCode) -> list[Command]:
    """The target answers with a status."""
    return session.failed(status.value[0], "no")


@pytest.mark.parametrize("resume", [b"", b"aa"], ids=["new", "resumed whole"])
def test_every_event_leads_where_the_table_says(resume: bytes) -> None:
    """Every order of events that leads to something new: what the table does not hold changes nothing and says nothing."""
    seen = set()
    known: set[object] = set()
    ahead = [(make(stops=(".",), max_tokens=2, resume=resume), 0)]
    while ahead:
        session, opens = ahead.pop()
        for event, tell in TELLINGS:
            then = copy.deepcopy(session)
            before, output = then.state, [*then.output]
            commands = tell(then)
            if (before, event) not in TRANSITIONS:
                assert (then.state, then.output, commands) == (before, output, [])
                continue
            assert then.state in TRANSITIONS[before, event]
            seen.add((before, event, then.state))
            opened = opens + sum(isinstance(command, Open) for command in commands)
            key = (then.state, tuple(then.output), min(opened, MAX_FRUITLESS_OPENS + 1))
            if key not in known:
                known.add(key)
                ahead.append((then, opened))
    if not resume:
        listed = {(*on, state) for on, states in TRANSITIONS.items() for state in states}
        assert listed - seen == {(SessionState.ADMITTED, SessionEvent.START, SessionState.ENDED)}
