"""The links of a drafter: shared, replaced, ended."""

from __future__ import annotations

import asyncio

import pytest
from tests.actors.draft.scripted_target import scripted_target

from outrider.actors.draft.service.target_stream import LinkRefused
from outrider.actors.draft.service.target_streams import TargetLinks
from outrider.actors.draft.state.draft_events import Event, LinkLost
from outrider.actors.exchange.request_options_wire import PROTOCOL_VERSION
from outrider.v1 import target_pb2

HELLO = target_pb2.Hello(protocol_version=PROTOCOL_VERSION, name="draft", incarnation=3)


async def test_sessions_share_a_link() -> None:
    """However many ask at a time, one stream is opened for one start of a target."""
    async with scripted_target() as target:
        links = TargetLinks(hello=HELLO, post=lambda _: None, on_lost=lambda *_: None)
        got = await asyncio.gather(*(links.get(target.address, 5) for _ in range(5)))
        assert len({link.number for link in got}) == 1
        assert target.num_streams == 1
        assert links.find(got[0].number) is got[0]
        await links.close()


async def test_a_lost_link_is_told_and_dialled_again() -> None:
    """The worker and the service hear of it; the next session opens a new stream with a new number."""
    events: list[Event] = []
    lost: asyncio.Queue[int] = asyncio.Queue()
    async with scripted_target() as target:
        links = TargetLinks(
            hello=HELLO, post=events.append, on_lost=lambda number, _: lost.put_nowait(number)
        )
        first = await links.get(target.address, 5)
        target.say.put_nowait(None)
        async with asyncio.timeout(60.0):
            assert await lost.get() == first.number
        assert events == [LinkLost(link=first.number)]
        assert links.find(first.number) is None
        second = await links.get(target.address, 5)
        assert second.number != first.number
        await links.close()


async def test_a_refused_link_is_not_kept() -> None:
    """A session for an earlier start of the target is refused; one for the right start is not."""
    async with scripted_target() as target:
        links = TargetLinks(hello=HELLO, post=lambda _: None, on_lost=lambda *_: None)
        with pytest.raises(LinkRefused):
            await links.get(target.address, 4)
        assert (await links.get(target.address, 5)).is_open
        await links.close()
