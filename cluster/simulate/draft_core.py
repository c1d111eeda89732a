"""A drafter's core on an emulated device, made as the draft actor makes it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from outrider.actors.draft.autoregressive import AutoregressiveDrafter, num_nodes_of
from outrider.actors.draft.by_verifier import DrafterByVerifier
from outrider.actors.draft.core import DraftCore
from outrider.actors.draft.sampled import SampledDrafter
from outrider.actors.draft.sessions import Sessions
from outrider.actors.draft.settings import DraftSettings
from outrider.actors.engine.prefix_slots import PrefixSlots
from outrider.cluster.simulate.device import Device


def draft_core(
    device: Device, settings: DraftSettings, new_generator: Callable[[], np.random.Generator]
) -> DraftCore:
    """A core, warmed up.

    Args:
        device: The draft model.
        settings: What the actor was told.
        new_generator: Makes the generator of a session whose verifier tests frozen trees.
    """
    slots = PrefixSlots(device, is_shared=settings.prefix_reuse)
    num_nodes = num_nodes_of(settings.width, settings.max_ahead, lockstep=settings.lockstep)
    sessions = Sessions(device.num_slots, num_nodes)
    coupled = AutoregressiveDrafter(
        sessions,
        device,
        width=settings.width,
        max_ahead=settings.max_ahead,
        prefill_chunk=settings.prefill_chunk,
        lockstep=settings.lockstep,
        slots=slots,
    )
    coupled.warm_up()
    sampled = SampledDrafter(
        sessions,
        device,
        prefill_chunk=settings.prefill_chunk,
        lockstep=settings.lockstep,
        new_generator=new_generator,
        slots=slots,
    )
    return DraftCore(
        sessions,
        DrafterByVerifier(sessions, coupled=coupled, sampled=sampled),
        max_ahead=settings.max_ahead,
        bytes_per_token=settings.bytes_per_token,
        lockstep=settings.lockstep,
    )
