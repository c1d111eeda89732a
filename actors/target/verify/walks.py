"""What a pass decided: of each entry the candidates that were drawn, and the tokens to commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from outrider.actors.engine.protocol import Logits, Moves
from outrider.actors.speculation.trees.path_keys import Int64s
from outrider.actors.speculation.verify.coupled_draws import Walk
from outrider.actors.target.state.passes import Pass
from outrider.actors.target.state.target_events import Logprob


@dataclass(slots=True, kw_only=True, eq=False)
class Walks:
    """One row an entry; entries that draw nothing have none."""

    counts_E: Int64s
    """Tokens to commit: one more than accepted candidates."""

    tokens_ET: Int64s
    """Their ids."""

    nodes_ET: Int64s
    """Accepted candidates, by place among the entry's; one less than tokens."""

    near_ties_E: Int64s
    """Draws whose margin was small."""

    logprobs: dict[int, list[Logprob]] = field(default_factory=dict)
    """By entry, of each token, where they are wanted."""

    @classmethod
    def empty(cls, count: int, steps: int) -> Walks:
        """No entry has decided anything.

        Args:
            count: Entries.
            steps: Tokens of one, at most.
        """
        return cls(
            counts_E=np.zeros(count, np.int64),
            tokens_ET=np.zeros((count, steps), np.int64),
            nodes_ET=np.full((count, steps), -1),
            near_ties_E=np.zeros(count, np.int64),
        )

    def put(self, entry: int, walk: Walk, near_ties: int, logprobs: list[Logprob]) -> None:
        """Notes one entry's, for whose tokens there is room."""
        self.counts_E[entry] = len(walk.tokens)
        self.tokens_ET[entry, : len(walk.tokens)] = walk.tokens
        self.nodes_ET[entry, : len(walk.path)] = walk.path
        self.near_ties_E[entry] = near_ties
        if logprobs:
            self.logprobs[entry] = logprobs

    @classmethod
    def united(cls, count: int, parts: Iterable[Walks | None]) -> Walks:
        """What was decided of different entries, together.

        Args:
            count: Entries.
            parts: Walks over them, of which each has decided others; None: none.
        """
        some = [part for part in parts if part is not None]
        if len(some) == 1:
            return some[0]
        whole = cls.empty(count, max((part.tokens_ET.shape[1] for part in some), default=1))
        for part in some:
            decided, width = part.counts_E.nonzero()[0], part.tokens_ET.shape[1]
            whole.counts_E[decided] = part.counts_E[decided]
            whole.tokens_ET[decided, :width] = part.tokens_ET[decided]
            whole.nodes_ET[decided, :width] = part.nodes_ET[decided]
            whole.near_ties_E[decided] = part.near_ties_E[decided]
            whole.logprobs |= part.logprobs
        return whole


def moves_of(pass_: Pass, walks: Walks, kept_E: Int64s) -> Moves:
    """The rows of a pass whose keys and values stay: the text that was read, and the first `kept_E` accepted candidates of each entry,
    which has at least so many."""
    if not np.count_nonzero(kept_E):
        return Moves.read(pass_.rows_E, pass_.chains_E)
    chains_E1 = pass_.chains_E[:, None]
    steps_P = np.arange(int((pass_.chains_E + kept_E).max()))
    behind_EP = steps_P - chains_E1
    last = walks.nodes_ET.shape[1] - 1
    nodes_EP = np.take_along_axis(walks.nodes_ET, np.clip(behind_EP, 0, last), axis=1)
    paths_EP = np.where(behind_EP < kept_E[:, None], chains_E1 + nodes_EP, -1)
    return Moves(slots_E=pass_.rows_E, paths_EP=np.where(behind_EP < 0, steps_P, paths_EP))


Read = Callable[[], Walks | None]
"""Waits for what was begun, and gives what was decided; None: nothing."""


class Decider(Protocol):
    """Decides one kind of candidates."""

    def start(self, pass_: Pass, logits: Logits) -> Read:
        """Begins to decide the entries of its kind. Sessions are not touched.

        Args:
            pass_: What was run.
            logits: What came of it.
        """
        ...
