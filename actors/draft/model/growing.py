"""From the logits of nodes that were run to their children in the forest."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.actors.draft.model.model_sessions import ModelSessions
from outrider.actors.draft.state.draft_sessions import DraftSessions
from outrider.actors.draft.stopping.halting import rate_rows
from outrider.actors.draft.trees.calibration import Rates, Sharpness
from outrider.actors.draft.trees.forest import ROOT, Forest, Int64s
from outrider.actors.draft.trees.restrictions import confine, restrict_
from outrider.actors.draft.trees.scoring import Scorer
from outrider.actors.draft.trees.token_places import Places, ScoredTokens
from outrider.actors.engine.graphs.cuda_graph import recorder_for
from outrider.actors.engine.protocol import Engine, Logits
from outrider.actors.speculation.options import Sampling

LEAST_SENT = 0.5 / 255.0
"""Estimates below this are 0 on the wire (`exchange.candidates`): such children are not kept, the best one of a node excepted."""


class Grower:
    """Adds children to trees."""

    def __init__(
        self,
        sessions: DraftSessions,
        models: ModelSessions,
        engine: Engine,
        *,
        width: int,
        sharpness: Sharpness,
        rates: Rates,
    ) -> None:
        """
        Args:
            sessions: The sessions.
            models: What is kept of them beside.
            engine: The draft model.
            width: Children of a node, at most.
            sharpness: Makes estimates of scores.
            rates: Of the target's own roots, by rank from 1 on.
        """
        self._sessions = sessions
        self._forest: Forest = sessions.forest
        self._models = models
        spec = engine.spec
        self._vocab_size = spec.vocab_size
        recorder = None
        if spec.device.type == "cuda" and spec.is_recorded:
            recorder = recorder_for(spec.device)
        self._scorer = Scorer(
            spec.vocab_size, spec.device, width, len(sessions.sessions), recorder=recorder
        )
        self._sharpness = sharpness
        self._rates = rates

    def forget(self, row: int) -> None:
        """Forgets a session."""
        self._scorer.forget(row)

    @torch.inference_mode()
    def warm_up(self, logits_RV: torch.Tensor) -> None:
        """Scores rows for nobody."""
        num = len(logits_RV)
        places = Places(
            seeds_R=np.zeros(num, np.uint64),
            lengths_R=np.ones(num, np.int64),
            depths_R=np.zeros(num, np.int64),
            inverse_temperatures_R=np.ones(num, np.float32),
            scorings_R=np.ones(num, np.int64),
            sessions_R=np.zeros(num, np.int64),
            restricted={},
        )
        self._scorer.choose(self._scorer.scores(logits_RV, places), np.ones(num))
        self._scorer.forget(0)

    @torch.inference_mode()
    def grow(
        self,
        rows_R: Int64s,
        nodes_R: Int64s,
        logits: Logits,
        levels_R: Int64s | None = None,
    ) -> float:
        """Adds the children of nodes that were run.

        Args:
            rows_R: Their sessions, those of a session one after another.
            nodes_R: The nodes, or `ROOT`.
            logits: At them. May be written into.
            levels_R: How sure the model is of each row, as `Sharpness` counts; None: it does not say.

        Returns:
            What the children are worth over their bytes and rows at the target.
        """
        depths_R = self._forest.depths_SM.take(self._forest.places(rows_R, nodes_R))
        if levels_R is None:
            levels_R = np.zeros(len(rows_R), np.int64)
        chosen = self.score(
            rows_R, depths_R.astype(np.int64), logits.values_RV, levels_R, nodes_R=nodes_R
        )
        # A device makes the choice itself, as part of its pass.
        logits.wait()
        worth = self._add(rows_R, nodes_R, levels_R, chosen)
        if self._sessions.roots:
            self.add_roots(rows_R[nodes_R == ROOT])
        return worth

    @torch.inference_mode()
    def score(
        self,
        rows_R: Int64s,
        depths_R: Int64s,
        logits_RV: torch.Tensor,
        levels_R: Int64s,
        *,
        nodes_R: Int64s | None = None,
    ) -> ScoredTokens:
        """The tokens that are likely at some depths below texts.

        Args:
            rows_R: Sessions, those of one one after another.
            depths_R: Nodes between the text and the token.
            logits_RV: Of the token. May be written into.
            levels_R: How sure the model is of each row, as `Sharpness` counts.
            nodes_R: The node that each follows, which length policies rate; None: there are no such policies.
        """
        models = self._models
        restricted: dict[int, Sampling] = {}
        if models.restricted:
            options = map(models.restricted.get, rows_R.tolist())
            restricted = {index: one for index, one in enumerate(options) if one is not None}
        places = Places(
            seeds_R=models.seeds_S[rows_R],
            lengths_R=self._sessions.lengths_S[rows_R],
            depths_R=depths_R,
            inverse_temperatures_R=models.inverse_temperatures_S[rows_R],
            scorings_R=models.scorings_S[rows_R],
            sessions_R=rows_R,
            restricted=restricted,
        )
        sharpness_R = self._sharpness.of(places.scorings_R, levels_R)
        is_rated = bool(models.halting) and nodes_R is not None
        if not (is_rated or models.narrow or restricted):
            return self._scorer.likely(logits_RV, places, sharpness_R)
        scores_RV = self._scorer.scores(logits_RV, places)
        if models.halting and nodes_R is not None:
            rate_rows(models.halting, self._forest, rows_R, nodes_R, scores_RV)
        if models.narrow:
            confine(scores_RV, models.vocab_sizes_S[rows_R])
        if restricted:
            if models.narrow:
                confine(logits_RV, models.vocab_sizes_S[rows_R])
            restrict_(scores_RV, logits_RV, places)
        return self._scorer.choose(scores_RV, sharpness_R)

    def add_roots(self, rows_E: Int64s) -> None:
        """Adds the target's own candidates below the text where the drafter has not had the same idea.

        The target has them already, so they count as sent; what grows below them carries them along.
        """
        roots = self._sessions.roots
        for row in rows_E.tolist() if roots else ():
            of_row = self._forest.parents_SM[row] == ROOT
            known = set(self._forest.tokens_SM[row][of_row].tolist())
            ranked: dict[int, int] = {}
            for rank, token in enumerate(roots.get(row, ()), start=1):
                if token < self._vocab_size and token not in known:
                    ranked.setdefault(token, rank)
            if not ranked:
                continue
            ranks_K = np.array(list(ranked.values()))
            tokens_K = np.array(list(ranked))
            rows_K = np.full(len(ranked), row)
            columns_K = self._forest.add(
                rows_K=rows_K,
                parents_K=np.full(len(ranked), ROOT),
                tokens_K=tokens_K,
                estimates_K=self._rates.estimates[ranks_K].astype(np.float32),
                features_K=ranks_K,
                ends_K=self._ends(rows_K, tokens_K),
            )
            # As if in the first message, which the target has taken in before any that it answers.
            self._forest.sent_SM[rows_K, columns_K] = 1

    def _add(
        self, rows_R: Int64s, nodes_R: Int64s, levels_R: Int64s, chosen: ScoredTokens
    ) -> float:
        kept_RW = chosen.estimates_RW >= LEAST_SENT
        np.greater(chosen.estimates_RW[:, 0], 0.0, out=kept_RW[:, 0])
        parents_K = kept_RW.nonzero()[0]
        rows_K = rows_R[parents_K]
        tokens_K = chosen.tokens_RW[kept_RW]
        columns_K = self._forest.add(
            rows_K=rows_K,
            parents_K=nodes_R[parents_K],
            tokens_K=tokens_K,
            estimates_K=chosen.estimates_RW[kept_RW],
            slopes_K=chosen.slopes_RW[kept_RW],
            features_K=-levels_R[parents_K],
            ends_K=self._ends(rows_K, tokens_K),
        )
        values_K = self._forest.values_SM.take(self._forest.places(rows_K, columns_K))
        return float(np.maximum(values_K - self._sessions.floors_S[rows_K], 0.0).sum())

    def _ends(self, rows_K: Int64s, tokens_K: Int64s) -> NDArray[np.bool_] | None:
        """Whether the text ends with these tokens; None: no text ends with a token."""
        if not self._models.stop_tokens_SK.shape[1]:
            return None
        ends_K: NDArray[np.bool_] = (self._models.stop_tokens_SK[rows_K] == tokens_K[:, None]).any(
            axis=1
        )
        return ends_K
