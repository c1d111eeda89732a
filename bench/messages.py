"""What the messages between drafter, target and coordinator cost: bytes, and the time to make and to read each. No network.

The product's own functions on messages of the sizes that decoding makes: a level of a tree and a whole one, one session and
sixteen in a message.
"""

from __future__ import annotations

import random
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from outrider.actors.draft import messages as draft_messages
from outrider.actors.draft.events import SessionNews
from outrider.actors.draft.tree import TreeNews
from outrider.actors.target import messages as target_messages
from outrider.actors.target.events import Committed, Owner, Verdict
from outrider.v1 import target_pb2

KEYS = ("message", "sessions")
"""What tells rows apart."""

BATCH = 200
"""Calls that are timed together, long against the clock."""

VOCABULARY = 4096
"""Token ids as the shipped models have them; larger ones take a byte more each."""


def run(*, runs: int | None = None, is_quick: bool = False) -> Iterator[dict[str, Any]]:
    """One row for each kind of message and number of sessions.

    Args:
        runs: Batches of each timing.
        is_quick: Few.
    """
    repeats = runs or (5 if is_quick else 100)
    source = random.Random(1)
    for sessions in (1, 16):
        for nodes in (4, 16):
            news = [_news(source, handle, nodes) for handle in range(1, sessions + 1)]
            yield _row(
                f"candidates, {nodes} nodes",
                sessions,
                repeats,
                make=partial(_candidates, news),
                read=_read_candidates,
            )
        verdicts = [_verdict(source, handle) for handle in range(1, sessions + 1)]
        yield _row(
            "verdicts, 3 tokens",
            sessions,
            repeats,
            make=partial(_verdicts, verdicts),
            read=_read_verdicts,
        )
        committed = [_committed(source, session) for session in range(1, sessions + 1)]
        yield _row(
            "committed tokens, 3 each",
            sessions,
            repeats,
            make=partial(_events, committed),
            read=None,
        )


def _row(
    message: str,
    sessions: int,
    repeats: int,
    *,
    make: Callable[[], bytes],
    read: Callable[[bytes], object] | None,
) -> dict[str, Any]:
    data = make()
    row: dict[str, Any] = {
        "message": message,
        "sessions": sessions,
        "runs": repeats,
        "bytes": len(data),
        "make_us": microseconds(make, repeats),
        "make_peak_bytes": peak_bytes(make),
    }
    if read is not None:
        row["read_us"] = microseconds(lambda: read(data), repeats)
        row["read_peak_bytes"] = peak_bytes(lambda: read(data))
    return row


def microseconds(call: Callable[[], object], repeats: int) -> float:
    """Median time of a call over so many batches."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        for _ in range(BATCH):
            call()
        times.append(1e6 * (time.perf_counter() - began) / BATCH)
    return statistics.median(times)


def peak_bytes(call: Callable[[], object]) -> int:
    """Memory that a call holds at its peak, as far as Python's allocator knows."""
    call()
    tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def _candidates(news: list[SessionNews]) -> bytes:
    return draft_messages.candidates_to_proto(news).SerializeToString()


def _verdicts(verdicts: list[Verdict]) -> bytes:
    return target_messages.verdict_batch(verdicts).SerializeToString()


def _events(committed: list[Committed]) -> bytes:
    return b"".join(target_messages.session_event(one).SerializeToString() for one in committed)


def _read_verdicts(data: bytes) -> object:
    return list(draft_messages.events_from_proto(target_pb2.VerdictMessage.FromString(data), 1))


def _read_candidates(data: bytes) -> object:
    message = target_pb2.DrafterMessage.FromString(data)
    return [
        target_messages.candidates_from_proto(entry, "draft", 2**31)
        for entry in message.candidates.entries
    ]


def _tokens(source: random.Random, count: int) -> list[int]:
    return [source.randrange(VOCABULARY) for _ in range(count)]


def _news(source: random.Random, handle: int, nodes: int) -> SessionNews:
    return SessionNews(
        handle=handle,
        length=source.randrange(50, 300),
        hash=source.getrandbits(64),
        tree=TreeNews(
            tokens=_tokens(source, nodes),
            parents=[source.randrange(node + 1) for node in range(nodes)],
            estimates=source.randbytes(nodes),
        ),
        frozen=(),
    )


def _verdict(source: random.Random, handle: int) -> Verdict:
    return Verdict(
        drafter="draft",
        handle=handle,
        epoch=source.randrange(1, 100),
        base_length=source.randrange(50, 300),
        base_hash=source.getrandbits(64),
        tokens=tuple(_tokens(source, 3)),
        credits=64,
        starving=False,
        pass_s=0.01,
    )


def _committed(source: random.Random, session: int) -> Committed:
    return Committed(
        owner=Owner(stream=1, session=session),
        epoch=source.randrange(1, 100),
        tokens=tuple(_tokens(source, 3)),
        origins=(0, 0, -1),
        logprobs=None,
    )
