"""What the messages between drafter, target and coordinator cost: bytes, and the time to make and to read each. No network.

The product's own functions on messages of the sizes that decoding makes: a level of a tree and a whole one, one session and
sixteen in a message.
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from outrider.actors.draft.service import draft_messages
from outrider.actors.draft.state.draft_events import CandidatesSent
from outrider.actors.exchange import commits
from outrider.actors.exchange.candidates import Candidates
from outrider.actors.exchange.commits import Commits
from outrider.actors.exchange.verdicts import TargetActivity, Verdicts
from outrider.actors.speculation.trees.path_keys import Uint64s
from outrider.actors.target.service import target_messages
from outrider.actors.target.state.target_events import CommitFrame, VerdictsSent
from outrider.v1 import target_pb2

KEYS = ("message", "sessions")
"""What tells rows apart."""

BATCH = 200
"""Calls that are timed together, long against the clock."""

VOCABULARY = 4096
"""Token ids as the shipped models have them; those above 65,535 take two bytes more each."""

TOKENS = 3
"""That a round commits."""


def run(*, runs: int | None = None, is_quick: bool = False) -> Iterator[dict[str, Any]]:
    """One row for each kind of message and number of sessions.

    Args:
        runs: Batches of each timing.
        is_quick: Few.
    """
    repeats = runs or (5 if is_quick else 100)
    source = np.random.default_rng(1)
    for sessions in (1, 16):
        for nodes in (4, 16):
            yield _row(
                f"candidates, {nodes} nodes",
                sessions,
                repeats,
                make=partial(_candidates, _some_candidates(source, sessions, nodes)),
                read=_read_candidates,
            )
        yield _row(
            f"verdicts, {TOKENS} tokens",
            sessions,
            repeats,
            make=partial(_verdicts, _some_verdicts(source, sessions)),
            read=_read_verdicts,
        )
        yield _row(
            f"committed tokens, {TOKENS} each",
            sessions,
            repeats,
            make=partial(_commits, _some_commits(source, sessions)),
            read=_read_commits,
        )


def _row(
    message: str,
    sessions: int,
    repeats: int,
    *,
    make: Callable[[], bytes],
    read: Callable[[bytes], object],
) -> dict[str, Any]:
    data = make()
    return {
        "message": message,
        "sessions": sessions,
        "runs": repeats,
        "bytes": len(data),
        "make_us": microseconds(make, repeats),
        "make_peak_bytes": peak_bytes(make),
        "read_us": microseconds(lambda: read(data), repeats),
        "read_peak_bytes": peak_bytes(lambda: read(data)),
    }


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


def _candidates(news: Candidates) -> bytes:
    return draft_messages.message_of(CandidatesSent(link=1, candidates=news)).SerializeToString()


def _verdicts(verdicts: Verdicts) -> bytes:
    frame = VerdictsSent(drafter="draft", verdicts=verdicts)
    return target_messages.verdict_message(frame).SerializeToString()


def _commits(committed: Commits) -> bytes:
    frame = CommitFrame(stream=1, commits=committed)
    return target_messages.commit_message(frame).SerializeToString()


def _read_candidates(data: bytes) -> object:
    message = target_pb2.DrafterMessage.FromString(data)
    return target_messages.candidates_from_proto(message.candidates, "draft", VOCABULARY)


def _read_verdicts(data: bytes) -> object:
    return draft_messages.event_from_proto(target_pb2.VerdictMessage.FromString(data), 1)


def _read_commits(data: bytes) -> object:
    return commits.decode(target_pb2.SessionEvent.FromString(data).commits.frame)


def _handles(sessions: int) -> Uint64s:
    """Of six bytes, as a target's are."""
    return np.arange(1 << 47, (1 << 47) + sessions, dtype=np.uint64)


def _some_candidates(source: np.random.Generator, sessions: int, nodes: int) -> Candidates:
    return Candidates(
        handles_E=_handles(sessions),
        lengths_E=source.integers(50, 300, sessions),
        hashes_E=source.integers(0, 1 << 63, sessions).astype(np.uint64),
        numbers_E=source.integers(1, 100, sessions),
        starts_E=np.arange(sessions + 1) * nodes,
        tokens_N=source.integers(0, VOCABULARY, sessions * nodes),
        parents_N=np.tile(source.integers(-1, np.arange(nodes)), sessions),
        estimates_N=source.integers(0, 256, sessions * nodes).astype(np.uint8),
    )


def _some_verdicts(source: np.random.Generator, sessions: int) -> Verdicts:
    return Verdicts(
        target=TargetActivity(pass_s=0.01, wait_s=0.001, floor=0.1),
        handles_E=_handles(sessions),
        epochs_E=source.integers(1, 100, sessions),
        lengths_E=source.integers(50, 300, sessions),
        hashes_E=source.integers(0, 1 << 63, sessions).astype(np.uint64),
        credits_E=np.full(sessions, 64),
        seen_E=source.integers(1, 100, sessions),
        starving_E=np.zeros(sessions, np.bool_),
        starts_E=np.arange(sessions + 1) * TOKENS,
        tokens_T=source.integers(0, VOCABULARY, TOKENS * sessions),
        root_starts_E=np.zeros(sessions + 1, np.int64),
        roots_T=np.zeros(0, np.int64),
    )


def _some_commits(source: np.random.Generator, sessions: int) -> Commits:
    return Commits(
        sessions_E=np.arange(1, sessions + 1, dtype=np.uint64),
        epochs_E=source.integers(1, 100, sessions),
        starts_E=np.arange(sessions + 1) * TOKENS,
        tokens_T=source.integers(0, VOCABULARY, TOKENS * sessions),
        origins_T=np.tile([0, 0, -1], sessions),
    )
