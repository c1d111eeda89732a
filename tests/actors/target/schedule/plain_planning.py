"""What a target does next, told with loops over plain numbers: the reference for `next_pass.Planner`.

One function puts decisions 1 and 2 of docs/scheduling.md together: what the next pass would verify, and whether it begins now or waits for
candidates. Decision 1 is found by trying all sets (`plain_selection.best_subset`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.actors.target.candidates.plain_selection import Candidate, best_subset


@dataclass(frozen=True, kw_only=True)
class PlainSession:
    """A session that decodes, with a drafter that works for it."""

    length: int
    heard: int
    """Tokens of the text that drafters have answered last."""
    said: dict[int, float]
    """When drafters were told of each length of the text, in seconds."""
    tokens: float
    """That a pass over its candidates commits."""
    hit: float
    """Part of such passes that commit more than one."""
    answered: bool
    """Something for this very text has come."""
    grows: bool
    """Its tree is new since the last verdict."""
    most_nodes: int
    deepest: int
    """Tokens that a candidate may be below the text."""
    candidates: Sequence[Candidate]
    """Parents are places among all sessions' candidates."""
    first_place: int
    """Of its candidates among all."""


@dataclass(frozen=True, kw_only=True)
class PlainDelay:
    """How long something takes, in seconds."""

    mean_s: float
    spread_s: float

    def left_s(self, elapsed_s: float) -> float:
        """What it still takes; what is late takes as long again."""
        if elapsed_s > self.mean_s + 2.0 * self.spread_s:
            return elapsed_s
        return max(self.mean_s - elapsed_s, self.spread_s)


def decide(
    sessions: Sequence[PlainSession],
    *,
    now: float,
    seconds: Callable[[int], float],
    floor: float,
    last_nodes: int,
    rows_s: float,
    most_nodes: int,
    first: PlainDelay,
    following: PlainDelay,
    last_arrival: float,
    promised: float,
    patience_s: float,
    smallest_s: float,
) -> tuple[float, frozenset[int]]:
    """Seconds to wait, 0: the pass begins; and the places of the candidates that it takes if it begins.

    Args:
        sessions: All of the target's.
        now: Seconds.
        seconds: Of a pass over so many rows.
        floor: Tokens that a row costs.
        last_nodes: Candidates of the last pass.
        rows_s: Seconds that those of a session that had some took.
        most_nodes: Of a pass.
        first: From a verdict to its answer.
        following: From candidates to the next below the same text.
        last_arrival: When some came, in seconds.
        promised: Until when the target waits, as it has told drafters with the last verdicts, in seconds; 0: candidates have come since.
        patience_s: The longest wait.
        smallest_s: The shortest.
    """
    everything = [one for session in sessions for one in session.candidates]
    chosen, _ = best_subset(
        everything,
        num_sessions=len(sessions),
        max_depths=[session.deepest for session in sessions],
        budgets=[session.most_nodes for session in sessions],
        max_nodes=most_nodes,
        seconds=lambda size: seconds(len(sessions) + size),
    )
    pace = sum(session.tokens for session in sessions) / seconds(len(sessions) + last_nodes)

    def bounded(wait_s: float, since: float) -> float:
        return max(min(wait_s, patience_s - (now - since)), 0.0)

    def worth(gain: float, delay: PlainDelay, elapsed_s: float) -> float:
        if gain <= pace * delay.left_s(elapsed_s):
            return 0.0
        wait_s = gain / pace - elapsed_s
        return wait_s if wait_s > smallest_s else 0.0

    awaited = [one for one in sessions if not (one.candidates and one.answered)]
    if awaited:
        due: list[tuple[float, float]] = []
        for session in awaited:
            untold = [n for n in range(session.heard + 1, session.length + 1) if n in session.said]
            if not untold:
                continue
            more = max(session.tokens - 1.0 - pace * rows_s, 0.0)
            if session.candidates:
                leaves = leaf_values(session)
                gain = leaves * (more - min(pace * first.mean_s, more))
            else:
                gain = more + (1.0 - session.hit) * min(more, 1.0)
            gain *= session.hit ** (session.length - untold[0])
            due.append((now - session.said[untold[0]], gain))
        due.sort(key=lambda one: -one[0])
        best, total, latest = None, 0.0, 0.0
        for elapsed_s, gain in due:
            total, latest = total + gain, max(latest, first.left_s(elapsed_s))
            if best is None or total - pace * latest > best[0]:
                best = (total - pace * latest, total, elapsed_s)
        wait_s = worth(best[1], first, best[2]) if best else 0.0
        newest = max(session.said[session.length] for session in awaited)
        return bounded(promised - now if promised else wait_s, newest), chosen
    if any(session.grows for session in sessions):
        gain = 0.0
        parents = {everything[place].parent for place in chosen}
        for place in chosen - parents:
            one = everything[place]
            session = sessions[one.session]
            taken = sum(everything[other].session == one.session for other in chosen)
            if session.grows and one.depth < session.deepest and taken < session.most_nodes:
                gain += max(one.value * session.hit - floor, 0.0)
        return bounded(worth(gain, following, now - last_arrival), last_arrival), chosen
    return 0.0, chosen


