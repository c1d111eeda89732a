"""How long a tree grows while the target waits for it. Pure.

A target that has nothing to verify below its text says how long it waits for more (`Verdict.wait_s`). Each further draft
pass adds tokens to its next pass and makes it wait longer. The drafter knows best what a pass may add, so it decides: the tree
goes out, in one message, when the next draft pass promises less than the target commits in the time that it takes. Levels sent one
by one would arrive no sooner, and each message slows the drafter and the target.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from outrider.actors.draft.tree import NOT_RUN, DraftTree

MEMORY = 0.8
"""Weight of the past in the mean of committed tokens: about five rounds."""

CHILD_VALUE = 0.75
"""What the best child of a node is worth, as a part of the node. Its children in all would be worth little more: the second best
adds less than its row in the target's pass takes."""

ROW_SHARE = 0.03
"""Part of a target pass that one more row takes: a child that is worth less than the target commits in that time adds nothing."""

MOST_LEAVES = 12
"""Leaves that count, at most: no draft pass runs many more of one session."""


@dataclass(slots=True)
class Ripening:
    """What a session's target commits, and how fast."""

    tokens: float = 2.5
    """Mean of a target pass."""
    pass_s: float = 0.0
    """Seconds of the last target pass."""

    def observe(self, tokens: int, pass_s: float) -> None:
        """Takes in what a verdict says of a pass."""
        self.tokens = MEMORY * self.tokens + (1.0 - MEMORY) * tokens
        self.pass_s = pass_s

    def is_ripe(self, tree: DraftTree, draft_pass_s: float) -> bool:
        """Whether the target had better have the tree now than wait for one more draft pass.

        Args:
            tree: Below the text that the target waits at.
            draft_pass_s: Seconds of a draft pass.
        """
        if not tree.is_expanded:
            return False
        row = ROW_SHARE * self.tokens
        leaves = heapq.nlargest(
            MOST_LEAVES,
            (
                value
                for value, scratch in zip(tree.values, tree.scratch, strict=True)
                if scratch == NOT_RUN
            ),
        )
        gain = sum(max(CHILD_VALUE * value - row, 0.0) for value in leaves)
        return gain * self.pass_s <= self.tokens * draft_pass_s
