"""The growth of trees from nets that read the target's hidden states: that of the autoregressive drafter."""

from __future__ import annotations

from typing import Any

from outrider.actors.draft.model.growing_drafter import AutoregressiveDrafter
from outrider.actors.draft.state.draft_sessions import DraftSession, DraftSessions
from outrider.actors.draft.state.drafter import DraftPass
from outrider.actors.draft.trees.forest import Int64s
from outrider.actors.draft.trees.sent_paths import SentPaths
from outrider.actors.engine.kv.prefix_slots import PrefixSlots
from outrider.actors.engine.protocol import Engine, Logits
from outrider.actors.engine.timed_engine import TimedEngine


class StateDrafter(AutoregressiveDrafter):
    """Grows trees by an engine whose rows depend on what the target told of their own session, so that no session begins with another's.

    A tree that is dropped for a better one, because states have come, leaves behind what had been sent of it: that is not sent again.
    """

    def __init__(self, sessions: DraftSessions, engine: Engine, **growth: Any) -> None:
        """
        Args:
            sessions: With room for `num_nodes_of` nodes a tree.
            engine: Runs the net.
            growth: As in `AutoregressiveDrafter`.
        """
        self.timed = TimedEngine(engine)
        slots = PrefixSlots(self.timed, is_shared=False)
        super().__init__(sessions, self.timed, slots=slots, **growth)
        self._sent = SentPaths(sessions.forest)

    @property
    def num_computed(self) -> int | None:
        """Rows of the last pass that the net computed; None: all."""
        return None

    def detach(self, session: DraftSession) -> None:
        """See `Drafter`."""
        self._sent.forget(session.row)
        super().detach(session)

    def follow(self, rows_E: Int64s, tokens_ET: Int64s, counts_E: Int64s) -> Int64s:
        """See `Drafter`."""
        for row in rows_E.tolist() if self._sent else ():
            self._sent.forget(row)
        return super().follow(rows_E, tokens_ET, counts_E)

    def rewrite(self, session: DraftSession, keep: int) -> None:
        """See `Drafter`."""
        self._sent.forget(session.row)
        super().rewrite(session, keep)

    def grow(self, plan: DraftPass, logits: Logits | None) -> Int64s:
        """See `Drafter`."""
        grown = super().grow(plan, logits)
        for row in grown.tolist() if self._sent else ():
            self._sent.recall(row)
        return grown

    def _begin_anew(self, session: DraftSession, keep: int) -> None:
        """Drops a tree for a better one of the same text; its tokens from `keep` on are read again."""
        self._sent.remember(session.row)
        super().rewrite(session, keep)
