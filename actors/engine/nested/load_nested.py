"""From settings, or from a model that is loaded, to an engine with exits."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.load.load_engine import load_engine
from outrider.actors.engine.models.transformers_engine import TransformersEngine
from outrider.actors.engine.nested.exit_layers import KEY, exits_of
from outrider.actors.engine.nested.nested_engine import NestedEngine


def load_nested(
    settings: EngineSettings, *, exits: Sequence[int] = (), threshold: float = 0.5
) -> NestedEngine:
    """Loads a model and puts the engine with exits in the place of its own.

    Args:
        settings: As for any model.
        exits: Numbers of layers; empty: as the checkpoint says.
        threshold: See `NestedEngine`.

    Raises:
        ValueError: The settings cannot be used, or the model has no such exits.
    """
    engine = load_engine(settings)
    if not isinstance(engine, TransformersEngine):
        raise ValueError(  # noqa: TRY004 - it is the setting that is wrong
            f"{settings.model!r} is a table, which has no layers to leave after"
        )
    return nested_of(engine, settings, exits=exits, threshold=threshold)


def nested_of(
    engine: TransformersEngine,
    settings: EngineSettings,
    *,
    exits: Sequence[int] = (),
    threshold: float = 0.5,
) -> NestedEngine:
    """The engine with exits of a model whose own engine was made and compared with its modules.

    Raises:
        ValueError: The model is not shaped like Llama, or has no such exits.
    """
    name, weights = engine.spec.name, engine.weights
    if weights is None:
        raise ValueError(
            f"{name!r} is not run by its weights, which exits need: take a model of Llama's shape, and direct_forward"
        )
    said = getattr(engine.config, KEY, None)
    return NestedEngine(
        weights,
        exits_of(exits, said, len(weights.layers), name),
        spec=engine.spec,
        num_slots=engine.num_slots,
        max_scratch=engine.max_scratch,
        cuda_graphs=settings.cuda_graphs,
        threshold=threshold,
    )
