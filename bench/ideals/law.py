"""What the drafter would have foreseen of a text, found by replay: no clock, no network, nobody waits.

The real drafter is led along texts that the target has decoded. That tells the acceptance law of this pair, this text and
this way of sampling, free of everything that a run adds: late candidates, stale ones, small budgets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from bench.running.led_drafter import LedDrafter
from outrider.actors.draft.service.draft_server import load_method
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.cluster.simulate.simulate_command import quiet

SIZES = (1, 2, 4, 8, 16)
"""Tree sizes whose mean tokens a pass are told."""

MAX_AHEAD = 128
"""Nodes that a tree may have, as in the service."""


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
    settings = DraftSettings(
        name="replay",
        incarnation=1,
        engine=EngineSettings(
            model=draft, num_slots=1, max_context=max_context, max_scratch=320, num_threads=1
        ),
        width=width,
        lockstep=True,
        max_ahead=MAX_AHEAD,
    )
    method = load_method(settings)
    drafter = LedDrafter(method.sessions, method.drafter, max_ahead=MAX_AHEAD)
    children = Speculation(max_nodes=width, max_depth=1)
    trees = Speculation(max_nodes=max_nodes, max_depth=max_depth)
    hits: list[bool] = []
    with quiet():
        for text in texts:
            hits += foreseen(drafter, text, temperature, children)
        tokens_per_pass = _tokens_per_pass(drafter, texts, temperature, trees)
    return Replay(hits=tuple(hits), tokens_per_pass=tokens_per_pass)


def foreseen(
    drafter: LedDrafter, text: Text, temperature: float, children: Speculation
) -> list[bool]:
    """For each output token whether it is among the children that the drafter gives to the text before it."""
    _begin(drafter, text, temperature, children, known=0)
    hits: list[bool] = []
    for token in text.output:
        hits.append(token in drafter.tree(0).tokens)
        drafter.advance(0, [token])
    drafter.end(0)
    return hits


def _begin(
    drafter: LedDrafter, text: Text, temperature: float, speculation: Speculation, *, known: int
) -> None:
    """Begins with a prompt and some of what came after it."""
    drafter.begin(
        0,
        (*text.prompt, *text.output[:known]),
        prompt_length=len(text.prompt),
        # One more than there are: below the last one nothing would be drafted.
        sampling=Sampling(
            seed=text.seed,
            max_tokens=len(text.output) + 1,
            temperature=temperature,
            ignore_eos=True,
        ),
        speculation=speculation,
    )


def _tokens_per_pass(
    drafter: LedDrafter, texts: Sequence[Text], temperature: float, speculation: Speculation
) -> dict[int, float]:
    """Mean tokens of a pass over the best trees, each grown in peace below where the last one ended."""
    sizes = [size for size in SIZES if size <= speculation.max_nodes]
    committed = dict.fromkeys(sizes, 0)
    num_trees = 0
    for text in texts:
        _begin(drafter, text, temperature, speculation, known=1)
        place = 1
        # The last tokens are left out: there the length limits the tree, which says nothing of the drafter.
        while place + speculation.max_depth < len(text.output):
            tree, ahead = drafter.tree(0), text.output[place:]
            num_trees += 1
            accepted = 0
            for size in sizes:
                accepted = len(tree.walk(ahead, tree.best(size)))
                committed[size] += accepted + 1
            drafter.advance(0, ahead[: accepted + 1])
            place += accepted + 1
        drafter.end(0)
    return {size: total / max(num_trees, 1) for size, total in committed.items()}
