"""What a pass decided: of each entry the candidates that were drawn, and the tokens to commit."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from outrider.actors.engine.protocol import Logits
from outrider.actors.speculation.trees.path_keys import Int64s
from outrider.actors.speculation.verify.coupled_draws import Walk
from outrider.actors.target.state.passes import Pass
from outrider.actors.target.state.target_events import Logprob
from outrider.actors.target.state.target_session import TargetSession
from outrider.actors.target.verify.frozen_verdict import FrozenVerdict


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
            nodes_ET=np.full((count, steps), -1, np.int64),
            near_ties_E=np.zeros(count, np.int64),
        )

    def widen(self, steps: int) -> None:
        """Makes room for walks of so many tokens."""
        count, width = self.tokens_ET.shape
        if steps > width:
            more = np.full((count, steps - width), -1, np.int64)
            self.tokens_ET = np.concatenate((self.tokens_ET, np.zeros_like(more)), axis=1)
            self.nodes_ET = np.concatenate((self.nodes_ET, more), axis=1)

    def put(self, entry: int, walk: Walk, near_ties: int, logprobs: list[Logprob]) -> None:
        """Notes one entry's."""
        self.widen(len(walk.tokens))
        self.counts_E[entry] = len(walk.tokens)
        self.tokens_ET[entry, : len(walk.tokens)] = walk.tokens
        self.nodes_ET[entry, : len(walk.path)] = walk.path
        self.near_ties_E[entry] = near_ties
        if logprobs:
            self.logprobs[entry] = logprobs


def walk_frozen(
    pass_: Pass, sessions: dict[int, TargetSession], logits: Logits, walks: Walks | None
) -> Walks:
    """Adds the verdicts on frozen trees, which are tested on the host wherever the model runs.

    Args:
        pass_: What was run.
        sessions: By row.
        logits: What came of it.
        walks: What was drawn for the other sessions; None: nothing.
    """
    if walks is None:
        walks = Walks.empty(len(pass_.rows_E), 1)
    roots = pass_.roots_E() if pass_.frozen else ()
    for entry, ready in pass_.frozen.items():
        if not pass_.draws_E[entry]:
            continue
        start = int(roots[entry])
        stop = start + 1 + int(pass_.starts_E[entry + 1] - pass_.starts_E[entry])
        session = sessions[int(pass_.rows_E[entry])]
        verdict = FrozenVerdict(session, logits.values_RV[start:stop], ready.frozen)
        walks.put(entry, verdict.walk(), verdict.near_ties, verdict.logprobs)
    return walks
