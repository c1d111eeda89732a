"""Drafting with a model, put together: the one place that says which parts it has, in the actor and in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from outrider.actors.draft.assembled.by_verifier import DrafterByVerifier
from outrider.actors.draft.frozen.frozen_drafter import SampledDrafter
from outrider.actors.draft.model.growing_drafter import AutoregressiveDrafter, num_nodes_of
from outrider.actors.draft.state.draft_sessions import DraftSessions
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.draft.state.drafter_spec import LoadedDrafter
from outrider.actors.draft.stopping.lengths import Lengths
from outrider.actors.engine.kv.prefix_slots import PrefixSlots
from outrider.actors.engine.protocol import Engine
from outrider.actors.engine.timed_engine import TimedEngine


def model_method(
    engine: Engine,
    settings: DraftSettings,
    *,
    lengths: Lengths | None = None,
    new_generator: Callable[[], np.random.Generator] = np.random.default_rng,
    growing: Callable[..., AutoregressiveDrafter] = AutoregressiveDrafter,
    drawing: Callable[..., SampledDrafter] = SampledDrafter,
) -> tuple[DraftSessions, DrafterByVerifier]:
    """Sessions, and the method that drafts for them with a model, warmed up.

    Args:
        engine: The draft model.
        settings: What the actor was told.
        lengths: The length policies on offer; None: those that need no trained model.
        new_generator: Makes the generator of a session whose verifier tests frozen trees; independent of everything the target draws.
        growing: Makes the part that grows trees, given what `AutoregressiveDrafter` is given.
        drawing: Makes the part that draws frozen trees, given what `SampledDrafter` is given.
    """
    slots = PrefixSlots(engine, is_shared=settings.prefix_reuse)
    num_nodes = num_nodes_of(settings.width, settings.max_ahead, lockstep=settings.lockstep)
    sessions = DraftSessions(engine.num_slots, num_nodes)
    coupled = growing(
        sessions,
        engine,
        width=settings.width,
        max_ahead=settings.max_ahead,
        prefill_chunk=settings.prefill_chunk,
        lockstep=settings.lockstep,
        lengths=lengths,
        slots=slots,
    )
    coupled.warm_up()
    sampled = drawing(
        sessions,
        engine,
        prefill_chunk=settings.prefill_chunk,
        lockstep=settings.lockstep,
        new_generator=new_generator,
        lengths=lengths,
        slots=slots,
    )
    return sessions, DrafterByVerifier(sessions, coupled=coupled, sampled=sampled)


def loaded_method(
    engine: TimedEngine, settings: DraftSettings, tokenizer: str, *, lengths: Lengths, **parts: Any
) -> LoadedDrafter:
    """A loaded drafter with a language model.

    Args:
        engine: The draft model.
        settings: What the actor was told.
        tokenizer: Fingerprint of its tokenizer.
        lengths: The length policies on offer.
        parts: As of `model_method`.
    """
    sessions, drafter = model_method(engine, settings, lengths=lengths, **parts)
    return LoadedDrafter(
        sessions=sessions,
        drafter=drafter,
        lengths=lengths.offered,
        model=engine.spec.name,
        model_fingerprint=engine.spec.fingerprint,
        tokenizer_fingerprint=tokenizer,
        vocab_size=engine.spec.vocab_size,
        engine=engine,
    )
