"""What a pass decided for one session: the walk, the commitment, the verdict, and what is learned from it.

A token is committed only by the walk over the target's own draws (or by the verifier of a frozen tree), so candidates can
change speed and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from outrider.actors.speculation import coupled
from outrider.actors.target.board import Board
from outrider.actors.target.device_drawing import Drawn
from outrider.actors.target.drawing import Drawer
from outrider.actors.target.events import Committed, Finish, Verdict
from outrider.actors.target.frozen import FrozenVerdict
from outrider.actors.target.messages import verdict_bytes
from outrider.actors.target.plan import Entry
from outrider.actors.target.session import Session

TAKEN_SHARE = 0.2
"""Weight of a round in the mean number of candidates taken: about five rounds, as patience remembers."""


ROOM_SHARE = 0.8
"""Part of its patience within which candidates must usually come for a wait to be promised: else a tree has no time to grow, and its
levels had better go out as they come."""


def settle(
    board: Board, entry: Entry, logits_RV: torch.Tensor, pass_s: float, drawn: Drawn | None
) -> tuple[tuple[int, ...], int]:
    """Walks, commits, and queues what the coordinator and the drafters are told.

    Args:
        board: The sessions.
        entry: What was run for the session.
        logits_RV: float32; the root's row and the candidates', in their order.
        pass_s: Seconds that the model took.
        drawn: What was drawn already, on the device; None: draw here.

    Returns:
        The accepted nodes, and the number of committed tokens.
    """
    session, selection = entry.session, entry.selection
    drawer: Drawer | FrozenVerdict | Drawn
    if drawn is not None:
        drawer, result = drawn, drawn.walk
    elif entry.frozen is not None:
        drawer = FrozenVerdict(session, logits_RV, entry.frozen)
        result = drawer.walk()
    else:
        drawer = Drawer(session, logits_RV, selection.parents, selection.tokens)
        result = coupled.walk(selection.tokens, selection.parents, drawer, session.remaining)
    tokens = _until_stop(result.tokens, session.stop_tokens)
    path = result.path[: len(tokens)]
    origins = [selection.nodes[node].drafter for node in path]
    origins.extend([-1] * (len(tokens) - len(origins)))
    _learn(board, session, entry, result.path)
    if session.has_candidates and session.trees is None and not board.is_resting:
        session.taken += TAKEN_SHARE * (len(selection.nodes) - session.taken)
    board.recording.decided(entry, tokens, path)
    now, last = board.clock(), session.tokens[-1]
    session.stats.stale += session.commit(tokens, now)
    if session.rooted is not None:
        board.roots.follow(session, last=last, nodes=path, tokens=tokens, logits_RV=logits_RV)
    session.stats.near_ties += drawer.near_ties
    session.stats.tokens += len(tokens)
    _count(board, session, entry, path)
    is_stopped = tokens[-1] in session.stop_tokens
    is_over = is_stopped or session.remaining <= 0
    if not is_over:
        _send_verdicts(board, session, tokens, pass_s)
    board.say(
        Committed(
            owner=session.owner,
            epoch=session.epoch,
            tokens=tokens,
            origins=tuple(origins),
            logprobs=tuple(drawer.logprobs[: len(tokens)])
            if session.sampling.logprobs is not None
            else None,
        )
    )
    if is_over:
        reason = Finish.STOP_TOKEN if is_stopped else Finish.LENGTH
        session.finish = reason
    return path, len(tokens)


def _learn(board: Board, session: Session, entry: Entry, path: Sequence[int]) -> None:
    """Tells calibration and patience what became of the candidates that the walk met."""
    selection = entry.selection
    if not entry.is_drafted:
        return
    session.patience.observe_round(len(path) + 1)
    if entry.frozen is not None:
        return
    accepted = set(path)
    reached = {-1, *path}
    for index, (parent, node) in enumerate(zip(selection.parents, selection.nodes, strict=True)):
        if parent in reached and node.drafter >= 0:
            drafter = session.drafters[node.drafter]
            board.calibrations[drafter].observe(node.estimate, index in accepted)


def _count(board: Board, session: Session, entry: Entry, path: Sequence[int]) -> None:
    stats, nodes = session.stats, entry.selection.nodes
    if not nodes:
        stats.plain_passes += 1
        return
    board.tally.decided(session.drafters, nodes, path)
    stats.rounds += 1
    stats.verified += len(nodes)
    stats.accepted += len(path)
    root = session.length - session.last_round
    stats.count_round(max(node.depth for node in nodes) - root, len(path))


def _send_verdicts(board: Board, session: Session, tokens: tuple[int, ...], pass_s: float) -> None:
    if session.rested_from is not None:
        # Told once; when the drafters are woken they are told all that they missed.
        return
    starving = not session.has_candidates
    wait_s = _wait_s(board, session) if starving else 0.0
    if wait_s > 0.0:
        session.waits_until = session.last_verdict + wait_s
    roots = session.rooted.tokens if session.rooted is not None else ()
    credits_ = board.credits_of(session)
    for drafter in session.joined & board.live_drafters:
        seen = session.seen.get(drafter, 0)
        num_bytes = verdict_bytes(
            session.handle, session.epoch, session.length, tokens, credits_, roots, seen, wait_s
        )
        session.stats.wire_bytes += num_bytes
        board.tally.of(drafter).sent += num_bytes
        board.say(
            Verdict(
                drafter=drafter,
                handle=session.handle,
                epoch=session.epoch,
                base_length=session.length,
                base_hash=session.hash,
                tokens=tokens,
                credits=credits_,
                starving=starving,
                pass_s=pass_s,
                roots=roots,
                seen=seen,
                wait_s=wait_s,
            )
        )
    if board.is_resting:
        session.rested_from = session.length


def _wait_s(board: Board, session: Session) -> float:
    """Seconds for which drafters may count on the next pass of a session without candidates to wait, at most; 0: they may not.

    As `plan_pass` will decide, but only for a session that has the target to itself: with others the wait depends on them.
    """
    is_served = not board.is_resting and session.remaining > 1 and session.trees is None
    if not is_served or board.settings.lockstep or len(board.sessions) > 1:
        return 0.0
    patience = session.patience
    limit_s = min(patience.limit_s(board.cost.predict(1)), board.settings.max_patience_s)
    return limit_s if patience.arrival_s <= ROOM_SHARE * limit_s else 0.0


def _until_stop(tokens: tuple[int, ...], stop_tokens: frozenset[int]) -> tuple[int, ...]:
    """The tokens up to and including the first stop token."""
    for index, token in enumerate(tokens):
        if token in stop_tokens:
            return tokens[: index + 1]
    return tokens
