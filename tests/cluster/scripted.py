"""A target and a drafter that follow a script, behind real gRPC servers; and a tokenizer small enough to read.

The target's token at a position depends on seed, position and prompt only, so that any two runs that lose nothing agree.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np

from outrider.actors.exchange import commits
from outrider.actors.exchange.request_options_wire import PROTOCOL_VERSION
from outrider.actors.rpc.grpc_server import internal_server
from outrider.v1 import (
    draft_pb2,
    draft_pb2_grpc,
    generation_pb2,
    sampling_pb2,
    target_pb2,
    target_pb2_grpc,
    trace_pb2,
)

VOCAB = 256
EOS = 0

Context = grpc.aio.ServicerContext[Any, Any]


def scripted_token(prompt: Sequence[int], seed: int, position: int) -> int:
    """The target's token at an output position: a printable letter, never end-of-text."""
    return 97 + (sum(prompt) + seed * 31 + position * position * 7 + position * 3) % 26


class ByteCodec:
    """One token a byte; token 0 is special."""

    special_ids = frozenset({EOS})
    has_chat_template = True
    max_token_chars: int | None = 1

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """The bytes of the text."""
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the bytes."""
        return bytes(ids).decode(errors="replace")

    def render_chat(self, turns: Sequence[tuple[str, str]]) -> str:
        """The turns, each on a line; refuses a speaker whose name begins with nobody, and repeats the name."""
        for role, _ in turns:
            if role.startswith("nobody"):
                raise ValueError(f"{role} may not speak")
        return "".join(f"{role}: {content}\n" for role, content in turns)


@dataclass
class Script:
    """How the target behaves."""

    num_slots: int = 4
    max_context: int = 64
    commit: int = 3
    """Tokens a round."""
    pause_s: float = 0.0
    """Before each round."""
    token: Callable[[Sequence[int], int, int], int] = scripted_token
    from_drafters: bool = False
    """Every token but the last of a round comes from the drafters, in turn."""
    break_after: int | None = None
    """Ends the stream after this many rounds in all, once."""
    skip_epoch_after: int | None = None
    """Leaves a number out after this many rounds in all, once."""
    fail_opens: list[tuple[grpc.StatusCode, str]] = field(default_factory=list)
    """What the next openings are answered with."""
    answers_close: bool = True
    hold: asyncio.Event | None = None
    """Rounds wait for this."""
    hold_info: asyncio.Event | None = None
    """Descriptions wait for this."""
    wants_drafters: bool = True
    """Said first on each stream."""


class ScriptedTarget(target_pb2_grpc.TargetServiceServicer):
    """A target without a model."""

    def __init__(self, script: Script, name: str = "target-0", model: str = "scripted") -> None:
        self.script = script
        self.name = name
        self.model = model
        self.fingerprint = ""
        self.tokenizer = "bytes"
        self.num_blocks = self.width = 0
        self.address = ""
        self.incarnation = 1
        self.running: dict[int, asyncio.Task[None]] = {}
        self.opens: list[target_pb2.OpenSession] = []
        self.closes: list[int] = []
        self.steers: list[target_pb2.SteerSession] = []
        self.rounds = 0
        self._streams: set[asyncio.Queue[target_pb2.SessionEvent | None]] = set()
        self._server: grpc.aio.Server | None = None

    async def start(self, address: str = "127.0.0.1:0") -> str:
        """Serves."""
        self._server = internal_server()
        target_pb2_grpc.add_TargetServiceServicer_to_server(self, self._server)
        port = self._server.add_insecure_port(address)
        await self._server.start()
        self.address = f"127.0.0.1:{port}"
        return self.address

    async def stop(self) -> None:
        """Ends at once, as if killed."""
        if self._server is not None:
            await self._server.stop(0)
            self._server = None

    async def Trace(  # type: ignore[override]  # grpc.aio also takes handlers that write to the context
        self, request_iterator: AsyncIterator[trace_pb2.TraceCommand], context: Context
    ) -> None:
        """Records nothing."""
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "scripted")

    async def Feedback(  # type: ignore[override]  # grpc.aio also takes handlers that write to the context
        self, request_iterator: AsyncIterator[target_pb2.FeedbackCommand], context: Context
    ) -> None:
        """Tells nothing."""
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "scripted")

    async def GetInfo(
        self, request: target_pb2.GetTargetInfoRequest, context: Context
    ) -> target_pb2.TargetInfo:
        """Describes the script."""
        if self.script.hold_info is not None:
            await self.script.hold_info.wait()
        return target_pb2.TargetInfo(
            protocol_version=PROTOCOL_VERSION,
            name=self.name,
            incarnation=self.incarnation,
            model=self.model,
            model_fingerprint=self.fingerprint,
            tokenizer_fingerprint=self.tokenizer,
            vocab_size=VOCAB,
            max_context=self.script.max_context,
            eos_token_ids=[EOS],
            verifiers=[sampling_pb2.VERIFIER_COUPLED],
            num_slots=self.script.num_slots,
            num_free_slots=self.script.num_slots - len(self.running),
            pid=1,
            num_blocks=self.num_blocks,
            width=self.width,
        )

    async def Sessions(  # type: ignore[override]  # a coroutine that writes, as grpc.aio allows
        self, request_iterator: AsyncIterator[target_pb2.SessionCommand], context: Context
    ) -> None:
        """Runs the sessions that are opened, each in a task."""
        hello = await anext(request_iterator)
        assert hello.HasField("hello")
        outgoing: asyncio.Queue[target_pb2.SessionEvent | None] = asyncio.Queue()
        outgoing.put_nowait(
            target_pb2.SessionEvent(
                hello=target_pb2.Hello(
                    protocol_version=PROTOCOL_VERSION, name=self.name, incarnation=self.incarnation
                )
            )
        )

        if not self.script.wants_drafters:
            outgoing.put_nowait(_drafters_wanted(False))
        self._streams.add(outgoing)

        async def read() -> None:
            async for command in request_iterator:
                self._take(command, outgoing)

        reader = asyncio.ensure_future(read())
        try:
            while (event := await outgoing.get()) is not None:
                await context.write(event)
        finally:
            self._streams.discard(outgoing)
            reader.cancel()
            for task in self.running.values():
                task.cancel()
            self.running.clear()

    def want_drafters(self, is_wanted: bool) -> None:
        """Tells every coordinator whether to attach drafters."""
        self.script.wants_drafters = is_wanted
        self.tell(_drafters_wanted(is_wanted))

    def hang_up(self) -> None:
        """Ends every coordinator's stream, and goes on answering calls."""
        for outgoing in self._streams:
            outgoing.put_nowait(None)

    def tell(self, event: target_pb2.SessionEvent) -> None:
        """Tells every coordinator something."""
        for outgoing in self._streams:
            outgoing.put_nowait(event)

    async def Exchange(  # type: ignore[override]  # a coroutine that aborts
        self, request_iterator: AsyncIterator[target_pb2.DrafterMessage], context: Context
    ) -> None:
        """Takes no candidates."""
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "the script needs no drafters")

    def _take(
        self,
        command: target_pb2.SessionCommand,
        outgoing: asyncio.Queue[target_pb2.SessionEvent | None],
    ) -> None:
        match command.WhichOneof("command"):
            case "open":
                self.opens.append(command.open)
                if self.script.fail_opens:
                    code, message = self.script.fail_opens.pop(0)
                    outgoing.put_nowait(_failed(command.open.session, code, message))
                    return
                if len(self.running) >= self.script.num_slots:
                    code = grpc.StatusCode.RESOURCE_EXHAUSTED
                    outgoing.put_nowait(_failed(command.open.session, code, "no slot"))
                    return
                self.running[command.open.session] = asyncio.ensure_future(
                    self._decode(command.open, outgoing)
                )
            case "close":
                session = command.close.session
                self.closes.append(session)
                task = self.running.pop(session, None)
                if task is not None:
                    task.cancel()
                    if self.script.answers_close:
                        aborted = generation_pb2.FINISH_REASON_ABORTED
                        outgoing.put_nowait(_finished(session, aborted, rounds=7))
            case "steer":
                self.steers.append(command.steer)

    async def _decode(
        self,
        command: target_pb2.OpenSession,
        outgoing: asyncio.Queue[target_pb2.SessionEvent | None],
    ) -> None:
        script, session, sampling = self.script, command.session, command.sampling
        outgoing.put_nowait(
            target_pb2.SessionEvent(
                opened=target_pb2.SessionOpened(session=session, handle=1000 + session)
            )
        )
        stops = {*sampling.stop_token_ids} | (set() if sampling.ignore_eos else {EOS})
        position, epoch, rounds = len(command.committed), 0, 0
        reason = generation_pb2.FINISH_REASON_LENGTH
        while position < sampling.max_tokens:
            await asyncio.sleep(script.pause_s)
            if script.hold is not None:
                await script.hold.wait()
            ids: list[int] = []
            while len(ids) < script.commit and position < sampling.max_tokens:
                ids.append(script.token(command.prompt, sampling.seed, position))
                position += 1
                if ids[-1] in stops:
                    reason = generation_pb2.FINISH_REASON_STOP_TOKEN
                    break
            epoch, rounds, self.rounds = epoch + 1, rounds + 1, self.rounds + 1
            if script.skip_epoch_after is not None and self.rounds > script.skip_epoch_after:
                script.skip_epoch_after = None
                epoch += 1
            outgoing.put_nowait(self._committed(epoch, ids, command))
            if script.break_after is not None and self.rounds >= script.break_after:
                script.break_after = None
                outgoing.put_nowait(None)
                return
            if reason == generation_pb2.FINISH_REASON_STOP_TOKEN:
                break
        self.running.pop(session, None)
        outgoing.put_nowait(_finished(session, reason, rounds=rounds))

    def _committed(
        self, epoch: int, ids: list[int], command: target_pb2.OpenSession
    ) -> target_pb2.SessionEvent:
        """A frame; tokens one by one where log-probabilities are wanted."""
        origins = [-1] * len(ids)
        if self.script.from_drafters and command.drafters:
            origins[:-1] = [index % len(command.drafters) for index in range(len(ids) - 1)]
        if command.sampling.HasField("logprobs"):
            tokens = [_token(one, origin) for one, origin in zip(ids, origins, strict=True)]
            return target_pb2.SessionEvent(
                committed=target_pb2.SessionCommitted(
                    session=command.session, epoch=epoch, tokens=tokens
                )
            )
        frame = commits.encode(
            commits.Commits(
                sessions_E=np.array([command.session], np.uint64),
                epochs_E=np.array([epoch], np.int64),
                starts_E=np.array([0, len(ids)], np.int64),
                tokens_T=np.array(ids, np.int64),
                origins_T=np.array(origins, np.int64),
            )
        )
        return target_pb2.SessionEvent(commits=target_pb2.CommitBatch(frame=frame))


