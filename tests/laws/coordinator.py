"""The least coordinator: opens sessions at a target, attaches drafters, and writes down what each round commits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.laws.servers import MAX_CONTEXT, Addresses

from outrider.actors.exchange import commits
from outrider.actors.exchange.request_options_wire import (
    PROTOCOL_VERSION,
    sampling_to_proto,
    speculation_to_proto,
)
from outrider.actors.exchange.session_drafters import places_to_proto
from outrider.actors.rpc.grpc_server import internal_channel
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.v1 import (
    draft_pb2,
    draft_pb2_grpc,
    target_pb2,
    target_pb2_grpc,
)

STEP_S = 100.0
"""Bound on waiting for one message."""

PLAIN_SHARE = 0.02
"""Passes without a tree, in the worst case, once every drafter takes part."""


@dataclass(slots=True, kw_only=True)
class Text:
    """One session's tokens, and where the counted rounds began and ended."""

    tokens: list[int]
    """The prompt, then what was committed."""

    starts: list[int] = field(default_factory=list)
    """Length of the text when a round began; each round ends where the next begins, the last at the end."""


@dataclass(slots=True, kw_only=True)
class Collected:
    """What one run gave."""

    texts: list[Text] = field(default_factory=list)
    """One a session."""

    num_rounds: int = 0
    """Counted passes that verified a tree, at least."""

    verified: int = 0
    """Candidates in them, those of uncounted passes included."""

    accepted: int = 0
    """Of these."""

    rounds: int = 0
    """Passes that verified a tree, counted or not."""

    def add(self, other: Collected) -> None:
        """Takes in those of another run."""
        self.texts += other.texts
        for name in ("num_rounds", "verified", "accepted", "rounds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


async def collect(
    addresses: Addresses,
    speculation: Speculation,
    *,
    prompt: Sequence[int],
    drafters: Sequence[str],
    num_sessions: int,
    num_rounds: int,
    first_seed: int,
) -> Collected:
    """Runs sessions side by side until they have seen so many rounds in all, each after every drafter has begun to take part.

    Args:
        addresses: Of the servers.
        speculation: The mode.
        prompt: Of every session.
        drafters: Names of the drafters of every session.
        num_sessions: At a time.
        num_rounds: To count.
        first_seed: Sessions have this seed and the following ones.
    """
    collected = Collected()
    while (missing := num_rounds - collected.num_rounds) > 0:
        async with AsyncExitStack() as stack:
            run = _Run(addresses, speculation, prompt, drafters)
            await run.connect(stack)
            for session in range(num_sessions):
                await run.open(session, first_seed + session)
            # Where some passes had no candidates, more follow.
            collected.add(await run.count(max(missing, num_rounds // 10)))
        first_seed += num_sessions
    return collected


class _Run:
    def __init__(
        self,
        addresses: Addresses,
        speculation: Speculation,
        prompt: Sequence[int],
        drafters: Sequence[str],
    ) -> None:
        self._addresses = addresses
        self._speculation = speculation_to_proto(speculation)
        self._prompt = list(prompt)
        self._drafters = list(drafters)
        self._sampling: dict[int, Any] = {}
        self._texts: dict[int, Text] = {}
        self._target: Any = None
        self._streams: list[Any] = []
        self._incarnation = 0
        self._is_over = False
        self._complaints: list[str] = []

    async def connect(self, stack: AsyncExitStack) -> None:
        """Opens the streams."""
        hello = target_pb2.Hello(
            protocol_version=PROTOCOL_VERSION, name="coordinator", incarnation=1
        )
        channel = await stack.enter_async_context(internal_channel(self._addresses.target))
        target: Any = target_pb2_grpc.TargetServiceStub(channel)
        await _until_free(partial(target.GetInfo, target_pb2.GetTargetInfoRequest()))
        self._target = target.Sessions()
        stack.callback(self._target.cancel)
        await self._target.write(target_pb2.SessionCommand(hello=hello))
        self._incarnation = (await self._read(self._target)).hello.incarnation
        for name in self._drafters:
            channel = await stack.enter_async_context(
                internal_channel(self._addresses.drafters[name])
            )
            drafter: Any = draft_pb2_grpc.DraftServiceStub(channel)
            asked = draft_pb2.GetDrafterInfoRequest()
            await _until_free(partial(drafter.GetInfo, asked))
            stream = drafter.Sessions()
            stack.callback(stream.cancel)
            await stream.write(draft_pb2.DraftCommand(hello=hello))
            await self._read(stream)
            self._streams.append(stream)
            watching = asyncio.create_task(self._watch(name, stream))
            stack.callback(watching.cancel)

    async def open(self, session: int, seed: int) -> None:
        """Opens a session at temperature 1."""
        self._texts[session] = Text(tokens=list(self._prompt))
        sampling = sampling_to_proto(Sampling(seed=seed, max_tokens=MAX_CONTEXT // 2))
        self._sampling[session] = sampling
        opened = target_pb2.OpenSession(
            session=session,
            prompt=self._prompt,
            sampling=sampling,
            speculation=self._speculation,
            drafters=places_to_proto({name: place for place, name in enumerate(self._drafters)}),
        )
        await self._target.write(target_pb2.SessionCommand(open=opened))

    async def count(self, num_rounds: int) -> Collected:
        """Counts the rounds of each session from the moment when it has accepted candidates of every drafter."""
        missing = {session: set(range(len(self._drafters))) for session in self._texts}
        collected = Collected(texts=list(self._texts.values()))
        counted, wanted, plain = 0, int((1.0 + PLAIN_SHARE) * num_rounds), 0
        open_sessions = set(self._texts)
        async for event in self._events():
            assert not self._complaints, self._complaints[0]
            match event.WhichOneof("event"):
                case "opened":
                    await self._attach(event.opened.session, event.opened.handle)
                case "commits" if not self._is_over:
                    for one in commits.decode(event.commits.frame):
                        text = self._texts[one.session]
                        if missing[one.session]:
                            missing[one.session].difference_update(one.origins)
                            # As many of those that count may have been plain passes.
                            wanted += 1
                        else:
                            text.starts.append(len(text.tokens))
                            counted += 1
                        text.tokens.extend(one.tokens)
                    if counted >= wanted:
                        self._is_over = True
                        await self._close_all()
                case "commits":
                    pass
                case "finished":
                    stats = event.finished.speculation
                    plain += stats.plain_passes
                    collected.rounds += stats.rounds
                    collected.verified += stats.verified
                    collected.accepted += stats.accepted
                    open_sessions.discard(event.finished.session)
                    if not open_sessions:
                        break
                case other:
                    raise AssertionError(f"the target says {other}: {event}")
        collected.num_rounds = counted - plain
        return collected

    async def _attach(self, session: int, handle: int) -> None:
        """Attaches every drafter."""
        for stream in self._streams:
            attach = draft_pb2.AttachSession(
                session=session,
                target_address=self._addresses.target,
                target_incarnation=self._incarnation,
                handle=handle,
                tokens=self._prompt,
                prompt_length=len(self._prompt),
                sampling=self._sampling[session],
                speculation=self._speculation,
            )
            await stream.write(draft_pb2.DraftCommand(attach=attach))

    async def _watch(self, name: str, stream: Any) -> None:
        """Notes what a drafter refuses or ends of itself."""
        async for event in stream:
            if event.HasField("refused") or (event.HasField("detached") and not self._is_over):
                self._complaints.append(f"{name}: {event}")

    async def _close_all(self) -> None:
        for session in self._texts:
            close = target_pb2.CloseSession(session=session)
            await self._target.write(target_pb2.SessionCommand(close=close))

    async def _events(self) -> AsyncIterator[target_pb2.SessionEvent]:
        while True:
            message = await self._read(self._target)
            if message.WhichOneof("event") == "several":
                for event in message.several.events:
                    yield event
            else:
                yield message

    @staticmethod
    async def _read(stream: Any) -> Any:
        async with asyncio.timeout(STEP_S):
            message = await stream.read()
        assert hasattr(message, "WhichOneof"), f"the stream ended: {await stream.details()}"
        return message


async def _until_free(ask: Callable[[], Awaitable[Any]]) -> None:
    """Waits until a server has forgotten the sessions of an earlier run."""
    async with asyncio.timeout(STEP_S):
        # Another process's state can only be asked for.
        while (info := await ask()).num_free_slots < info.num_slots:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
