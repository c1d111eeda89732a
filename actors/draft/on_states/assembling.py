"""A drafter of hidden states, put together of its net, the engine that runs it, and the growth of its trees."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from outrider.actors.draft.checkpoints.net_place import folder_of_net
from outrider.actors.draft.model.growing_drafter import num_nodes_of
from outrider.actors.draft.on_states.net_folder import folder_digest
from outrider.actors.draft.on_states.net_tables import BORROWED_HEAD
from outrider.actors.draft.state.draft_sessions import DraftSessions
from outrider.actors.draft.state.draft_settings import LOOKUP_SLOTS, DraftSettings
from outrider.actors.draft.state.drafter_spec import LoadedDrafter
from outrider.actors.engine.load.priority import lower_priority
from outrider.actors.engine.load.weights import own_weights
from outrider.actors.engine.protocol import ModelSpec
from outrider.actors.speculation.policies import LengthChoice

LONGEST = 1 << 24
"""Tokens of a text, at most, where the configuration does not say: nothing is kept of old ones but their ids."""


def assembled(
    settings: DraftSettings,
    *,
    load: Callable[[Path], Any],
    engine_of: Callable[..., Any],
    drafter_of: Callable[..., Any],
    lengths: tuple[LengthChoice, ...] = (LengthChoice.FULL,),
) -> LoadedDrafter:
    """Loads what the settings name.

    Args:
        settings: Of the drafter.
        load: Reads the net of a folder; its `config` has `vocab_size`, `eos_token_ids`, `tokenizer_fingerprint` and `request`.
        engine_of: Runs a net: called with it, a `ModelSpec`, `num_slots` and `max_scratch`.
        drafter_of: An `AutoregressiveDrafter` with `timed`: called with sessions, the engine, and what that one takes.
        lengths: Length policies that it can follow.

    Raises:
        ValueError: It cannot be loaded; the message says why.
    """
    engine = settings.engine
    assert engine is not None, "the settings were checked"
    folder = folder_of_net(engine.model)
    if engine.num_threads is not None:
        torch.set_num_threads(engine.num_threads)
    device = torch.device(engine.device)
    if device.type == "cpu":
        lower_priority(engine.niceness)
    net = load(folder)
    own_weights(net, device, tables={BORROWED_HEAD})
    net.to(device)
    spec = ModelSpec(
        name=engine.model,
        vocab_size=net.config.vocab_size,
        max_context=engine.max_context or LONGEST,
        eos_token_ids=net.config.eos_token_ids,
        fingerprint=folder_digest(folder),
        dtype=torch.float32,
        device=device,
        is_recorded=engine.cuda_graphs != "off",
    )
    num_slots = engine.num_slots or LOOKUP_SLOTS
    num_nodes = num_nodes_of(settings.width, settings.max_ahead, lockstep=settings.lockstep)
    sessions = DraftSessions(num_slots, num_nodes)
    drafter = drafter_of(
        sessions,
        engine_of(net, spec, num_slots=num_slots, max_scratch=engine.max_scratch),
        width=settings.width,
        max_ahead=settings.max_ahead,
        prefill_chunk=settings.prefill_chunk,
        lockstep=settings.lockstep,
    )
    drafter.warm_up()
    return LoadedDrafter(
        sessions=sessions,
        drafter=drafter,
        lengths=lengths,
        model=spec.name,
        model_fingerprint=spec.fingerprint,
        tokenizer_fingerprint=net.config.tokenizer_fingerprint,
        vocab_size=spec.vocab_size,
        engine=drafter.timed,
        feedback=net.config.request,
    )