def _token(token: int, origin: int) -> generation_pb2.Token:
    logprob = -token / VOCAB
    if origin < 0:
        return generation_pb2.Token(id=token, origin=generation_pb2.ORIGIN_TARGET, logprob=logprob)
    return generation_pb2.Token(
        id=token, origin=generation_pb2.ORIGIN_DRAFTER, drafter=origin, logprob=logprob
    )


def _drafters_wanted(is_wanted: bool) -> target_pb2.SessionEvent:
    return target_pb2.SessionEvent(drafters_wanted=target_pb2.DraftersWanted(is_wanted=is_wanted))


def _failed(session: int, code: grpc.StatusCode, message: str) -> target_pb2.SessionEvent:
    return target_pb2.SessionEvent(
        failed=target_pb2.SessionFailed(session=session, code=code.value[0], message=message)
    )


def _finished(
    session: int, reason: generation_pb2.FinishReason.ValueType, rounds: int
) -> target_pb2.SessionEvent:
    return target_pb2.SessionEvent(
        finished=target_pb2.SessionFinished(
            session=session,
            reason=reason,
            speculation=generation_pb2.SpeculationStats(
                rounds=rounds, accepted=2 * rounds, mean_tokens_per_pass=3.0
            ),
            timing=generation_pb2.Timing(prefill_s=0.5, verify_s=0.25),
            cached_tokens=2,
        )
    )


