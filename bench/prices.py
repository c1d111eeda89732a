"""What each step of target, drafter and coordinator costs in processor time: `python -m bench prices` writes the simulation's prices.

The simulated service runs with the real cores; each of their calls is timed, making and reading of messages included, and a line
over sessions and rows is fitted to each step. Models are tables, whose passes are left out. What gRPC takes for a message is timed
between two processes of this machine, with one stream and with many at the same time, as a coordinator has them to its clients.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import grpc
import numpy as np
import yaml
from scipy.optimize import nnls  # type: ignore[import-untyped]

from bench.machine import describe
from outrider.actors.draft.drafter import DraftPass
from outrider.actors.draft.events import VerdictFrame
from outrider.actors.exchange import commits
from outrider.actors.target.events import CandidateFrame
from outrider.actors.target.passes import Pass
from outrider.client import event_loop
from outrider.cluster.simulate.command import quiet
from outrider.cluster.simulate.prices import FILE
from outrider.cluster.simulate.scenario import Scenario
from outrider.cluster.simulate.service import Mode, Service

LEVELS = (1, 2, 4, 8, 16, 32, 64)
"""Requests at once."""

ROUNDS = 120
"""Of each level."""

TURNS = 200
"""With messages over gRPC, timed."""

PAUSE_S = 0.005
"""Between messages over gRPC, as there are passes between them: a process that has slept is slower."""

PAUSES_S = {"target": 0.005, "drafter": 0.001, "coordinator": 0.005}
"""Before each step that is timed: about what a pass of its own takes. After 5 ms of sleep a step takes about twice the time."""

STREAMS = 32
"""Messages at the same time, each on its own stream, beside one alone."""

MESSAGE_BYTES = 120
"""Of each."""

WARM_UP = 20
"""Turns that are not timed."""

REQUEST_US = 500.0
"""Of a request at a coordinator, its messages and commits left out: checks, queue, end. By `bench costs`, not timed here."""

Sample = tuple[int, int, float]
"""Sessions, rows, seconds."""

Steps = dict[str, list[Sample]]


def run(*, is_quick: bool = False) -> Iterator[dict[str, Any]]:
    """One row with all prices; not quick, it becomes the simulation's.

    Args:
        is_quick: Few rounds, and nothing is written.
    """
    samples: Steps = {}
    rounds = 10 if is_quick else ROUNDS
    with quiet():
        for level in LEVELS[:2] if is_quick else LEVELS:
            for mode in (Mode.PLAIN, Mode.PIPELINED):
                _sample(level, rounds, mode, samples)
    message = message_us(10 if is_quick else TURNS)
    machine = describe()
    prices = {
        "machine": f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}, commit {machine['commit']}",
        "message": message,
        "target": {
            "take": _fitted(samples["target take"], samples["target take more"]),
            **{name: _fitted(samples[f"target {name}"]) for name in ("begin", "finish")},
        },
        "drafter": {
            name: _fitted(samples[f"drafter {name}"]) for name in ("take", "begin", "finish")
        },
        "coordinator": {
            "take": _fitted(samples["coordinator take"]),
            "request": {"fixed_us": REQUEST_US},
        },
    }
    if not is_quick:
        header = "# Written by `python -m bench prices`. Microseconds of processor time.\n"
        FILE.write_text(header + yaml.safe_dump(prices, sort_keys=False), encoding="utf-8")
    yield prices


def _sample(level: int, rounds: int, mode: Mode, samples: Steps) -> None:
    """Runs a service and times the steps of its processes."""
    service = Service(_scenario(level, rounds), mode)
    (target,) = service.targets.values()
    coordinator = service.coordinator
    _time(target, "on_drafter", samples, "target take", lambda _: _size(target._events[-1][1]))
    _time(target.core, "take", samples, "target take more", _size)
    _time(target.core, "begin", samples, "target begin", _size)
    _time(target, "_finish", samples, "target finish", _size)
    _time(coordinator, "_committed", samples, "coordinator take", _size)
    for drafter in service.drafters.values():
        _time(drafter.core, "take", samples, "drafter take", _size)
        _time(drafter.core, "begin", samples, "drafter begin", _size)
        _time(drafter, "_conclude", samples, "drafter finish", _size)
    service.run()


def _scenario(level: int, rounds: int) -> Scenario:
    return Scenario.model_validate(
        {
            "name": "prices",
            "seconds": 0.01 * rounds,
            "prices": "free",
            "targets": [
                {"name": "t", "model": "law:agree70", "profile": "10ms+1us", "slots": level}
            ],
            "drafters": [
                {"name": "d", "model": "law:agree70/draft", "profile": "1ms+1us", "slots": level}
            ],
            "load": [{"clients": level, "tokens": 2000, "prompt": 16}],
        }
    )


def _time(
    owner: object, name: str, samples: Steps, step: str, size: Callable[[Any], tuple[int, int]]
) -> None:
    """Times a method of this object from now on. Its first argument or, of `begin`, its result tells the size of the step."""
    method = getattr(owner, name)
    found = samples.setdefault(step, [])
    pause_s = PAUSES_S[step.partition(" ")[0]]

    def timed(first: Any, *others: Any) -> Any:
        time.sleep(pause_s)
        began = time.thread_time_ns()
        result = method(first, *others)
        seconds = 1e-9 * (time.thread_time_ns() - began)
        of = size(result if name == "begin" else first)
        if of != NOTHING:
            found.append((*of, seconds))
        return result

    setattr(owner, name, timed)


NOTHING = (0, 0)


def _size(of: Any) -> tuple[int, int]:
    """Sessions and rows of a pass, a frame or its event; `NOTHING` of what is not priced."""
    match of:
        case CandidateFrame():
            return len(of.candidates.handles_E), of.candidates.num_nodes
        case VerdictFrame():
            return len(of.verdicts.handles_E), len(of.verdicts.tokens_T)
        case bytes():
            told = commits.decode(of)
            return len(told), sum(len(one.tokens) for one in told)
        case Pass() | DraftPass() if of.batch is not None:
            return len(of.batch), of.batch.num_rows
        case _:
            return NOTHING


def _fitted(*steps: list[Sample]) -> dict[str, float]:
    """Microseconds: fixed, a session, a row, none below 0; of several steps that follow one another, their sum."""
    total = np.zeros(3)
    for samples in steps:
        of = np.array(samples)
        # The median of equal sizes, so that a moment in which others ran does not count.
        sizes, inverse = np.unique(of[:, :2], axis=0, return_inverse=True)
        medians = np.array([np.median(of[inverse == i, 2]) for i in range(len(sizes))])
        weights = np.sqrt(np.bincount(inverse)) / medians
        terms = np.column_stack([np.ones(len(sizes)), sizes])
        fitted, _ = nnls(terms * weights[:, None], medians * weights)
        total += 1e6 * fitted
    names = ("fixed_us", "session_us", "row_us")
    return {name: round(float(value), 2) for name, value in zip(names, total, strict=True)}


def message_us(turns: int) -> dict[str, float]:
    """Processor microseconds of messages at one end, over gRPC streams to another process and back.

    Args:
        turns: How many are timed, with one stream and with `STREAMS`.
    """
    parent, child = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_echo, args=(child,), daemon=True)
    process.start()
    try:
        if not parent.poll(30.0):
            raise RuntimeError("the process that echoes did not start within 30 s")
        address = f"127.0.0.1:{parent.recv()}"
        one, many = (
            statistics.median(event_loop.run(_ask(address, streams, turns)) for _ in range(3))
            for streams in (1, STREAMS)
        )
    finally:
        process.terminate()
        process.join()
    # A turn with one stream reads a message and writes one; with many, it does so with each of them.
    each = min((many - one) / (2 * (STREAMS - 1)), one / 2)
    return {"wake_us": round(1e6 * (one - 2 * each), 1), "each_us": round(1e6 * each, 1)}


def _echo(pipe: Connection) -> None:
    event_loop.run(_serve_echo(pipe))


async def _serve_echo(pipe: Connection) -> None:
    async def echo(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request

    server = grpc.aio.server()
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(echo)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("bench.Echo", {"Echo": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    pipe.send(port)
    await server.wait_for_termination()


async def _ask(address: str, streams: int, turns: int) -> float:
    """Processor seconds of a turn in which every stream writes a message and then reads one."""
    payload = bytes(MESSAGE_BYTES)
    async with grpc.aio.insecure_channel(address) as channel:
        ask: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(
            "/bench.Echo/Echo"
        )
        calls = [ask() for _ in range(streams)]
        for turn in range(turns + WARM_UP):
            if turn == WARM_UP:
                began = time.process_time()
            await asyncio.sleep(PAUSE_S)
            for call in calls:
                await call.write(payload)
            for call in calls:
                await call.read()
        spent = time.process_time() - began
        for call in calls:
            await call.done_writing()
    return spent / turns
