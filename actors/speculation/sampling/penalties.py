"""Penalties for tokens that came before: the part of the scores that depends on what has been output.

In a candidate tree each row has an output of its own: the committed tokens, then the path to the row. A row's scores are
bit for bit those that it would have if its path had been committed, since one elementwise function makes both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from outrider.actors.speculation.options import Sampling

MOST_SCORE = 1e37
"""Greatest score after the repetition penalty, unless it was greater before. A tiny penalty would make it infinite, and infinite scores have
no law; those that the model itself gave stay what they are."""


class Penalties:
    """Repetition, presence and frequency penalties of one session, with the counts of its committed tokens."""

    def __init__(self, sampling: Sampling, prompt: Sequence[int], device: torch.device) -> None:
        """Start with an empty output. The prompt matters to the repetition penalty only."""
        self._presence = sampling.presence_penalty
        self._frequency = sampling.frequency_penalty
        self._repetition: Tensor | None = None
        if sampling.repetition_penalty != 1.0:
            self._repetition = torch.tensor(
                sampling.repetition_penalty, dtype=torch.float32, device=device
            )
        self._device = device
        self._counts: Counter[int] = Counter()
        self._slots: dict[int, int] = {}
        self._ids_S = self._ids([])
        self._counts_S = self._floats([])
        self._changed = set(prompt) if self._repetition is not None else set()

    def commit(self, tokens: Sequence[int]) -> None:
        """Count tokens that have become part of the output."""
        self._counts.update(tokens)
        self._changed.update(tokens)

    def apply(self, scores_NV: Tensor, paths_N: Sequence[Sequence[int]]) -> Tensor:
        """Return the scores with penalties for prompt, committed tokens and each row's path.

        All rows are penalised for the committed tokens at once; then the tokens of each row's path are penalised
        again, from their scores before, with the counts that hold for that row.
        """
        self._refresh()
        penalised_NV = scores_NV.clone()
        seen_NS = scores_NV.index_select(1, self._ids_S)
        penalised_NV.index_copy_(1, self._ids_S, self._penalise(seen_NS, self._counts_S))
        on_paths = [
            (row, token_id, self._counts[token_id] + count)
            for row, path in enumerate(paths_N)
            for token_id, count in Counter(path).items()
        ]
        if on_paths:
            rows, ids, counts = zip(*on_paths, strict=True)
            at_P = (self._ids(rows), self._ids(ids))
            penalised_NV[at_P] = self._penalise(scores_NV[at_P], self._floats(counts))
        return penalised_NV

    def _penalise(self, scores: Tensor, counts: Tensor) -> Tensor:
        """Penalise scores of tokens that were seen, `counts` times in the output; elementwise."""
        if self._repetition is not None:
            most = scores.clamp(min=MOST_SCORE)
            scores = torch.where(scores > 0, scores / self._repetition, scores * self._repetition)
            scores = scores.minimum(most)
        # Not of a comparison: a truth times a number has the process's default type.
        presence = counts.clamp(max=1.0) * self._presence
        return scores - (presence + counts * self._frequency)

    def _refresh(self) -> None:
        """Bring the tensors up to date with the tokens counted since; costs as much as there are of these."""
        if not self._changed:
            return
        changed = list(self._changed)
        new = [token_id for token_id in changed if token_id not in self._slots]
        for token_id in new:
            self._slots[token_id] = len(self._slots)
        self._ids_S = torch.cat((self._ids_S, self._ids(new)))
        self._counts_S = torch.cat((self._counts_S, self._counts_S.new_empty(len(new))))
        slots_C = self._ids([self._slots[token_id] for token_id in changed])
        self._counts_S[slots_C] = self._floats([self._counts[token_id] for token_id in changed])
        self._changed.clear()

    def _ids(self, ids: Sequence[int]) -> Tensor:
        return torch.tensor(ids, dtype=torch.long, device=self._device)

    def _floats(self, counts: Sequence[int]) -> Tensor:
        return torch.tensor(counts, dtype=torch.float32, device=self._device)