class ScriptedDrafter(draft_pb2_grpc.DraftServiceServicer):
    """A drafter that only notes who attaches it."""

    def __init__(
        self,
        name: str = "draft-0",
        tokenizer: str = "bytes",
        *,
        num_slots: int = 8,
        reads_siblings: bool = False,
        reads: target_pb2.FeedbackSubscription | None = None,
    ) -> None:
        self.reads_siblings = reads_siblings
        self.reads = reads
        self.name = name
        self.tokenizer = tokenizer
        self.num_slots = num_slots
        self.address = ""
        self.attached: list[draft_pb2.AttachSession] = []
        self.detached: list[int] = []
        self.refuse: tuple[grpc.StatusCode, str] | None = None
        self._server: grpc.aio.Server | None = None

    async def start(self, address: str = "127.0.0.1:0") -> str:
        """Serves."""
        self._server = internal_server()
        draft_pb2_grpc.add_DraftServiceServicer_to_server(self, self._server)
        port = self._server.add_insecure_port(address)
        await self._server.start()
        self.address = f"127.0.0.1:{port}"
        return self.address

    async def stop(self) -> None:
        """Ends at once, as if killed."""
        if self._server is not None:
            await self._server.stop(0)
            self._server = None

    async def Trace(  # type: ignore[override]  # grpc.aio also takes handlers that write to the context
        self, request_iterator: AsyncIterator[trace_pb2.TraceCommand], context: Context
    ) -> None:
        """Records nothing."""
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "scripted")

    async def GetInfo(
        self, request: draft_pb2.GetDrafterInfoRequest, context: Context
    ) -> draft_pb2.DrafterInfo:
        """Describes the drafter."""
        return draft_pb2.DrafterInfo(
            protocol_version=PROTOCOL_VERSION,
            name=self.name,
            incarnation=1,
            method="scripted",
            tokenizer_fingerprint=self.tokenizer,
            vocab_size=VOCAB,
            verifiers=[sampling_pb2.VERIFIER_COUPLED],
            num_slots=self.num_slots,
            num_free_slots=self.num_slots,
            pid=2,
            reads_siblings=self.reads_siblings,
            reads=self.reads,
        )

    async def Sessions(  # type: ignore[override]  # a coroutine that writes, as grpc.aio allows
        self, request_iterator: AsyncIterator[draft_pb2.DraftCommand], context: Context
    ) -> None:
        """Answers every attachment."""
        await anext(request_iterator)
        await context.write(
            draft_pb2.DraftEvent(
                hello=target_pb2.Hello(protocol_version=PROTOCOL_VERSION, name=self.name)
            )
        )
        async for command in request_iterator:
            if command.HasField("detach"):
                self.detached.append(command.detach.session)
            elif self.refuse is not None:
                code, message = self.refuse
                refused = draft_pb2.AttachRefused(
                    session=command.attach.session, code=code.value[0], message=message
                )
                await context.write(draft_pb2.DraftEvent(refused=refused))
            else:
                self.attached.append(command.attach)
                attached = draft_pb2.SessionAttached(session=command.attach.session)
                await context.write(draft_pb2.DraftEvent(attached=attached))
