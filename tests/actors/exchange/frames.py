"""Frames of every kind that a peer may send, and arrays compared field by field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from outrider.actors.exchange import candidates, commits, features, verdicts
from outrider.actors.exchange.candidates import Candidates
from outrider.actors.exchange.commits import Commit, Commits
from outrider.actors.exchange.features import Features, RejectedNodes
from outrider.actors.exchange.frames import Array
from outrider.actors.exchange.verdicts import TargetActivity, Verdicts
from outrider.actors.speculation.trees.ragged import starts_of

VOCAB = 100_000


def array(values: list[int], dtype: type[np.generic] = np.int64) -> Array:
    """An array of one type."""
    return np.array(values, dtype)


def uint(bits: int) -> st.SearchStrategy[int]:
    """Any number of so many bits."""
    return st.integers(0, 2**bits - 1)


def several(one: st.SearchStrategy[int], count: int) -> st.SearchStrategy[list[int]]:
    """So many of something."""
    return st.lists(one, min_size=count, max_size=count)


@st.composite
def some_candidates(draw: st.DrawFn, largest: int = VOCAB - 1) -> Candidates:
    """Trees of some sessions, some without a node."""
    sizes = draw(st.lists(st.one_of(st.integers(0, 6), st.just(300)), max_size=4))
    count = len(sizes)
    num_nodes = sum(sizes)
    if 300 in sizes:  # hundreds of choices are the most of what an example takes
        rng = draw(st.randoms(use_true_random=True))
        parents = [rng.randrange(-1, node) for size in sizes for node in range(size)]
        tokens = [rng.choice((largest, rng.randint(0, largest))) for _ in range(num_nodes)]
    else:
        parents = [draw(st.integers(-1, node - 1)) for size in sizes for node in range(size)]
        tokens = [draw(st.integers(0, largest)) for _ in range(num_nodes)]
    return Candidates(
        handles_E=array(draw(several(uint(64), count)), np.uint64),
        lengths_E=array(draw(several(uint(32), count))),
        hashes_E=array(draw(several(uint(64), count)), np.uint64),
        numbers_E=array(draw(several(uint(32), count))),
        starts_E=starts_of(array(sizes)),
        tokens_N=array(tokens),
        parents_N=array(parents),
        estimates_N=array([node * 37 % 256 for node in range(num_nodes)], np.uint8),
        sent_us=draw(uint(32)),
    )


@st.composite
def some_verdicts(draw: st.DrawFn) -> Verdicts:
    """Verdicts of some sessions, with and without roots."""
    sizes = draw(st.lists(st.integers(0, 5), max_size=4))
    roots = [draw(st.integers(0, 4)) for _ in sizes]
    count = len(sizes)
    largest = draw(st.sampled_from([9, 2**16, verdicts.MAX_TOKEN - 1]))
    return Verdicts(
        echo_us=draw(uint(32)),
        target=TargetActivity(
            pass_s=1e-6 * draw(uint(20)),
            free_s=1e-6 * draw(uint(20)),
            wait_s=1e-6 * draw(uint(20)),
            floor=draw(uint(16)) / verdicts.VALUE_STEPS,
        ),
        handles_E=array(draw(several(uint(64), count)), np.uint64),
        epochs_E=array(draw(several(uint(32), count))),
        lengths_E=array([size + draw(uint(31)) for size in sizes]),
        hashes_E=array(draw(several(uint(64), count)), np.uint64),
        credits_E=array(draw(several(uint(16), count))),
        seen_E=array(draw(several(uint(32), count))),
        starving_E=array(draw(several(uint(1), count)), np.bool_),
        starts_E=starts_of(array(sizes)),
        tokens_T=array([draw(st.integers(0, largest)) for _ in range(sum(sizes))]),
        root_starts_E=starts_of(array(roots)),
        roots_T=array([draw(st.integers(0, largest)) for _ in range(sum(roots))]),
    )


@st.composite
def some_commits(draw: st.DrawFn) -> Commits:
    """What some sessions committed."""
    sizes = draw(st.lists(st.integers(0, 5), max_size=4))
    count = len(sizes)
    return Commits(
        sessions_E=array(draw(several(uint(64), count)), np.uint64),
        epochs_E=array(draw(several(uint(32), count))),
        starts_E=starts_of(array(sizes)),
        tokens_T=array(draw(several(uint(32), sum(sizes)))),
        origins_T=array(draw(several(st.integers(-1, 2**15 - 1), sum(sizes)))),
    )


@st.composite
def some_features(draw: st.DrawFn) -> Features:
    """Hidden states or likeliest tokens of some sessions, of positions or of candidates that were not drawn."""
    sizes = draw(st.lists(st.integers(0, 4), max_size=3))
    count, num_rows = len(sizes), sum(sizes)
    layers, width, top_k = draw(st.integers(0, 3)), draw(st.integers(0, 3)), draw(st.integers(0, 2))
    rejected = None
    if draw(st.booleans()):
        nodes = [(node, draw(st.integers(-1, node - 1))) for size in sizes for node in range(size)]
        positions: list[int] = []
        for node, parent in nodes:
            above = positions[len(positions) - node + parent] if parent >= 0 else draw(uint(20))
            positions.append(above + 1)
        rejected = RejectedNodes(
            tokens_R=np.arange(num_rows) + draw(uint(31)),
            parents_R=array([parent for _, parent in nodes]),
            positions_R=array(positions),
        )
    states = np.arange(num_rows * layers * width, dtype=np.uint16) * 7
    logprobs = [-0.25 * i for i in range(num_rows * top_k)]
    return Features(
        revision=draw(uint(64)),
        handles_E=array(draw(several(uint(64), count)), np.uint64),
        firsts_E=array(draw(several(uint(32), count))),
        starts_E=starts_of(array(sizes)),
        states_RLD=states.reshape(num_rows, layers, width),
        top_tokens_RK=np.arange(num_rows * top_k).reshape(num_rows, top_k),
        top_logprobs_RK=array(logprobs, np.float32).reshape(num_rows, top_k),  # type: ignore[arg-type]
        rejected=rejected,
    )


def in_arrays(found: list[Commit]) -> Commits:
    """What was read session by session."""
    return Commits(
        sessions_E=array([one.session for one in found], np.uint64),
        epochs_E=array([one.epoch for one in found]),
        starts_E=starts_of(array([len(one.tokens) for one in found])),
        tokens_T=array([token for one in found for token in one.tokens]),
        origins_T=array([origin for one in found for origin in one.origins]),
    )


@dataclass(frozen=True)
class Kind:
    """One kind of frame."""

    name: str
    some: Callable[[], st.SearchStrategy[Any]]
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


KINDS = [
    Kind(
        "candidates",
        some_candidates,
        candidates.encode,
        lambda frame: candidates.decode(frame, VOCAB),
    ),
    Kind("verdicts", some_verdicts, verdicts.encode, verdicts.decode),
    Kind("features", some_features, features.encode, features.decode),
    Kind("commits", some_commits, commits.encode, lambda frame: in_arrays(commits.decode(frame))),
]


def plain(value: Any) -> Any:
    """Something that can be compared: arrays as lists; sizes of frames are left out."""
    if is_dataclass(value):
        names = [field.name for field in fields(value) if field.name != "num_bytes"]
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, float):
        return round(value, 9)
    return value.tolist() if isinstance(value, np.ndarray) else value
