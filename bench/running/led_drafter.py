"""A drafter led along texts that are known: its real core in lock-step, without network or target; the clock is that of a device of fixed speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.actors.draft.draft_core import DraftCore
from outrider.actors.draft.state.draft_events import (
    AttachRefused,
    AttachSession,
    CandidatesSent,
    Detach,
    Ended,
    SessionKey,
    VerdictsReceived,
)
from outrider.actors.draft.state.draft_sessions import DraftSessions
from outrider.actors.draft.state.drafter import Drafter, FeatureReader
from outrider.actors.draft.trees.draft_cost import PassCost
from outrider.actors.exchange.verdicts import Verdicts
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.speculation.trees import base_hash

LINK = 1

PASS_COST = PassCost()
"""What a pass of the drafter's takes here: as drafters believe before they have run one, so that all grow trees in passes of the same kind. How large
their passes are follows from it."""

CREDITS = 1_024
"""Nodes that a drafter may be ahead: more than any tree here has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Candidates below a text, parents first."""

    tokens: Sequence[int]
    parents: Sequence[int]
    """-1: a child of the text."""
    values: Sequence[float]
    """Probability, as the drafter sees it, that the text goes on this way."""

    def best(self, size: int) -> set[int]:
        """The `size` most valuable nodes; of equal ones the ancestor, which comes first."""
        return set(sorted(range(len(self.values)), key=lambda node: -self.values[node])[:size])

    def walk(self, ahead: Sequence[int], kept: set[int]) -> list[int]:
        """The kept nodes that a text goes through."""
        children = {(self.parents[node], self.tokens[node]): node for node in kept}
        path: list[int] = []
        for token in ahead:
            node = children.get((path[-1] if path else -1, token))
            if node is None:
                break
            path.append(node)
        return path


NO_TREE = Tree(tokens=(), parents=(), values=())


class LedDrafter:
    """Leads a drafter that waits for the verdict on every tree."""

    def __init__(self, sessions: DraftSessions, drafter: Drafter, *, max_ahead: int) -> None:
        """
        Args:
            sessions: That the method grows trees of.
            drafter: The method, made for lock-step.
            max_ahead: As `DraftCore`.
        """
        self._core = DraftCore(
            sessions, drafter, max_ahead=max_ahead, bytes_per_token=1e9, lockstep=True
        )
        self._texts: dict[int, tuple[int, int]] = {}
        """Length and hash of each text."""
        self._trees: dict[int, Tree] = {}
        self._epoch = 0
        self._now_s = 0.0
        self.num_drafted = 0
        """Rows that the drafter's model computed."""

    def begin(
        self,
        handle: int,
        tokens: Sequence[int],
        *,
        prompt_length: int,
        sampling: Sampling,
        speculation: Speculation,
        group: int = 0,
    ) -> None:
        """Begins with a text; those of one group are of one request."""
        attach = AttachSession(
            key=SessionKey(LINK, handle),
            tokens=tuple(tokens),
            prompt_length=prompt_length,
            sampling=sampling,
            speculation=speculation,
            group=group,
        )
        self._core.take(attach, 0.0)
        self._texts[handle] = len(tokens), base_hash.extend_all(base_hash.EMPTY, tokens)

    def advance(self, handle: int, tokens: Sequence[int]) -> None:
        """Goes along with the text."""
        length, hash_ = self._texts[handle]
        length, hash_ = length + len(tokens), base_hash.extend_all(hash_, tokens)
        self._texts[handle] = length, hash_
        self._trees.pop(handle, None)
        self._epoch += 1
        one = np.ones(1, np.int64)
        verdicts = Verdicts(
            handles_E=np.array([handle], np.uint64),
            epochs_E=self._epoch * one,
            lengths_E=length * one,
            hashes_E=np.array([hash_], np.uint64),
            credits_E=CREDITS * one,
            seen_E=0 * one,
            starving_E=one > 0,
            starts_E=np.array([0, len(tokens)]),
            tokens_T=np.array(tokens),
            root_starts_E=np.zeros(2, np.int64),
            roots_T=np.zeros(0, np.int64),
        )
        self._core.take(VerdictsReceived(link=LINK, verdicts=verdicts), 0.0)

    def tell(self, handle: int, start: int, states_TLD: NDArray[np.float32]) -> None:
        """Tells states of the target at positions from `start` on."""
        session, drafter = self._core.sessions.find(SessionKey(LINK, handle)), self._core.drafter
        assert session is not None, "it has begun"
        assert isinstance(drafter, FeatureReader), "it asked for states"
        drafter.take_features(session, start, states_TLD)

    def tree(self, handle: int) -> Tree:
        """The whole tree below the text."""
        while (plan := self._core.begin(self._now_s)) is not None:
            engine = self._core.drafter.engine
            batch = plan.batch
            if engine is None or batch is None:
                self._core.finish(plan, None)
                continue
            logits = engine.forward(batch)
            # Engines that read states leave rows out of which nothing is known, or enough.
            computed = getattr(self._core.drafter, "num_computed", None)
            num_rows = batch.num_rows if computed is None else computed
            self.num_drafted += num_rows
            self._now_s += PASS_COST.predict(num_rows)
            self._core.finish(plan, logits)
        for report in self._core.take_reports():
            match report:
                case CandidatesSent():
                    self._keep(report)
                case AttachRefused() | Ended():
                    raise RuntimeError(report.message)
        return self._trees.get(handle, NO_TREE)

    def end(self, handle: int) -> None:
        """Forgets a text."""
        self._core.take(Detach(key=SessionKey(LINK, handle)), 0.0)
        del self._texts[handle]
        self._trees.pop(handle, None)

    def _keep(self, report: CandidatesSent) -> None:
        found = report.candidates
        assert found is not None, "coupled verifiers have no frozen trees"
        for entry, handle in enumerate(found.handles_E.tolist()):
            nodes = slice(*found.starts_E[entry : entry + 2].tolist())
            parents = found.parents_N[nodes].tolist()
            values: list[float] = []
            for parent, estimate in zip(parents, found.estimates_N[nodes].tolist(), strict=True):
                values.append((values[parent] if parent >= 0 else 1.0) * estimate / 255.0)
            self._trees[handle] = Tree(
                tokens=found.tokens_N[nodes].tolist(), parents=parents, values=values
            )
