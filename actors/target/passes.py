"""One pass from batch to verdicts: rows for the engine, the walk of each session, compaction.

- Verdicts leave before keys and values are compacted, because drafters wait for them and nobody waits for compaction.
- Whatever a pass raises, what can go on without candidates does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import structlog

from outrider.actors.engine.protocol import Logits, Rows
from outrider.actors.target.board import Board
from outrider.actors.target.device_drawing import Drawn
from outrider.actors.target.events import Finished
from outrider.actors.target.plan import NOTHING, Entry
from outrider.actors.target.settle import settle

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a pass took and gave."""

    num_rows: int
    """Tokens that were run."""

    committed: int
    """Tokens of all sessions."""

    model_s: float
    """Seconds in the model."""


def run_pass(
    board: Board,
    entries: Sequence[Entry],
    now: float,
    running_model: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Outcome | None:
    """Runs a pass and tells everyone what came of it.

    A pass that raises is run again without candidates, session by session, so that whatever one of them brought along costs
    the others nothing but time. A session whose own plain pass raises is failed with a status that is retried elsewhere.

    Args:
        board: The sessions.
        entries: The pass; at least one.
        now: When it was planned, in seconds of the worker's clock.
        running_model: Entered while the model runs and draws, when sessions are not touched here.

    Returns:
        None if every session of the pass was failed: the engine may be broken.
    """
    board.recording.begin_pass()
    for entry in entries:
        _end_wait(entry, now)
    try:
        computed = _compute(board, entries, running_model)
    except Exception as error:  # noqa: BLE001 - whatever a model raises must not end the others
        board.tally.failed_passes += 1
        requests = [entry.session.request_id for entry in entries]
        _log.error("target pass failed", request_ids=requests, exc_info=error)
        return _run_apart(board, entries, now, running_model)
    return _conclude(board, entries, computed, now)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Computed:
    """What the model gave."""

    logits: Logits
    drawn: Sequence[Drawn | None]
    num_rows: int


def _compute(
    board: Board,
    entries: Sequence[Entry],
    running_model: Callable[[], AbstractContextManager[None]],
) -> _Computed:
    batch = [_rows(entry) for entry in entries]
    with running_model():
        logits = board.engine.forward(batch)
        drawn = board.draws.start(entries, logits)()
    return _Computed(logits=logits, drawn=drawn, num_rows=sum(len(rows.tokens) for rows in batch))


def _conclude(board: Board, entries: Sequence[Entry], computed: _Computed, now: float) -> Outcome:
    model_s = board.clock() - now
    logits, committed = computed.logits, 0
    finished: list[tuple[Entry, tuple[int, ...]]] = []
    for index, entry in enumerate(entries):
        if entry.is_prefill:
            finished.append((entry, ()))
            continue
        stop = logits.offsets[index + 1]
        root_and_nodes_RV = logits.values_RV[stop - 1 - len(entry.selection.nodes) : stop]
        path, num_tokens = settle(board, entry, root_and_nodes_RV, model_s, computed.drawn[index])
        committed += num_tokens
        finished.append((entry, path))
    board.flush()
    for entry, path in finished:
        _compact(board, entry, path)
    return Outcome(num_rows=computed.num_rows, committed=committed, model_s=model_s)


def _run_apart(
    board: Board,
    entries: Sequence[Entry],
    now: float,
    running_model: Callable[[], AbstractContextManager[None]],
) -> Outcome | None:
    """One plain pass for each session. None: all of them failed."""
    outcomes: list[Outcome] = []
    for entry in entries:
        slot = entry.session.slot
        board.engine.truncate(slot, board.engine.cached(slot))
        plain = replace(entry, selection=NOTHING, frozen=None)
        try:
            computed = _compute(board, [plain], running_model)
        except Exception as error:  # noqa: BLE001 - as above
            _log.error("a session failed", request_id=entry.session.request_id, exc_info=error)
            board.fail(entry.session, f"the target pass failed: {type(error).__name__}: {error}")
            continue
        outcomes.append(_conclude(board, [plain], computed, now))
    if not outcomes:
        return None
    return Outcome(
        num_rows=sum(outcome.num_rows for outcome in outcomes),
        committed=sum(outcome.committed for outcome in outcomes),
        model_s=board.clock() - now,
    )


def _end_wait(entry: Entry, now: float) -> None:
    session = entry.session
    if session.wait_since is not None:
        session.stats.draft_wait_s += now - session.wait_since
        session.wait_since = None
        if not entry.is_drafted:
            # Waited in vain: counts double, so that a silent drafter soon costs nothing.
            session.patience.observe_arrival(2.0 * (now - session.last_verdict))


def _rows(entry: Entry) -> Rows:
    chain = entry.chain
    last = len(chain) - 1
    parents = list(range(-1, last))
    parents.extend(last + 1 + p for p in entry.selection.parents)
    wanted = "none" if entry.is_prefill else ("all" if entry.selection.nodes else "last")
    return Rows(
        slot=entry.session.slot,
        tokens=chain + entry.selection.tokens,
        parents=parents,
        logits=wanted,  # type: ignore[arg-type]  # one of the three literals
    )


def _compact(board: Board, entry: Entry, path: Sequence[int]) -> None:
    session, chain = entry.session, len(entry.chain)
    board.engine.rebase(session.slot, [*range(chain), *(chain + node for node in path)])
    if session.finish is not None:
        board.say(Finished(owner=session.owner, reason=session.finish, stats=session.stats))
        board.drop(session)