def leaf_values(session: PlainSession) -> float:
    """Probability that the text leaves the tree where it ends and could go on; 0 if no more candidates may be taken."""
    if len(session.candidates) >= session.most_nodes:
        return 0.0
    parents = {one.parent for one in session.candidates}
    return sum(
        one.value
        for place, one in enumerate(session.candidates, session.first_place)
        if place not in parents and one.depth < session.deepest
    )


@dataclass(frozen=True, kw_only=True)
class PlainLoner:
    """A session that decodes, and whose candidates fit one text only."""

    verdict: float
    """When its text was last decided, in seconds."""
    tokens: float
    """That a pass over its candidates commits."""
    has: bool
    """They are there."""
    is_due: bool
    """Drafters work for it and have not answered for this text."""


def who_goes(
    sessions: Sequence[PlainLoner],
    *,
    now: float,
    seconds: Callable[[int], float],
    last_nodes: int,
    first: PlainDelay,
    patience_s: float,
    smallest_s: float,
    is_reading: bool,
) -> tuple[float, frozenset[int]]:
    """Seconds to wait, 0: the pass begins; and the places of the sessions that go along if it begins. Arguments as of `decide`.

    Args:
        is_reading: The pass runs a part of somebody's prompt, and waits for nothing.
    """
    late = 0.5 if is_reading or any(one.has for one in sessions) else 0.0
    pass_s = seconds(len(sessions) + last_nodes)
    out: dict[int, float] = {}
    for place, one in enumerate(sessions):
        elapsed_s = now - one.verdict
        worth_s = min((one.tokens - 1.0 - late) * pass_s, patience_s)
        is_worth = first.left_s(elapsed_s) < worth_s and worth_s - elapsed_s > smallest_s
        if one.is_due and not one.has and is_worth:
            out[place] = worth_s - elapsed_s
    going = frozenset(range(len(sessions))) - out.keys()
    if is_reading:
        return 0.0, going
    if not going:
        return min(out.values()), going
    pass_s = seconds(len(going) + last_nodes)
    pace = sum(sessions[place].tokens if sessions[place].has else 1.0 for place in going) / pass_s
    best, total, latest = None, 0.0, 0.0
    for place in sorted(out, key=lambda place: sessions[place].verdict):
        one = sessions[place]
        total += one.tokens * pass_s / (first.mean_s + pass_s)
        latest = max(latest, first.left_s(now - one.verdict))
        if best is None or total - pace * latest > best[0]:
            best = (total - pace * latest, total)
    wait_s = best[1] / pace if best is not None and best[0] > 0.0 else 0.0
    return wait_s if wait_s > smallest_s else 0.0, going
