"""From what a denoising step says to the tree that is proposed, for every session; and whether another step is worth its time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from outrider.actors.draft.diffusion.block_tree import DenoisingStep, Place, best_tree
from outrider.actors.draft.diffusion.denoising import ONE_STEP
from outrider.actors.draft.diffusion.diffusion_engine import ALL, LAST, NONE
from outrider.actors.draft.diffusion.diffusion_pass import DiffusionPass
from outrider.actors.draft.diffusion.learned_rates import LearnedRates
from outrider.actors.draft.model.growing import Grower
from outrider.actors.draft.model.growing_drafter import RUN_SHARE
from outrider.actors.draft.model.model_sessions import ModelSessions
from outrider.actors.draft.state.draft_sessions import DraftSessions
from outrider.actors.draft.trees.forest import Int64s
from outrider.actors.draft.trees.sent_paths import SentPaths


@dataclass(slots=True, kw_only=True, eq=False)
class FilledBlock:
    """A block that was filled behind a text."""

    steps: list[DenoisingStep]
    """Those that were run."""

    starts: Sequence[int]
    """Tokens that each step is told, those that are to come included."""

    @property
    def path(self) -> list[tuple[int, float]]:
        """The likeliest tokens that the next step is told, each with its probability."""
        found: list[tuple[int, float]] = []
        for step, end in zip(self.steps, self.starts[1:], strict=False):
            some = step.places[: end - len(step.told)]
            found += [(int(place.tokens[0]), place.estimates[0]) for place in some]
        return found

    @property
    def is_done(self) -> bool:
        """Whether every step was run."""
        return len(self.steps) >= len(self.starts)


class BlockProposer:
    """The blocks of all sessions."""

    def __init__(
        self,
        sessions: DraftSessions,
        models: ModelSessions,
        grower: Grower,
        learned: LearnedRates,
        *,
        max_ahead: int,
        lockstep: bool,
    ) -> None:
        """
        Args:
            sessions: The sessions, with their trees.
            models: What is kept of them beside.
            grower: Scores tokens.
            learned: How good candidates are.
            max_ahead: Nodes of one session that get children, at most.
            lockstep: One tree of the size that the target verifies, for comparison.
        """
        self._sessions, self._models, self._grower = sessions, models, grower
        self._learned = learned
        self._max_ahead, self._lockstep = max_ahead, lockstep
        self._sent = SentPaths(sessions.forest)
        self._filled: dict[int, FilledBlock] = {}

    def take(
        self, plan: DiffusionPass, logits_RV: torch.Tensor, offsets: Int64s, *, step_s: float
    ) -> None:
        """Takes in what a step says of the tokens behind each text, and proposes the trees of it.

        Args:
            plan: The pass.
            logits_RV: See `DiffusionEngine`.
            offsets: As `Logits.offsets`.
            step_s: Seconds of a further step.
        """
        sizes_E = np.diff(offsets)
        rows_R = np.repeat(plan.rows_E, sizes_E)
        told_E = np.where(plan.wanted_E == ALL, plan.counts_E, 0)
        levels_R = np.arange(len(rows_R)) - np.repeat(offsets[:-1], sizes_E)
        depths_R = np.repeat(told_E, sizes_E) + levels_R
        chosen = self._grower.score(rows_R, depths_R, logits_RV, levels_R)
        columns = (chosen.tokens_RW, chosen.estimates_RW, chosen.slopes_RW, levels_R)
        places = [Place(*one) for one in zip(*(one.tolist() for one in columns), strict=True)]
        for entry in plan.fills_E.nonzero()[0].tolist():
            row = int(plan.rows_E[entry])
            some = places[int(offsets[entry]) : int(offsets[entry + 1])]
            if plan.wanted_E[entry] == LAST:
                starts = self._learned.of(int(self._models.scorings_S[row])).best_steps(
                    round_s=float(self._sessions.passes_s_S[row]), step_s=step_s
                )
                self._filled[row] = FilledBlock(steps=[DenoisingStep((), some)], starts=starts)
            else:
                filled = self._filled[row]
                told = tuple(token for token, _ in filled.path)
                filled.steps.append(DenoisingStep(told, some))
            self._propose(row)

    def told(self, row: int) -> list[int]:
        """The likeliest path of a block, as far as its next step is told it."""
        return [token for token, _ in self._filled[row].path]

    def goes_on(self, row: int) -> bool:
        """Whether a block is to be denoised further: its next step is told a path that is worth it, and behind which something may stand."""
        filled = self._filled.get(row)
        if filled is None or filled.is_done:
            return False
        path, ends = filled.path, self._ends(row)
        return (
            float(np.prod([estimate for _, estimate in path])) > self._least(row)
            and len(path) < int(self.deepest(np.array([row]))[0])
            and not any(token in ends for token, _ in path)
        )

    def gain(self, row: int, wanted: int) -> float:
        """Tokens that a pass is expected to add to those of a pass of the target, by what it wants of a session (`DiffusionEngine`)."""
        if wanted == NONE:
            return 0.0
        rates = self._learned.of(int(self._models.scorings_S[row]))
        if wanted == LAST:
            return rates.expected_tokens(ONE_STEP)
        filled = self._filled[row]
        done = len(filled.steps)
        before, after = filled.starts[:done], filled.starts[: done + 1]
        return rates.expected_tokens(after) - rates.expected_tokens(before)

    def drop(self, row: int) -> None:
        """Forgets the block of a text that has changed."""
        self._filled.pop(row, None)
        self._sent.forget(row)

    def deepest(self, rows_E: Int64s) -> Int64s:
        """Greatest depth of a node that the target can still commit and the block holds."""
        left_E: Int64s = self._models.ends_S[rows_E] - self._sessions.lengths_S[rows_E]
        return np.minimum(left_E, self._models.depths_S[rows_E])

    def _propose(self, row: int) -> None:
        """Hangs the best tree of a block in place of what there is."""
        forest, rows = self._sessions.forest, np.array([row])
        tree = best_tree(
            self._filled[row].steps,
            deepest=int(self.deepest(rows)[0]),
            least=self._least(row),
            most=self._most(row),
            ends=self._ends(row),
        )
        self._sent.remember(row)
        forest.clear(rows)
        forest.hang(
            row,
            tokens=tree.tokens,
            parents=tree.parents,
            estimates=tree.estimates,
            slopes=tree.slopes,
            features=[-level for level in tree.levels],
        )
        self._grower.add_roots(rows)
        self._sent.recall(row)

    def _least(self, row: int) -> float:
        """Value from which on a node of a session is worth children: see `AutoregressiveDrafter`."""
        if self._lockstep:
            return 0.0
        return max(RUN_SHARE * float(self._sessions.floors_S[row]), 1.0 / max(self._most(row), 1))

    def _most(self, row: int) -> int:
        """Nodes of a session that get children, at most."""
        if self._lockstep:
            return min(self._sessions.at(row).speculation.max_nodes, self._max_ahead)
        return int(self._sessions.allowed(np.array([row]), self._max_ahead)[0])

    def _ends(self, row: int) -> set[int]:
        """Tokens that end the session's text."""
        return set(self._models.stop_tokens_SK[row].tolist())
