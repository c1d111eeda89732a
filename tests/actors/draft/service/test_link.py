"""The stream to a target: handshake and its refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc
import numpy as np
import pytest
from tests.actors.draft.bench import TARGET_TABLE, MiniTarget, make_attach
from tests.actors.draft.scripted_target import heard_news, scripted_target, verdict_message

from outrider.actors.draft.service import target_stream as link_module
from outrider.actors.draft.service.target_stream import LinkRefused, TargetStream
from outrider.actors.draft.state.draft_events import (
    CandidatesSent,
    Event,
    ResyncWanted,
    SessionKey,
    VerdictsReceived,
)
from outrider.actors.exchange.candidates import Candidates
from outrider.actors.exchange.request_options_wire import PROTOCOL_VERSION
from outrider.v1 import target_pb2

TIMEOUT_S = 60.0

HELLO = target_pb2.Hello(
    protocol_version=PROTOCOL_VERSION,
    name="draft",
    incarnation=3,
    vocab_size=24,
    tokenizer_fingerprint="abc",
)


def ignore(*_: object) -> None:
    """Takes anything."""


def candidates(count: int) -> CandidatesSent:
    """One node for each of so many sessions."""
    made = Candidates(
        handles_E=np.arange(7, 7 + count, dtype=np.uint64),
        lengths_E=np.full(count, 5),
        hashes_E=np.ones(count, np.uint64),
        numbers_E=np.ones(count, np.int64),
        starts_E=np.arange(count + 1),
        tokens_N=np.full(count, 4),
        parents_N=np.full(count, -1),
        estimates_N=np.full(count, 128, np.uint8),
    )
    return CandidatesSent(link=1, candidates=made)


def make_link(
    address: str,
    post: Callable[[Event], None] = ignore,
    on_lost: Callable[[TargetStream, str], None] = ignore,
    hello: target_pb2.Hello = HELLO,
) -> TargetStream:
    return TargetStream(1, address, incarnation=5, hello=hello, post=post, on_lost=on_lost)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"incarnation": 6}, "start 6, not 5"),
        ({"protocol_version": 99}, "protocol 99"),
        ({"vocab_size": 25, "tokenizer_fingerprint": ""}, "24 token ids"),
        ({"tokenizer_fingerprint": "abd"}, "tokenizer"),
        ({"refusal": "no room for strangers"}, "no room for strangers"),
    ],
)
async def test_a_misfit_is_refused_with_the_reason(change: dict[str, object], word: str) -> None:
    """Another start, protocol, vocabulary or tokenizer, and the target's own refusal, are told in words."""
    async with scripted_target(**change) as target:  # type: ignore[arg-type]  # one keyword each
        with pytest.raises(LinkRefused, match=word) as caught:
            await make_link(target.address).open()
        assert caught.value.code is grpc.StatusCode.FAILED_PRECONDITION


async def test_a_drafter_without_vocabulary_fits_any_target() -> None:
    """A method that works on any token ids states neither tokenizer nor vocabulary."""
    hello = target_pb2.Hello(protocol_version=PROTOCOL_VERSION, name="draft", incarnation=3)
    async with scripted_target(vocab_size=99, tokenizer_fingerprint="xyz") as target:
        link = make_link(target.address, hello=hello)
        await link.open()
        assert link.is_open
        await link.close()


async def test_a_target_that_is_not_there_is_refused() -> None:
    """Nothing listens: the answer comes within the bound, and says so."""
    async with scripted_target() as target:
        address = target.address
    with pytest.raises(LinkRefused) as caught:
        await make_link(address).open()
    assert caught.value.code is grpc.StatusCode.UNAVAILABLE


async def test_a_mute_target_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that takes the hello and says nothing does not hold the session forever."""
    monkeypatch.setattr(link_module, "CONNECT_TIMEOUT_S", 0.3)
    async with scripted_target(is_mute=True) as target:
        with pytest.raises(LinkRefused, match="did not answer"):
            await make_link(target.address).open()


async def test_messages_pass_both_ways() -> None:
    """Verdicts become events; candidates and requests reach the target."""
    attach = make_attach()
    verdict = MiniTarget(TARGET_TABLE, attach).commit(2)
    events: asyncio.Queue[Event] = asyncio.Queue()
    async with scripted_target() as target:
        link = make_link(target.address, post=events.put_nowait)
        await link.open()
        hello = (await target.hear()).hello
        assert hello.stream == 1, "each stream has its number"
        hello.ClearField("stream")
        assert hello == HELLO
        link.send(candidates(1))
        [news] = heard_news(await target.hear())
        assert (news.handle, news.length, news.tokens) == (7, 5, (4,))
        link.send(ResyncWanted(key=SessionKey(1, 7), length=2))
        assert (await target.hear()).resync.length == 2
        target.say.put_nowait(verdict_message(verdict))
        async with asyncio.timeout(TIMEOUT_S):
            event = await events.get()
        assert isinstance(event, VerdictsReceived)
        assert event.verdicts.tokens_T.tolist() == verdict.verdicts.tokens_T.tolist()
        await link.close()
        assert not link.is_open


async def test_a_broken_stream_is_told_once() -> None:
    """When the target ends the stream, the loss is reported once, and sending is harmless."""
    lost: asyncio.Queue[str] = asyncio.Queue()
    async with scripted_target() as target:
        link = make_link(target.address, on_lost=lambda _, reason: lost.put_nowait(reason))
        await link.open()
        target.say.put_nowait(None)
        async with asyncio.timeout(TIMEOUT_S):
            assert target.address in await lost.get()
        link.send(ResyncWanted(key=SessionKey(1, 7), length=2))
        await link.close()
        assert lost.empty()


async def test_a_target_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for a write is bounded."""
    monkeypatch.setattr(link_module, "MAX_WAITING", 10)
    lost: asyncio.Queue[str] = asyncio.Queue()
    async with scripted_target() as target:
        link = make_link(target.address, on_lost=lambda _, reason: lost.put_nowait(reason))
        await link.open()
        link.send(candidates(11))
        async with asyncio.timeout(TIMEOUT_S):
            assert "did not read" in await lost.get()


async def test_a_target_that_sends_no_verdicts_is_cut_off() -> None:
    """Bytes that are no frame end the stream, with what is wrong with them; nothing of them reaches a session."""
    lost: asyncio.Queue[str] = asyncio.Queue()
    events: list[Event] = []
    async with scripted_target() as target:
        link = make_link(
            target.address, post=events.append, on_lost=lambda _, reason: lost.put_nowait(reason)
        )
        await link.open()
        batch = target_pb2.VerdictBatch(frame=b"\x01\x00")
        target.say.put_nowait(target_pb2.VerdictMessage(verdicts=batch))
        async with asyncio.timeout(TIMEOUT_S):
            assert "frame of 2 bytes" in await lost.get()
    assert not events
