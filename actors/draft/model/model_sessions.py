"""What a drafter with a model keeps about its sessions, as parallel arrays by their rows."""

from __future__ import annotations

import numpy as np

from outrider.actors.draft.model.fitting import stop_tokens
from outrider.actors.draft.state.draft_sessions import DraftSession
from outrider.actors.draft.stopping.halting import Halting
from outrider.actors.draft.stopping.lengths import LengthPolicy
from outrider.actors.draft.trees.calibration import scoring_of
from outrider.actors.draft.trees.forest import Forest, Int64s
from outrider.actors.draft.trees.restrictions import is_restricted
from outrider.actors.engine.protocol import ModelSpec
from outrider.actors.speculation.options import Sampling


class ModelSessions:
    """Sessions that grow trees with a model."""

    def __init__(self, num_sessions: int, spec: ModelSpec) -> None:
        """
        Args:
            num_sessions: Rows.
            spec: Of the draft model.
        """
        self._spec = spec
        self.slots_S = np.zeros(num_sessions, np.int64)
        self.cached_S = np.zeros(num_sessions, np.int64)
        """Rows that the engine has cached."""
        self.is_expanded_S = np.zeros(num_sessions, np.bool_)
        """The root is run."""
        self.depths_S = np.zeros(num_sessions, np.int64)
        """Depth of a tree, at most."""
        self.ends_S = np.zeros(num_sessions, np.int64)
        """Length at which the text is over, or the model's context full."""
        self.scorings_S = np.zeros(num_sessions, np.int64)
        self.inverse_temperatures_S = np.ones(num_sessions, np.float32)
        self.seeds_S = np.zeros(num_sessions, np.uint64)
        self.vocab_sizes_S = np.zeros(num_sessions, np.int64)
        self.stop_tokens_SK = np.full((num_sessions, 0), -1, np.int64)
        """Tokens that end the text, filled up with -1."""
        self.restricted: dict[int, Sampling] = {}
        """Options of rows where more than the temperature stands between logits and scores."""
        self.narrow: set[int] = set()
        """Rows whose targets have fewer token ids than the model."""
        self.halting: dict[int, Halting] = {}
        """Where to stop, in rows whose request's policy stops anywhere."""

    def add(
        self, session: DraftSession, *, slot: int, depth: int, policy: LengthPolicy | None
    ) -> None:
        """Takes a session in."""
        row, sampling = session.row, session.sampling
        self.slots_S[row] = slot
        self.is_expanded_S[row] = False
        self.depths_S[row] = depth
        self.ends_S[row] = min(session.final_length, self._spec.max_context)
        self.scorings_S[row] = scoring_of(sampling, session.speculation.verifier)
        self.inverse_temperatures_S[row] = sampling.inverse_temperature
        self.seeds_S[row] = sampling.seed
        self.vocab_sizes_S[row] = session.vocab_size
        stops = sorted(stop_tokens(sampling, self._spec))
        missing = len(stops) - self.stop_tokens_SK.shape[1]
        if missing > 0:
            more = np.full((len(self.slots_S), missing), -1, np.int64)
            self.stop_tokens_SK = np.concatenate((self.stop_tokens_SK, more), axis=1)
        self.stop_tokens_SK[row] = -1
        self.stop_tokens_SK[row, : len(stops)] = stops
        if is_restricted(sampling):
            self.restricted[row] = sampling
        if session.vocab_size < self._spec.vocab_size:
            self.narrow.add(row)
        if policy is not None:
            self.halting[row] = Halting(policy)

    def remove(self, row: int) -> None:
        """Forgets a session."""
        self.is_expanded_S[row] = False
        self.restricted.pop(row, None)
        self.narrow.discard(row)
        self.halting.pop(row, None)

    def goes_on(self, forest: Forest, rows_K: Int64s, nodes_K: Int64s) -> list[bool]:
        """Whether the length policies let these nodes be run."""
        parents_K = forest.scratch_SM[rows_K, forest.parents_SM[rows_K, nodes_K]]
        policies = [self.halting.get(row) for row in rows_K.tolist()]
        return [
            policy is None or policy.goes_on(parent)
            for policy, parent in zip(policies, parents_K.tolist(), strict=True)
        ]
