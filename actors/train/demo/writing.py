"""What the target writes, and thinks of every position, for the drafts to learn on, within the time there is."""

from __future__ import annotations

from itertools import pairwise
from statistics import median_low

from transformers import LlamaForCausalLM

from outrider.actors.train.demo.materials import Materials
from outrider.actors.train.demo.rollout import rollout_chunks
from outrider.actors.train.demo.target_cache import Kept, batches_of, keep_chunk, num_batches
from outrider.actors.train.loop.budget import WRITING, Budget, StepDecision
from outrider.actors.train.loop.schedule import Schedule
from outrider.actors.train.loop.training_checkpoint import weights_digest
from outrider.actors.train.loop.training_report import expected, progress_bar
from outrider.actors.train.text.train_tokenizer import BEGIN

ROLLOUT_SEED = 7
TEXT_SEED = 1


def rollouts_name(materials: Materials, target: LlamaForCausalLM) -> str:
    """Folder of what a target with these weights has written after beginnings of these texts."""
    return f"rollouts-{weights_digest(target)}-{materials.texts}"


def write_rollouts(
    materials: Materials,
    budget: Budget,
    target: LlamaForCausalLM,
    schedule: Schedule,
    *,
    resume: bool,
    scale: float,
) -> list[Kept]:
    """As many batches of the recipe as fit the time, a chunk of the target's writing at a time and one chunk at least.

    They are kept, so that another draft finds them.

    Args:
        materials: Has the text that the target goes on with.
        budget: Says what time is left, and keeps how many rows there are.
        target: Writes, and says what it thinks of every position.
        schedule: Shape of the batches.
        resume: Whether to keep to an earlier decision.
        scale: Below 1, multiplies the number of chunks.
    """
    plan = materials.recipe.rollouts
    stream = materials.stream(plan.chunks * plan.rows * plan.length, ROLLOUT_SEED)
    chunks = max(1, round(plan.chunks * min(1.0, scale)))
    most = num_batches(chunks * plan.rows, schedule) + chunks
    text = materials.stream(most * schedule.tokens_per_step, TEXT_SEED)
    name = rollouts_name(materials, target)
    folder = materials.out / "progress" / name
    wanted, minutes = chunks * plan.rows, budget.minutes
    saved = budget.decided(name) if resume else None
    is_decided = saved is not None and saved.of == wanted
    if saved is not None and is_decided:
        chunks = saved.count // plan.rows
    # Another recipe finds nothing of this one.
    shape = f"{plan.rows}x{plan.length}-{schedule.tokens_per_step}-{schedule.long_row_length}-{schedule.long_every}"
    kept: list[Kept] = []
    times = [budget.clock()]
    num_chunks = 0
    with progress_bar(materials.console) as bar:
        task = bar.add_task("target writes", total=chunks, note="")
        for index, written in enumerate(
            rollout_chunks(
                target,
                stream,
                folder,
                begin=materials.tokenizer().get_vocab()[BEGIN],
                chunks=chunks,
                rows=plan.rows,
                length=plan.length,
                prompt_length=plan.prompt_length,
                seed=ROLLOUT_SEED,
            )
        ):
            path = folder / f"kept-{shape}-{index:04d}.safetensors"
            is_new = not path.exists()
            kept += keep_chunk(target, batches_of(written, text, schedule, len(kept)), path)
            num_chunks += 1
            bar.advance(task)
            if is_new:
                times.append(budget.clock())
                budget.save()
            pace = median_low(b - a for a, b in pairwise(times)) if len(times) > 1 else 0.0
            left = budget.left()
            if minutes and not is_decided and len(times) == 2:
                count = min(chunks, num_chunks + int(max(0.0, left) / max(pace, 1e-9)))
                now = StepDecision(count=count * plan.rows, of=wanted, minutes=minutes)
                materials.console.print(expected(WRITING, now, (count - num_chunks) * pace))
            if not is_decided and left < pace:
                break
    if not is_decided:
        budget.decide(name, StepDecision(count=num_chunks * plan.rows, of=wanted, minutes=minutes))
    return kept
