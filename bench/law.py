"""What the drafter would have foreseen of a text, found by replay: no clock, no network, nobody waits.

The real drafter is led along texts that the target has decoded. That tells the acceptance law of this pair, this text and
this way of sampling, free of everything that a run adds: late candidates, stale ones, small budgets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from outrider.actors.draft.calibration import Scoring
from outrider.actors.draft.candidates import CandidateChooser, scoring_of
from outrider.actors.draft.events import Attach, SessionKey
from outrider.actors.draft.server import load_method
from outrider.actors.draft.session import DraftSession
from outrider.actors.draft.settings import DraftSettings
from outrider.actors.draft.tree import TreeNews
from outrider.actors.engine.load import load_engine
from outrider.actors.engine.protocol import Engine, Rows
from outrider.actors.engine.settings import EngineSettings
from outrider.actors.speculation.options import Sampling, Speculation, Verifier

SIZES = (1, 2, 4, 8, 16)
"""Tree sizes whose mean tokens a pass are told."""

MAX_STEPS = 10_000
"""Draft passes for one tree, at most; a tree has no more levels than tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """One decoded sequence."""

    prompt: Sequence[int]
    output: Sequence[int]
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What the drafter would have foreseen."""

    hits: tuple[bool, ...]
    """For each output token whether it is among the children that the drafter gives to the text before it."""

    tokens_per_pass: dict[int, float]
    """Mean tokens of a pass over the best tree of so many nodes, the target's own token included."""


def replay(
    draft: str,
    texts: Sequence[Text],
    *,
    temperature: float,
    max_nodes: int = 16,
    max_depth: int = 8,
    max_context: int = 512,
    width: int = 4,
) -> Replay:
    """Leads the drafter along texts.

    Args:
        draft: The draft model.
        texts: What the target has decoded.
        temperature: As it was decoded.
        max_nodes: Of a tree.
        max_depth: Of a tree.
        max_context: Longest sequence.
        width: Children of a node, at most.
    """
    torch.set_num_threads(1)
    settings = EngineSettings(
        model=draft, num_slots=1, max_context=max_context, max_scratch=320, num_threads=1
    )
    engine = load_engine(settings)
    chooser = CandidateChooser(engine.spec.vocab_size, engine.spec.device, width)
    hits: list[bool] = []
    for text in texts:
        sampling = Sampling(seed=text.seed, max_tokens=len(text.output), temperature=temperature)
        hits.extend(foreseen(engine, chooser, text, sampling))
    drafter = DraftSettings(
        name="replay", incarnation=1, engine=settings, width=width, lockstep=True
    )
    speculation = Speculation(max_nodes=max_nodes, max_depth=max_depth)
    return Replay(
        hits=tuple(hits),
        tokens_per_pass=_tokens_per_pass(drafter, texts, temperature, speculation),
    )


def foreseen(
    engine: Engine, chooser: CandidateChooser, text: Text, sampling: Sampling
) -> list[bool]:
    """For each output token whether it is among the children that the drafter gives to the text before it."""
    tokens = [*text.prompt, *text.output]
    slot = engine.acquire()
    hits: list[bool] = []
    scoring = scoring_of(sampling, Verifier.COUPLED)
    noise = chooser.noise_of(sampling.seed) if scoring is Scoring.COUPLED else None
    try:
        for start in range(0, len(tokens) - 1, engine.max_scratch):
            rows = tokens[start : min(start + engine.max_scratch, len(tokens) - 1)]
            logits = engine.forward(
                [Rows(slot=slot, tokens=rows, parents=range(-1, len(rows) - 1))]
            )
            engine.rebase(slot, range(len(rows)))
            positions = range(start + 1, start + 1 + len(rows))
            chosen = chooser.choose(
                logits.values_RV,
                [sampling] * len(rows),
                [scoring] * len(rows),
                positions,
                noise.row_range(positions[0], positions[-1] + 1) if noise is not None else None,
            )
            hits.extend(
                any(candidate.token == tokens[position] for candidate in candidates)
                for position, candidates in zip(positions, chosen, strict=True)
                if position >= len(text.prompt)
            )
    finally:
        engine.release(slot)
    return hits


def _tokens_per_pass(
    settings: DraftSettings, texts: Sequence[Text], temperature: float, speculation: Speculation
) -> dict[int, float]:
    """Mean tokens of a pass over the best trees, each grown in peace below where the last one ended."""
    drafter = load_method(settings).drafter
    sizes = [size for size in SIZES if size <= speculation.max_nodes]
    committed = dict.fromkeys(sizes, 0)
    num_trees = 0
    for number, text in enumerate(texts):
        session = DraftSession(
            Attach(
                key=SessionKey(1, number),
                tokens=(*text.prompt, text.output[0]),
                prompt_length=len(text.prompt),
                sampling=Sampling(
                    seed=text.seed, max_tokens=len(text.output), temperature=temperature
                ),
                speculation=speculation,
            )
        )
        drafter.attach(session)
        place = 1
        # The last tokens are left out: there the length limits the tree, which says nothing of the drafter.
        while place + speculation.max_depth < len(text.output):
            for _ in range(MAX_STEPS):
                if drafter.is_complete(session) or not drafter.draft([session]).worked:
                    break
            news = session.take_news(speculation.max_nodes)
            ahead = text.output[place:]
            num_trees += 1
            accepted = 0
            for size in sizes:
                accepted = walk(news.tree, ahead, size) if news is not None else 0
                committed[size] += accepted + 1
            drafter.extend(session, ahead[: accepted + 1])
            session.unsend()
            place += accepted + 1
        drafter.detach(session)
    return {size: total / max(num_trees, 1) for size, total in committed.items()}


def walk(tree: TreeNews, ahead: Sequence[int], size: int) -> int:
    """How many tokens of what came lie in the tree's `size` most valuable nodes, one below the other."""
    values: list[float] = []
    for parent, estimate in zip(tree.parents, tree.estimates, strict=True):
        values.append((values[parent - 1] if parent else 1.0) * estimate / 255.0)
    # Stable: of equal values the ancestor, which comes first, is taken first.
    best = set(sorted(range(len(values)), key=lambda node: -values[node])[:size])
    children = {
        (parent, token): node
        for node, (parent, token) in enumerate(zip(tree.parents, tree.tokens, strict=True))
        if node in best
    }
    place = 0
    for depth, token in enumerate(ahead):
        node = children.get((place, token))
        if node is None:
            return depth
        place = node + 1
    return len(ahead)
