"""Speculative decoding in one process: the algorithm without actors, streams and scheduling.

`decode` is plain decoding, or speculative decoding with any drafter and verifier. Target and drafter take turns; what decides about tokens
is what the service decides with. So the text is that of plain decoding under coupled sampling (Daliri et al. 2024, arXiv 2408.07978), and
of the same law with a verifier of frozen trees (Leviathan et al. 2023, arXiv 2211.17192, and successors).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

import numpy as np
import torch

from outrider.actors.engine.protocol import Engine, Moves, Rows
from outrider.actors.frozen.law_frame import FrozenTree
from outrider.actors.frozen.sparse_rows import DenseRows
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.noise.gumbel import GumbelNoise
from outrider.actors.speculation.noise.uniforms import uniforms
from outrider.actors.speculation.options import Sampling
from outrider.actors.speculation.sampling.draw import draw
from outrider.actors.speculation.sampling.random_acts import (
    Float64s,
    UniformDecisions,
    uniforms_needed,
)
from outrider.actors.speculation.sampling.transforms import SamplingTransform
from outrider.actors.speculation.trees.draft_tree import DraftTree
from outrider.actors.speculation.verify.coupled_draws import Walk, walk

Propose = Callable[[Sequence[int]], FrozenTree]
"""A drafter: from a text to candidates below it. Only verifiers of frozen trees read the rows."""

NOTHING = FrozenTree(tree=DraftTree(tokens_N=(), parents_N=()), rows=())
"""No candidates: a pass of plain decoding."""


class Text:
    """A text in a slot of an engine: what the next token is drawn from, below it and below each candidate. Gives the slot back as a context."""

    def __init__(self, engine: Engine, prompt: Sequence[int], sampling: Sampling) -> None:
        """Takes a slot. Raises ValueError for options that cannot be followed, NoFreeSlot if there is none."""
        if not prompt:
            raise ValueError("prompt is empty; give at least one token id")
        spec, self.sampling, self.tokens = engine.spec, sampling, list(prompt)
        self.transform = SamplingTransform(
            sampling,
            vocab_size=spec.vocab_size,
            prompt=prompt,
            eos_token_ids=spec.eos_token_ids,
            device=spec.device,
        )
        self._engine, self._slot, self._num_prompt = engine, engine.acquire(), len(prompt)
        self._cached, self._noise = 0, GumbelNoise(spec.vocab_size, spec.device)

    def scores(self, tree: DraftTree) -> torch.Tensor:
        """Scores whose softmax is drawn from: row 0 below the text, row 1 + n below node n. Shape (1 + N, V)."""
        while (lag := len(self.tokens) - self._cached) > 1:
            chunk = self.tokens[self._cached :][: min(lag - 1, self._engine.max_scratch)]
            self._run(chunk, range(-1, len(chunk) - 1))
            self.keep(range(len(chunk)))
        parents = (-1, *(parent + 1 for parent in tree.parents_N))
        logits_RV = self._run((self.tokens[-1], *tree.tokens_N), parents)
        paths = [tree.path(node) for node in range(-1, tree.num_nodes)]
        num_output = [len(self.tokens) - self._num_prompt + len(path) for path in paths]
        return self.transform.apply(logits_RV, paths, num_output)

    def noise(self, depth: int) -> torch.Tensor | None:
        """What a draw adds to scores `depth` tokens below the text; None at temperature 0. Shape (1, V)."""
        place = len(self.tokens) + depth
        return self._noise.rows(self.sampling.seed, place, 1) if self.transform.uses_noise else None

    def keep(self, path: Sequence[int]) -> None:
        """Keeps these rows of the last pass, a way down from the text, and forgets the others."""
        self._engine.rebase(Moves.one(self._slot, path))
        self._cached += len(path)

    def append(self, tokens: Sequence[int]) -> None:
        """Lengthens the text."""
        self.tokens += tokens
        self.transform.commit(tokens)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.release(self._slot)

    def _run(self, tokens: Sequence[int], parents: Sequence[int]) -> torch.Tensor:
        rows = Rows(slot=self._slot, tokens=tokens, parents=parents)
        return self._engine.forward([rows]).values_RV


def decode(
    target: Engine,
    prompt: Sequence[int],
    sampling: Sampling,
    propose: Propose = lambda text: NOTHING,
    verifier: str = "coupled",
) -> list[int]:
    """The tokens of a request: `max_tokens`, or fewer of which the last is a stop token.

    Args:
        target: The target model; a slot must be free, and text and trees fit (else `SlotOverflow`).
        prompt: Token ids, at least one (else ValueError, as for options that cannot be followed).
        sampling: The request's options.
        propose: The drafter.
        verifier: What its candidates are tested by; `VERIFIERS` says which trees it takes.
    """
    stops = {*sampling.stop_token_ids, *(() if sampling.ignore_eos else target.spec.eos_token_ids)}
    left, is_over = sampling.max_tokens, False
    with Text(target, prompt, sampling) as text:
        while left > 0 and not is_over:
            frozen = propose(text.tokens)
            found = verify(text, frozen, text.scores(frozen.tree), verifier)
            ends = [place for place, token in enumerate(found.tokens) if token in stops][:1]
            count = min([left, len(found.tokens), *(place + 1 for place in ends)])
            text.keep((0, *(1 + node for node in found.path[: count - 1])))
            text.append(found.tokens[:count])
            left, is_over = left - count, bool(ends) and ends[0] < count
    return text.tokens[len(prompt) :]


def verify(text: Text, frozen: FrozenTree, scores_RV: torch.Tensor, verifier: str) -> Walk:
    """One round: the nodes that are accepted, and the tokens to commit, one more than those."""
    tree, method = frozen.tree, VERIFIERS[verifier]
    if not method.needs_frozen_tree or not tree.num_nodes:
        # A candidate counts if it is what the target draws; the draw is the same whatever was proposed.
        def drawn(node: int) -> int:
            noise_1V = text.noise(len(tree.path(node)))
            return int(draw(scores_RV[node + 1 : node + 2], noise_1V)[0])

        return walk(tree.tokens_N, tree.parents_N, drawn, 1 + tree.num_nodes)
    own = uniforms(text.sampling.seed, len(text.tokens), uniforms_needed(tree.num_nodes))
    accepted = method.verify(
        tree=tree,
        target_probs_NV=probs_of(text, scores_RV),
        draft_probs_RV=DenseRows(frozen.rows, scores_RV.shape[1]),
        decisions=UniformDecisions(own),
    )
    return Walk(path=accepted.path, tokens=accepted.tokens)


def probs_of(text: Text, scores_NV: torch.Tensor) -> Float64s:
    """The laws of draws, float64 (N, V); at temperature 0 all of it at the greatest score."""
    if not text.transform.uses_noise:
        return np.asarray(np.eye(scores_NV.shape[1])[draw(scores_NV, None).cpu().numpy()])
    return np.asarray(torch.softmax(scores_NV.double(), dim=-1).cpu())
