"""Drafting a block of tokens in one pass from the target's hidden states: DSpark, and with rank 0 DFlash.

Source: DFlash, arXiv 2602.06036; DSpark, DeepSeek-AI and Peking University 2026. The parts are in `draft/block`; they are imported when it is
loaded, not before.
"""

from __future__ import annotations

from dataclasses import dataclass

from outrider.actors.draft.state.draft_settings import LOOKUP_SLOTS, DraftSettings
from outrider.actors.draft.state.drafter_spec import DrafterSpec, LoadedDrafter, TargetNeed

LONGEST = 1 << 24
"""Tokens of a text, at most, where the configuration does not say: nothing is kept of old ones but their ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockOptions:
    """Of the method."""

    target: str = ""
    """Where the target's embedding and head are: a folder, or demo:NAME. Empty: where the drafter's own configuration says."""


def build(settings: DraftSettings) -> LoadedDrafter:
    """See `DrafterSpec.build`."""
    from pathlib import Path

    import torch

    from outrider.actors.draft.block.block_drafter import BlockDrafter
    from outrider.actors.draft.block.block_engine import BlockEngine
    from outrider.actors.draft.block.block_file import block_digest, load_block_net
    from outrider.actors.draft.model.growing_drafter import num_nodes_of
    from outrider.actors.draft.state.draft_sessions import DraftSessions
    from outrider.actors.engine.checkpoint.model_source import resolve_model
    from outrider.actors.engine.load.priority import lower_priority
    from outrider.actors.engine.protocol import ModelSpec

    engine = settings.engine
    assert engine is not None, "the settings were checked"
    source = resolve_model(engine.model)
    if source.is_tabular or not source.is_local:
        raise ValueError(f"model {engine.model!r}: name a block drafter's folder on this machine")
    if engine.num_threads is not None:
        torch.set_num_threads(engine.num_threads)
    device = torch.device(engine.device)
    if device.type == "cpu":
        lower_priority(engine.niceness)
    folder = Path(source.location)
    net = load_block_net(folder, target=BlockOptions(**settings.options).target).to(device)
    spec = ModelSpec(
        name=engine.model,
        vocab_size=net.config.vocab_size,
        max_context=engine.max_context or LONGEST,
        eos_token_ids=net.config.eos_token_ids,
        fingerprint=block_digest(folder),
        dtype=torch.float32,
        device=device,
    )
    num_slots = engine.num_slots or LOOKUP_SLOTS
    blocks = BlockEngine(net, spec, num_slots=num_slots, max_scratch=engine.max_scratch)
    num_nodes = num_nodes_of(settings.width, settings.max_ahead, lockstep=settings.lockstep)
    sessions = DraftSessions(num_slots, num_nodes)
    drafter = BlockDrafter(
        sessions,
        blocks,
        width=settings.width,
        max_ahead=settings.max_ahead,
        prefill_chunk=settings.prefill_chunk,
        lockstep=settings.lockstep,
    )
    drafter.warm_up()
    return LoadedDrafter(
        sessions=sessions,
        drafter=drafter,
        model=spec.name,
        model_fingerprint=spec.fingerprint,
        tokenizer_fingerprint=net.config.tokenizer_fingerprint,
        vocab_size=spec.vocab_size,
        engine=drafter.timed,
        feedback=net.config.request,
    )


SPECS = (
    DrafterSpec(
        name="dspark",
        build=build,
        summary="a block of tokens in one pass from the target's hidden states, trained for one target; rank 0 is DFlash",
        source="arXiv 2602.06036 (DFlash); DeepSeek-AI 2026 (DSpark)",
        needs_model=True,
        needs=frozenset({TargetNeed.TOKENS, TargetNeed.HIDDEN_STATES}),
        options=BlockOptions,
        model_types=frozenset({"dspark"}),
    ),
)
