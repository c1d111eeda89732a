"""Drafting with heads on the target's hidden state: no cache, no attention, a fraction of a draft model's time.

Source: Wertheimer et al. 2024, arXiv 2404.19124. The parts are in `draft/heads`; they are imported when it is loaded, not before.
"""

from __future__ import annotations

from dataclasses import dataclass

from outrider.actors.draft.state.draft_settings import LOOKUP_SLOTS, DraftSettings
from outrider.actors.draft.state.drafter_spec import DrafterSpec, LoadedDrafter, TargetNeed
from outrider.actors.exchange.feedback_request import FeedbackRequest

LONGEST = 1 << 24
"""Tokens of a text, at most, where the configuration does not say: nothing is kept of them but their ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculatorChoices:
    """Of the method."""

    target: str = ""
    """Where the target's embedding and head are: a folder, or demo:NAME. Empty: where the speculator's own configuration says."""


def build(settings: DraftSettings) -> LoadedDrafter:
    """See `DrafterSpec.build`."""
    from pathlib import Path

    import torch

    from outrider.actors.draft.heads.head_engine import HeadEngine
    from outrider.actors.draft.heads.speculator_drafter import SpeculatorDrafter
    from outrider.actors.draft.heads.speculator_file import load_speculator, weights_digest
    from outrider.actors.draft.model.growing_drafter import num_nodes_of
    from outrider.actors.draft.state.draft_sessions import DraftSessions
    from outrider.actors.draft.stopping.lengths import Lengths
    from outrider.actors.engine.checkpoint.model_source import resolve_model
    from outrider.actors.engine.load.priority import lower_priority
    from outrider.actors.engine.protocol import ModelSpec

    engine = settings.engine
    assert engine is not None, "the settings were checked"
    source = resolve_model(engine.model)
    if source.is_tabular or not source.is_local:
        raise ValueError(f"model {engine.model!r}: name a speculator's folder on this machine")
    if engine.num_threads is not None:
        torch.set_num_threads(engine.num_threads)
    device = torch.device(engine.device)
    if device.type == "cpu":
        lower_priority(engine.niceness)
    folder = Path(source.location)
    choices = SpeculatorChoices(**settings.options)
    net = load_speculator(folder, target=choices.target or None).to(device)
    spec = ModelSpec(
        name=engine.model,
        vocab_size=net.config.vocab_size,
        max_context=engine.max_context or LONGEST,
        eos_token_ids=net.config.eos_token_ids,
        fingerprint=weights_digest(folder),
        dtype=torch.float32,
        device=device,
    )
    num_slots = engine.num_slots or LOOKUP_SLOTS
    heads = HeadEngine(net, spec, num_slots=num_slots, max_scratch=engine.max_scratch)
    num_nodes = num_nodes_of(settings.width, settings.max_ahead, lockstep=settings.lockstep)
    sessions = DraftSessions(num_slots, num_nodes)
    drafter = SpeculatorDrafter(
        sessions,
        heads,
        width=settings.width,
        max_ahead=settings.max_ahead,
        prefill_chunk=settings.prefill_chunk,
        lockstep=settings.lockstep,
    )
    drafter.warm_up()
    return LoadedDrafter(
        sessions=sessions,
        drafter=drafter,
        lengths=Lengths().offered,
        model=spec.name,
        model_fingerprint=spec.fingerprint,
        tokenizer_fingerprint=net.config.tokenizer_fingerprint,
        vocab_size=spec.vocab_size,
        engine=drafter.timed,
        feedback=FeedbackRequest(layers=("norm",), width=net.config.width),
    )


SPECS = (
    DrafterSpec(
        name="mlp_speculator",
        build=build,
        summary="heads on the target's hidden state, trained for one target: a draft takes a fraction of a draft model's time",
        source="Wertheimer et al. 2024, arXiv 2404.19124",
        needs_model=True,
        needs=frozenset({TargetNeed.TOKENS, TargetNeed.HIDDEN_STATES}),
        options=SpeculatorChoices,
        model_types=frozenset({"mlp_speculator"}),
    ),
)
