"""What the target writes for the drafts to learn on, within the time there is."""

from __future__ import annotations

from itertools import pairwise
from statistics import median_low

import numpy as np
from transformers import LlamaForCausalLM

from outrider.actors.train.budget import WRITING, Budget, Decision
from outrider.actors.train.checkpoint import weights_digest
from outrider.actors.train.materials import Materials
from outrider.actors.train.packing import Tokens
from outrider.actors.train.progress_bar import progress_bar
from outrider.actors.train.report import expected
from outrider.actors.train.rollout import rollout_chunks
from outrider.actors.train.tokenizer import BEGIN

ROLLOUT_SEED = 7


def rollouts_name(target: LlamaForCausalLM) -> str:
    """Folder of what a target with these weights has written."""
    return f"rollouts-{weights_digest(target)}"


def write_rollouts(
    materials: Materials,
    budget: Budget,
    target: LlamaForCausalLM,
    *,
    resume: bool,
    scale: float,
) -> Tokens:
    """As many of the recipe's rows as fit the time, at least one chunk; kept, so that another draft finds them.

    Args:
        materials: Has the text that the target goes on with.
        budget: Says what time is left, and keeps how many rows there are.
        target: Writes.
        resume: Whether to keep to an earlier decision.
        scale: Below 1, multiplies the number of chunks.
    """
    plan = materials.recipe.rollouts
    stream = materials.stream(plan.chunks * plan.rows * plan.length, ROLLOUT_SEED)
    chunks = max(1, round(plan.chunks * min(1.0, scale)))
    name = rollouts_name(target)
    wanted, minutes = chunks * plan.rows, budget.minutes
    saved = budget.decided(name) if resume else None
    is_decided = saved is not None and saved.of == wanted
    if saved is not None and is_decided:
        chunks = saved.count // plan.rows
    made: list[Tokens] = []
    times = [budget.clock()]

    def made_one() -> None:
        times.append(budget.clock())
        budget.save()

    with progress_bar(materials.console) as bar:
        task = bar.add_task("target writes", total=chunks, note="")
        for chunk in rollout_chunks(
            target,
            stream,
            materials.out / "progress" / name,
            begin=materials.tokenizer().get_vocab()[BEGIN],
            chunks=chunks,
            rows=plan.rows,
            length=plan.length,
            prompt_length=plan.prompt_length,
            seed=ROLLOUT_SEED,
            made_one=made_one,
        ):
            made.append(chunk)
            bar.advance(task)
            pace = median_low(b - a for a, b in pairwise(times)) if len(times) > 1 else 0.0
            left = budget.left()
            if minutes and not is_decided and len(times) == 2:
                count = min(chunks, len(made) + int(max(0.0, left) / max(pace, 1e-9)))
                now = Decision(count=count * plan.rows, of=wanted, minutes=minutes)
                materials.console.print(expected(WRITING, now, (count - len(made)) * pace))
            if not is_decided and left < pace:
                break
    if not is_decided:
        count = len(made) * plan.rows
        budget.decide(name, Decision(count=count, of=wanted, minutes=minutes))
    return np.concatenate(made)
