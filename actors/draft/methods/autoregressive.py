"""Drafting with a language model: trees of likely draws that grow without waiting, or tokens drawn level by level.

Source: Leviathan et al. 2023, arXiv 2211.17192, and Chen et al. 2023, arXiv 2302.01318, here ahead of the target and in trees. The parts
are in `draft/model`, `draft/frozen` and `draft/assembled`; they are imported when a model is loaded, not before.
"""

from __future__ import annotations

from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.draft.state.drafter_spec import DrafterSpec, LoadedDrafter
from outrider.actors.draft.stopping.decision_place import folder_of, lengths_of


def build(settings: DraftSettings) -> LoadedDrafter:
    """See `DrafterSpec.build`."""
    from outrider.actors.draft.assembled.model_method import loaded_method
    from outrider.actors.draft.stopping.lengths import Lengths
    from outrider.actors.draft.stopping.stop_model_file import find_decision
    from outrider.actors.engine.checkpoint.tokenizer_reading import TokenizerReading
    from outrider.actors.engine.load.load_engine import load_engine
    from outrider.actors.engine.timed_engine import TimedEngine

    assert settings.engine is not None, "the settings were checked"
    wanted = settings.engine
    with TokenizerReading(wanted.model, allow_remote_code=wanted.allow_remote_code) as reading:
        engine = TimedEngine(load_engine(wanted))
        tokenizer = reading.result()
    lengths = Lengths(find_decision(folder_of(wanted.model), engine.spec.fingerprint))
    return loaded_method(engine, settings, tokenizer.fingerprint, lengths=lengths)


SPECS = (
    DrafterSpec(
        name="autoregressive",
        build=build,
        summary="the usual one: a small model of the target's family, with every verifier",
        source="Leviathan et al. 2023, arXiv 2211.17192",
        needs_model=True,
        gives_probabilities=True,
        lengths=lengths_of,
    ),
)
