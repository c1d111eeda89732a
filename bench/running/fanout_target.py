"""A target without a model for `bench.suites.service.fanout_suite`: commits as many tokens as it is told, as often as it is told.

A process of its own that answers lines of JSON, see `bench.running.child`. Sessions stay open until it is told to end them.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any

import grpc
import numpy as np

from outrider.actors.exchange import commits
from outrider.actors.exchange.request_options_wire import PROTOCOL_VERSION
from outrider.actors.rpc.grpc_server import bind, internal_server
from outrider.actors.rpc.outbox import Outbox
from outrider.client.connection import event_loop
from outrider.v1 import generation_pb2, sampling_pb2, target_pb2, target_pb2_grpc, trace_pb2

Context = grpc.aio.ServicerContext[Any, Any]

SLOTS = 256
CONTEXT = 1 << 20
"""More than any run needs."""


@dataclass
class _Session:
    number: int
    wants_logprobs: bool
    epoch: int = 0
    tokens: Any = None


@dataclass
class FanoutTarget(target_pb2_grpc.TargetServiceServicer):
    """The service. One coordinator at a time."""

    text: list[int]
    """Token ids that every session repeats."""

    eos: int
    sessions: dict[int, _Session] = field(default_factory=dict)
    outbox: Outbox[target_pb2.SessionEvent] = field(default_factory=Outbox)
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    written: asyncio.Event = field(default_factory=asyncio.Event)

    async def GetInfo(
        self, request: target_pb2.GetTargetInfoRequest, context: Context
    ) -> target_pb2.TargetInfo:
        """Describes nobody in particular."""
        return target_pb2.TargetInfo(
            protocol_version=PROTOCOL_VERSION,
            name="target-0",
            incarnation=1,
            model="target-0",
            vocab_size=max(self.text) + 1,
            max_context=CONTEXT,
            eos_token_ids=[self.eos],
            verifiers=[sampling_pb2.VERIFIER_COUPLED],
            num_slots=SLOTS,
            num_free_slots=SLOTS - len(self.sessions),
            pid=os.getpid(),
        )

    async def Sessions(  # type: ignore[override]  # a coroutine that writes, as grpc.aio allows
        self, request_iterator: AsyncIterator[target_pb2.SessionCommand], context: Context
    ) -> None:
        """Opens whatever is asked for, and writes what there is to say."""
        await anext(request_iterator)
        self.outbox = Outbox()
        hello = target_pb2.Hello(protocol_version=PROTOCOL_VERSION, name="target-0", incarnation=1)
        self.outbox.put(target_pb2.SessionEvent(hello=hello))

        async def read() -> None:
            async for command in request_iterator:
                if command.HasField("open"):
                    self._open(command.open)
                elif command.HasField("close"):
                    self.sessions.pop(command.close.session, None)

        reader = asyncio.ensure_future(read())
        try:
            while True:
                for event in await self.outbox.take():
                    await context.write(event)
                self.written.set()
        finally:
            reader.cancel()

    async def Exchange(  # type: ignore[override]  # a coroutine that aborts
        self, request_iterator: AsyncIterator[target_pb2.DrafterMessage], context: Context
    ) -> None:
        """Takes no candidates."""
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "there are no drafters")

    async def Feedback(  # type: ignore[override]  # a coroutine that aborts
        self, request_iterator: AsyncIterator[target_pb2.FeedbackCommand], context: Context
    ) -> None:
        """Tells nothing."""
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "there are no drafters")

    async def Trace(  # type: ignore[override]  # a coroutine that aborts
        self, request_iterator: AsyncIterator[trace_pb2.TraceCommand], context: Context
    ) -> None:
        """Records nothing."""
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "nothing is recorded")

    def _open(self, command: target_pb2.OpenSession) -> None:
        number = command.session
        start = number % len(self.text)
        self.sessions[number] = _Session(
            number,
            wants_logprobs=command.sampling.HasField("logprobs"),
            tokens=islice(cycle(self.text), start, None),
        )
        opened = target_pb2.SessionOpened(session=number, handle=1000 + number)
        self.outbox.put(target_pb2.SessionEvent(opened=opened))
        self.opened.set()

    async def until_open(self, num_sessions: int) -> None:
        """Waits for so many sessions."""
        while len(self.sessions) < num_sessions:
            self.opened.clear()
            await self.opened.wait()

    async def commit(self, rounds: int, tokens: int, period_s: float) -> None:
        """Commits so many rounds of so many tokens in every session, one each period; 0: each as soon as the last is written."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        for number in range(1, rounds + 1):
            self.written.clear()
            self.outbox.put(self._round(tokens))
            if period_s:
                await asyncio.sleep(max(0.0, began_s + number * period_s - loop.time()))
            else:
                await self.written.wait()

    def end(self) -> None:
        """Finishes every session."""
        for number in self.sessions:
            finished = target_pb2.SessionFinished(
                session=number, reason=generation_pb2.FINISH_REASON_LENGTH
            )
            self.outbox.put(target_pb2.SessionEvent(finished=finished))
        self.sessions.clear()

    def _round(self, tokens: int) -> target_pb2.SessionEvent:
        sessions = list(self.sessions.values())
        for session in sessions:
            session.epoch += 1
        if any(session.wants_logprobs for session in sessions):
            events = [self._committed(session, tokens) for session in sessions]
            return target_pb2.SessionEvent(several=target_pb2.SessionEvents(events=events))
        ids = [token for session in sessions for token in islice(session.tokens, tokens)]
        frame = commits.encode(
            commits.Commits(
                sessions_E=np.array([session.number for session in sessions], np.uint64),
                epochs_E=np.array([session.epoch for session in sessions], np.int64),
                starts_E=np.arange(len(sessions) + 1, dtype=np.int64) * tokens,
                tokens_T=np.array(ids, np.int64),
                origins_T=np.tile(np.array([0] * (tokens - 1) + [-1], np.int64), len(sessions)),
            )
        )
        return target_pb2.SessionEvent(commits=target_pb2.CommitBatch(frame=frame))

    def _committed(self, session: _Session, tokens: int) -> target_pb2.SessionEvent:
        ids = list(islice(session.tokens, tokens))
        said = [
            generation_pb2.Token(
                id=token,
                origin=generation_pb2.ORIGIN_DRAFTER,
                drafter=0,
                logprob=-0.5,
            )
            for token in ids[:-1]
        ]
        last = generation_pb2.Token(id=ids[-1], origin=generation_pb2.ORIGIN_TARGET, logprob=-0.5)
        committed = target_pb2.SessionCommitted(
            session=session.number, epoch=session.epoch, tokens=[*said, last]
        )
        return target_pb2.SessionEvent(committed=committed)


async def _serve() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    order = json.loads(await asyncio.to_thread(sys.stdin.readline))
    target = FanoutTarget(text=order["text"], eos=order["eos"])
    server = internal_server()
    target_pb2_grpc.add_TargetServiceServicer_to_server(target, server)
    port = bind(server, "127.0.0.1:0")
    await server.start()
    answer: Any = {"address": f"127.0.0.1:{port}"}
    while True:
        print(json.dumps(answer), file=answers, flush=True)
        line = await asyncio.to_thread(sys.stdin.readline)
        if not line:
            break
        order = json.loads(line)
        match order["do"]:
            case "open":
                await target.until_open(order["sessions"])
            case "commit":
                await target.commit(order["rounds"], order["tokens"], order["period_s"])
            case "end":
                target.end()
        answer = {}
    await server.stop(0)


if __name__ == "__main__":
    event_loop.run(_serve())
