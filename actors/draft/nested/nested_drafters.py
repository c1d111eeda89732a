"""The two ways of drafting with a model, where the model has exits: each session is told how deep it may go.

Trees that grow are told again after each verdict. A session with frozen trees is told once, when it is attached: what is learned later depends, by the times
of passes, on candidates that were drawn and not yet tested, and a law must not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from outrider.actors.draft.frozen.frozen_drafter import SampledDrafter
from outrider.actors.draft.model.growing_drafter import AutoregressiveDrafter
from outrider.actors.draft.model.model_pass import ModelPass
from outrider.actors.draft.nested.exit_choice import ExitChoice
from outrider.actors.draft.state.draft_sessions import DraftSession, DraftSessions
from outrider.actors.draft.state.drafter import DraftPass
from outrider.actors.draft.trees.forest import Int64s, TreeWalk
from outrider.actors.engine.nested.nested_engine import NestedEngine
from outrider.actors.engine.protocol import Engine

WORTH_EXPLORING = 64
"""Tokens that the deeper layers have missed of a text, at most, where they are run only to learn how good they are."""


class ExitControl:
    """Sets the deepest exit of sessions."""

    def __init__(self, engine: NestedEngine, *, fixed: int | None, is_adaptive: bool) -> None:
        """
        Args:
            engine: The draft model.
            fixed: Index of the exit that all rows use; None: they leave by confidence.
            is_adaptive: Sessions may go as deep as is worth it for their target, else as deep as the model.
        """
        self.engine = engine
        self.choice = ExitChoice(len(engine.exits))
        self._last = len(engine.exits) - 1 if fixed is None else fixed
        self._is_adaptive = is_adaptive and fixed is None
        self._left_X = np.zeros(len(engine.exits), np.int64)
        """Rows that left at each exit."""
        self._deepest: dict[int, tuple[float, int]] = {}
        """By link: seconds of the target's last pass, and index of the exit that its sessions were last allowed."""

    @property
    def note(self) -> str:
        """Which exits are used, for people; empty before the first pass. From any thread."""
        left_X, layers = self._left_X.copy(), self.engine.exits
        if not left_X.sum():
            return ""
        parts = [
            f"{share:.0%} after {count}"
            for share, count in zip(left_X / left_X.sum(), layers, strict=True)
        ]
        told = f"tokens leave after so many of its layers: {', '.join(parts)}"
        allowed = sorted(set(self._deepest.copy().values()))
        if self._is_adaptive and allowed:
            deepest = ", ".join(
                f"{layers[exit_]} where a pass takes {1e3 * pass_s:.1f} ms"
                for pass_s, exit_ in allowed
            )
            told += f"; at most {deepest}"
        return told

    def left(self, exits_R: Int64s) -> None:
        """Takes in at which exits rows left."""
        self._left_X += np.bincount(exits_R, minlength=len(self._left_X))

    def begin(self, sessions: DraftSessions, session: DraftSession, slot: int) -> None:
        """A session was attached."""
        row = session.row
        deepest = self._last
        if self._is_adaptive:
            links = set(sessions.links_S[sessions.is_attached_S].tolist())
            self.choice.keep_only(links)
            for link in self._deepest.keys() - links:
                del self._deepest[link]
            deepest = self.choice.best(
                session.key.link,
                pass_s=float(sessions.passes_s_S[row]),
                round_trip_s=float(sessions.round_trips_s_S[row]),
            )
        self.engine.limit(slot, deepest)

    def go_on(self, sessions: DraftSessions, row: int, slot: int) -> None:
        """A session has a verdict."""
        if not self._is_adaptive:
            return
        link, pass_s = int(sessions.links_S[row]), float(sessions.passes_s_S[row])
        deepest, is_to_learn = self.choice.after_verdict(
            link, pass_s=pass_s, round_trip_s=float(sessions.round_trips_s_S[row])
        )
        if not is_to_learn:
            self._deepest[link] = pass_s, deepest
        if not is_to_learn or self.engine.missing(slot, deepest) <= WORTH_EXPLORING:
            self.engine.limit(slot, deepest)


class NestedDrafter(AutoregressiveDrafter):
    """Grows trees; a node's children are its exit's, and each exit has a sharpness of its own."""

    def __init__(
        self, sessions: DraftSessions, engine: Engine, *, control: ExitControl, **growth: Any
    ) -> None:
        """
        Args:
            sessions: As `AutoregressiveDrafter`.
            engine: Its passes are those of the control's engine.
            control: Says how deep.
            growth: As `AutoregressiveDrafter`.
        """
        super().__init__(sessions, engine, num_levels=len(control.engine.exits), **growth)
        self._control = control

    @property
    def note(self) -> str:
        """See `Noted`."""
        return self._control.note

    def attach(self, session: DraftSession) -> None:
        """See `Drafter`."""
        super().attach(session)
        self._control.begin(self._sessions, session, int(self.models.slots_S[session.row]))

    def follow(self, rows_E: Int64s, tokens_ET: Int64s, counts_E: Int64s) -> Int64s:
        """See `Drafter`."""
        reached_E = super().follow(rows_E, tokens_ET, counts_E)
        for row, slot in zip(rows_E.tolist(), self.models.slots_S[rows_E].tolist(), strict=True):
            self._control.go_on(self._sessions, row, slot)
        return reached_E

    def took(self, plan: DraftPass, seconds: float) -> None:
        """See `Drafter`."""
        super().took(plan, seconds)
        assert isinstance(plan, ModelPass), "it is this method's own"
        # A pass that reads texts says nothing of a level.
        if not plan.num_reading:
            engine = self._control.engine
            slots = self.models.slots_S[plan.rows_E].tolist()
            deepest = max(map(engine.deepest, slots))
            self._control.choice.took(seconds, engine.seconds, deepest)
            self._control.left(engine.exits_R)

    def _levels(self) -> Int64s:
        return self._control.engine.exits_R

    def _learn(self, rows_E: Int64s, walk: TreeWalk) -> None:
        super()._learn(rows_E, walk)
        # A draw is a try if its parent had candidates of the model; roots of the target's own do not count.
        scored = self._forest.features_SM[rows_E[walk.entries_K], walk.nodes_K] <= 0
        families_K = walk.entries_K * walk.path_ET.shape[1] + walk.steps_K
        tried = np.unique(families_K[scored])
        hit = np.unique(families_K[scored & walk.hits_K])
        tries_E = np.bincount(tried // walk.path_ET.shape[1], minlength=len(rows_E))
        hits_E = np.bincount(hit // walk.path_ET.shape[1], minlength=len(rows_E))
        for entry in tries_E.nonzero()[0].tolist():
            row = int(rows_E[entry])
            exit_ = self._control.engine.deepest(int(self.models.slots_S[row]))
            link = int(self._sessions.links_S[row])
            self._control.choice.learn(link, exit_, int(hits_E[entry]), int(tries_E[entry]))


class NestedSampledDrafter(SampledDrafter):
    """Draws frozen trees, each law that of its node's exit."""

    def __init__(
        self, sessions: DraftSessions, engine: Engine, *, control: ExitControl, **drawing: Any
    ) -> None:
        """As `NestedDrafter`."""
        super().__init__(sessions, engine, **drawing)
        self._control = control

    def attach(self, session: DraftSession) -> None:
        """See `Drafter`."""
        super().attach(session)
        self._control.begin(self._sessions, session, self._states[session].slot)
