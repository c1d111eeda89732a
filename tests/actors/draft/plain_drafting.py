"""What a drafter runs and sends next, told with loops over plain numbers: the reference for `DraftCore.begin`.

One function makes decision 4 of docs/scheduling.md: which nodes of which trees the next draft pass runs, which committed tokens it reads, and
which candidates go out before it begins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

FIXED_S, ROW_S, YIELD = 1e-3, 1e-5, 0.75
"""Seconds of a pass and of a row, and what the children of a node are worth as a part of it, before anything is known."""


@dataclass(frozen=True, kw_only=True)
class PlainNode:
    """A candidate, at its place in the tree of its session."""

    parent: int
    """-1: the text."""
    depth: int
    value: float
    """Product of the estimates on its path."""
    is_run: bool
    is_sent: bool
    is_last: bool
    """The text ends with it."""


@dataclass(frozen=True, kw_only=True)
class PlainSession:
    """A session that drafters work for."""

    link: int
    nodes: Sequence[PlainNode]
    unread: int
    """Committed tokens that the model has not run; 0: the tree grows."""
    most_nodes: int
    """Below the text; 0: rest."""
    deepest: int
    """Depth of a tree, at most."""
    is_awaited: bool
    """Its target has nothing to verify, and nothing was sent since it has said so."""


@dataclass(frozen=True, kw_only=True)
class PlainFrame:
    """What a target has said of itself with its verdicts."""

    at: float
    sessions: int
    tokens: int
    pass_s: float
    free_s: float
    wait_s: float
    floor: float
    trip_s: float | None
    """How long our last candidates and this were on the way together; None: it has had none."""


@dataclass(kw_only=True)
class PlainLink:
    """What is known of a target."""

    round_trip_s: float
    """Of the first message."""
    told: list[PlainFrame] = field(default_factory=list)
    sent: list[tuple[float, bool]] = field(default_factory=list)
    """When candidates went out since it has told something, and whether it then still waited for others."""


@dataclass(frozen=True, kw_only=True)
class PlainPass:
    """A draft pass that was run."""

    rows: int
    seconds: float
    value: float
    """Of what was run, over its bytes and its row at the target, where it is more; a text that was read to its end is worth 1."""
    children: float
    """The same of the candidates that it gave."""
    is_awaited: bool
    """A target waited for it."""
    was_long: bool | None
    """It did nothing but read; None: there was nothing to read."""


@dataclass(frozen=True, kw_only=True)
class PlainLimits:
    """Settings."""

    max_ahead: int
    max_scratch: int
    chunk: int
    byte: float
    """Tokens that it costs."""
    node_bytes: int
    session_bytes: int
    """Of a session in a message, beside its nodes."""


@dataclass(kw_only=True)
class PlainChoice:
    """What is done next; sessions and nodes by their places."""

    reads: dict[int, int] = field(default_factory=dict)
    """Tokens by session."""
    runs: dict[int, set[int]] = field(default_factory=dict)
    sends: dict[int, set[int]] = field(default_factory=dict)
    seconds: float = 0.0
    """That the pass is expected to take."""
    is_long: bool | None = None
    """As of `PlainPass`."""
    gathers: set[int] = field(default_factory=set)
    """Links to which nothing goes out yet."""


def decide(
    sessions: Sequence[PlainSession],
    links: dict[int, PlainLink],
    passes: Sequence[PlainPass],
    limits: PlainLimits,
    now: float,
) -> PlainChoice:
    """What to run and to send.

    Args:
        sessions: All of the drafter's.
        links: Their targets.
        passes: What was run so far.
        limits: What was set.
        now: Seconds.
    """
    made = PlainChoice()
    # Bytes at their dearest.
    bytes_worth = 10.0 * limits.byte * limits.node_bytes
    floors = {
        name: max(link.told[-1].floor if link.told else 0.0, bytes_worth)
        for name, link in links.items()
    }
    at_work = {place: one for place, one in enumerate(sessions) if one.most_nodes > 0}
    is_awaited = any(one.is_awaited for one in at_work.values())
    fixed_s, row_s = _line([ran for ran in passes if ran.is_awaited == is_awaited])
    value, children = 1.0, YIELD
    for ran in passes:
        if ran.value > 0.0:
            value = 0.95 * value + ran.value
            children = 0.95 * children + ran.children

    # Texts first: with the growing trees if they cost no more than the pass does anyway, else alone, by turns with those.
    reading = {p: one for p, one in at_work.items() if one.unread and one.deepest >= 1}
    is_free = {
        p: row_s == 0.0 or one.unread <= max(fixed_s / row_s, 1.0) for p, one in reading.items()
    }
    growing = {p: one for p, one in at_work.items() if not one.unread}
    turns = [ran.was_long for ran in passes if ran.was_long is not None]
    for is_long in (False, True) if turns and turns[-1] else (True, False):
        room = limits.chunk
        for place, one in reading.items():
            if is_free[place] != is_long and room > 0:
                made.reads[place] = min(one.unread, room)
                room -= made.reads[place]
        if reading:
            made.is_long = is_long
        if is_long:
            if made.reads:
                break
            continue
        able: list[tuple[float, int, int]] = []
        for place, one in growing.items():
            most = min(one.most_nodes, limits.max_ahead, limits.max_scratch)
            least = max(0.1 * floors[one.link], 1.0 / most)
            wanted = sorted(
                (-it.value, node)
                for node, it in enumerate(one.nodes)
                if not it.is_run and not it.is_last
                if it.value > least and it.depth < one.deepest
            )
            left = max(most - sum(node.is_run for node in one.nodes), 0)
            able += [(worth, place, node) for worth, node in wanted[:left]]
        able.sort()
        done = sum(1.0 for place, count in made.reads.items() if count == sessions[place].unread)
        num_rows = sum(made.reads.values())
        best, most_a_second = 0, done / max(fixed_s + row_s * num_rows, 1e-9) if num_rows else -1.0
        gain = done
        for count, (worth, _, _) in enumerate(able, start=1):
            gain -= worth
            a_second = gain / max(fixed_s + row_s * (num_rows + count), 1e-9)
            if a_second > most_a_second:
                best, most_a_second = count, a_second
        for _, place, node in able[:best]:
            made.runs.setdefault(place, set()).add(node)
        if made.reads or made.runs:
            break
    num_rows = sum(made.reads.values()) + sum(map(len, made.runs.values()))
    made.seconds = fixed_s + row_s * num_rows if num_rows else 0.0

    for name, link in links.items():
        own = {place: one for place, one in enumerate(sessions) if one.link == name}
        is_due, skipped, byte = True, 0, limits.byte
        if link.told:
            frame, tokens = link.told[-1], float(link.told[0].tokens)
            told_of = float(link.told[0].sessions)
            for each in link.told[1:]:
                tokens = 0.95 * tokens + 0.05 * each.tokens
                told_of = 0.95 * told_of + 0.05 * each.sessions
            # What is not there when a verdict leads to it costs what its session commits while it is fetched, and a token at most.
            mean, spread = link.round_trip_s, 0.0
            for each in link.told:
                if each.trip_s is not None:
                    # What takes far longer than it did was a pause, not a way.
                    trip_s = min(max(each.trip_s, 0.0), 3.0 * max(mean, 0.1 * each.pass_s))
                    spread += 0.2 * (abs(trip_s - mean) - spread)
                    mean += 0.2 * (trip_s - mean)
            soonest, latest = max(mean - 2.0 * spread, 0.0), mean + spread
            trip = max(soonest / frame.pass_s, 0.1)
            byte /= min(trip * max(tokens / told_of, 1.0), 1.0)
            # Passes that end before the answer arrives commit a token each.
            skipped = max(math.floor((soonest - frame.wait_s) / frame.pass_s), 0)
            use_at, wait_s = frame.at + frame.free_s - latest, frame.wait_s
            for when, still_waits in link.sent:
                if still_waits and when <= use_at + wait_s:
                    continue
                # What comes now is for the pass after the one that begins next.
                wait_s = 0.0
                use_at += frame.pass_s
                while use_at <= when:
                    use_at += frame.pass_s
            ready = now + made.seconds
            if num_rows and ready <= use_at:
                is_due = False
            elif num_rows and wait_s > 0.0 and ready <= use_at + wait_s:
                gain = 0.0
                for place, one in own.items():
                    runs = [one.nodes[node].value for node in made.runs.get(place, ())]
                    if place in made.reads and made.reads[place] == one.unread:
                        runs.append(1.0)
                    gain += sum(max(worth - floors[name], 0.0) for worth in runs)
                is_due = children / value * gain <= tokens / frame.pass_s * made.seconds
        if not is_due:
            made.gathers.add(name)
            continue
        for place, one in own.items():
            fresh = sorted(
                (-it.value, node)
                for node, it in enumerate(one.nodes)
                if not it.is_sent and it.depth > skipped
                if it.value >= byte * limits.node_bytes
            )
            left = min(one.most_nodes, limits.max_ahead) - sum(it.is_sent for it in one.nodes)
            fresh = fresh[: max(left, 0)]
            if not fresh or -sum(worth for worth, _ in fresh) < byte * limits.session_bytes:
                continue
            goes = made.sends.setdefault(place, set())
            for _, node in fresh:
                while node >= 0:
                    goes.add(node)
                    node = one.nodes[node].parent
    return made


def _line(passes: Sequence[PlainPass]) -> tuple[float, float]:
    """Seconds of a pass and of a row: a line by least squares, in which each pass counts .95 times the one after it."""
    fixed_s, row_s = FIXED_S, ROW_S
    weight = rows = seconds = squares = products = 0.0
    for ran in passes:
        took = min(ran.seconds, 3.0 * (fixed_s + row_s * ran.rows)) if weight else ran.seconds
        weight = 0.95 * weight + 1.0
        rows = 0.95 * rows + ran.rows
        seconds = 0.95 * seconds + took
        squares = 0.95 * squares + ran.rows * ran.rows
        products = 0.95 * products + ran.rows * took
        spread = weight * squares - rows * rows
        if spread > 1e-6 * weight * squares:
            slope = (weight * products - rows * seconds) / spread
            row_s = min(max(slope, 0.0), seconds / max(rows, weight))
        fixed_s = max(seconds - row_s * rows, 0.0) / weight
    return fixed_s, row_s
