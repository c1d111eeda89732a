"""Drafting with one model of several sizes: a token leaves at the first exit that is sure of what follows, as deep as its target makes worth it.

Source: S2D, Kavehzadeh et al. 2024, arXiv 2407.01955. The parts are in `engine/nested` and `draft/nested`; they are imported when a model is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.draft.state.drafter_spec import DrafterSpec, LoadedDrafter, full_or_confidence
from outrider.actors.engine.nested.exit_layers import KEY, exits_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedOptions:
    """Of `sorted`."""

    confidence: float = 0.5
    """A token leaves at an exit whose law gives its likeliest token more than this. 0: always at the first; 1: never before the deepest."""

    adaptive: bool = True
    """Go as deep as is worth it for each target, by the scheduler's costs; false: as deep as the model, by confidence alone."""

    exit: int = 0
    """Layers after which every token leaves; 0: it is chosen. For comparison."""

    exits: str = ""
    """Numbers of layers with commas, as `1,2,4`; empty: as the checkpoint says."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.confidence <= 1.0:
            raise ValueError(f"confidence is {self.confidence}; it must be 0 to 1")
        if self.exit < 0:
            raise ValueError(f"exit is {self.exit}; give a number of layers, or 0")
        if not all(part.strip().isdecimal() for part in self.exits.split(",") if self.exits):
            raise ValueError(f"exits is {self.exits!r}; give numbers of layers with commas")
        if list(self.layers) != sorted({*self.layers} - {0}):
            raise ValueError(f"exits is {self.exits!r}; they must ascend, from 1 on")
        if self.exit and self.layers and self.exit not in self.layers:
            raise ValueError(f"exit is {self.exit}, which is none of exits, {self.exits!r}")

    @property
    def layers(self) -> tuple[int, ...]:
        """Those of `exits`."""
        return tuple(int(part) for part in self.exits.split(",") if self.exits)


def check_exit(options: SortedOptions, model: str, exits: Sequence[int]) -> None:
    """Refuses a single exit that the model does not have.

    Raises:
        ValueError: It has others.
    """
    if options.exit and options.exit not in exits:
        raise ValueError(
            f"exit is {options.exit}; {model!r} has exits after {', '.join(map(str, exits))} layers"
        )


def check_model(options: SortedOptions, model: str, content: Mapping[str, Any]) -> None:
    """See `DrafterSpec.check_model`."""
    num_layers = content.get("num_hidden_layers")
    if type(num_layers) is int:
        check_exit(options, model, exits_of(options.layers, content.get(KEY), num_layers, model))


def build(settings: DraftSettings) -> LoadedDrafter:
    """See `DrafterSpec.build`."""
    from functools import partial

    from outrider.actors.draft.assembled.model_method import loaded_method
    from outrider.actors.draft.nested.nested_drafters import (
        ExitControl,
        NestedDrafter,
        NestedSampledDrafter,
    )
    from outrider.actors.draft.stopping.lengths import Lengths
    from outrider.actors.engine.checkpoint.tokenizer_reading import TokenizerReading
    from outrider.actors.engine.nested.load_nested import load_nested
    from outrider.actors.engine.timed_engine import TimedEngine

    assert settings.engine is not None, "the settings were checked"
    options = SortedOptions(**settings.options)
    model, remote = settings.engine.model, settings.engine.allow_remote_code
    threshold = 1.0 if options.exit else options.confidence
    with TokenizerReading(model, allow_remote_code=remote) as reading:
        nested = load_nested(settings.engine, exits=options.layers, threshold=threshold)
        tokenizer = reading.result()
    check_exit(options, model, nested.exits)
    fixed = nested.exits.index(options.exit) if options.exit else None
    control = ExitControl(nested, fixed=fixed, is_adaptive=options.adaptive)
    return loaded_method(
        TimedEngine(nested),
        settings,
        tokenizer.fingerprint,
        lengths=Lengths(),
        growing=partial(NestedDrafter, control=control),
        drawing=partial(NestedSampledDrafter, control=control),
    )


SPECS = (
    DrafterSpec(
        name="sorted",
        build=build,
        summary="one model of several sizes for targets of several sizes; each token leaves at the first exit that is sure",
        source="Kavehzadeh et al. 2024, arXiv 2407.01955",
        needs_model=True,
        lengths=full_or_confidence,
        config_key=KEY,
        check_model=check_model,
        gives_probabilities=True,
        options=SortedOptions,
    ),
)
