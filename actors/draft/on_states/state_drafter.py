"""The growth of trees from nets that read the target's hidden states: that of the autoregressive drafter."""

from __future__ import annotations

from outrider.actors.draft.model.growing_drafter import AutoregressiveDrafter
from outrider.actors.draft.state.draft_sessions import DraftSessions
from outrider.actors.engine.kv.prefix_slots import PrefixSlots
from outrider.actors.engine.protocol import Engine
from outrider.actors.engine.timed_engine import TimedEngine


class StateDrafter(AutoregressiveDrafter):
    """Grows trees by an engine whose rows depend on what the target told of their own session, so that no session begins with another's."""

    def __init__(
        self,
        sessions: DraftSessions,
        engine: Engine,
        *,
        width: int,
        max_ahead: int,
        prefill_chunk: int,
        lockstep: bool = False,
        num_levels: int = 1,
    ) -> None:
        """
        Args:
            sessions: With room for `num_nodes_of` nodes a tree.
            engine: Runs the net.
            width: Children of a node, at most.
            max_ahead: Nodes of one session that are run, at most.
            prefill_chunk: Committed tokens in one pass, at most.
            lockstep: Grow one tree of the size that the target verifies, for comparison.
            num_levels: As in `AutoregressiveDrafter`.
        """
        self.timed = TimedEngine(engine)
        super().__init__(
            sessions,
            self.timed,
            width=width,
            max_ahead=max_ahead,
            prefill_chunk=prefill_chunk,
            lockstep=lockstep,
            slots=PrefixSlots(self.timed, is_shared=False),
            num_levels=num_levels,
        )
