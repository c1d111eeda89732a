"""What a draft worker sends, and when: candidates that grew, gathered while the target is busy with others."""

from __future__ import annotations

import math

from outrider.actors.draft.board import Board
from outrider.actors.draft.events import Drafted, SessionNews
from outrider.actors.draft.session import DraftSession


def flush(board: Board, now: float) -> None:
    """Sends what is due, one message a link.

    Args:
        board: The sessions.
        now: Monotonic time, seconds; infinity: everything is due.
    """
    if not board.dirty:
        return
    dirty = [s for s in board.dirty if board.lockstep or _is_due(board, s, now)]
    for session in dirty:
        del board.dirty[session]
    by_link: dict[int, list[SessionNews]] = {}
    nodes = 0
    for session in dirty:
        news = _news_of(board, session)
        if news is not None:
            by_link.setdefault(session.key.link, []).append(news)
            board.recording.handed_out(session, news.num_nodes)
            nodes += news.num_nodes
            session.urgent_news = max(session.urgent_news - 1, 0)
            session.ripens_until = -math.inf
            if math.isfinite(now):
                session.hold_until = max(session.hold_until, now + session.gap_s)
    for link, entries in by_link.items():
        board.emit(Drafted(link=link, entries=entries))
    if by_link:
        board.count(messages=len(by_link), nodes=nodes)


def _is_due(board: Board, session: DraftSession, now: float) -> bool:
    if now < session.ripens_until:
        return session.ripening.is_ripe(session.tree, board.pass_s)
    return session.urgent_news > 0 or now >= session.hold_until


def _news_of(board: Board, session: DraftSession) -> SessionNews | None:
    if session.asked_at is not None or session.key not in board.sessions:
        return None
    if not board.lockstep:
        return session.take_news(board.max_ahead)
    if session.is_waiting or not board.drafter.is_complete(session):
        return None
    news = session.take_news(session.speculation.max_nodes)
    session.is_waiting = news is not None
    return news
