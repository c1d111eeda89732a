"""From settings to a running engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch

from outrider.actors.engine.packed_linear import should_pack
from outrider.actors.engine.priority import lower_priority
from outrider.actors.engine.protocol import Engine
from outrider.actors.engine.settings import EngineSettings
from outrider.actors.engine.source import ModelSource, resolve_model

if TYPE_CHECKING:
    from transformers import PreTrainedModel

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load_engine(settings: EngineSettings) -> Engine:
    """Loads a model and gives it slots.

    Sets the number of arithmetic threads of the process and, for `niceness` above 0, lowers the priority of the calling
    thread and of those workers; call it in the thread that will run the engine.

    Raises:
        ValueError: The settings, or the model, cannot be used; the message names the field. `UnsupportedModel` where
            the model's architecture is why.
    """
    _check(settings)
    source = resolve_model(settings.model)
    dtype, device = _dtype(settings.dtype), _device(settings.device)
    if settings.num_threads is not None:
        torch.set_num_threads(settings.num_threads)
    if not source.is_tabular:
        _import_transformers()
    lower_priority(settings.niceness)
    return _load(settings, source, dtype, device)


def _import_transformers() -> None:
    """Imports what loading needs while the thread has its full priority: seconds, which would be minutes at a low one on a
    machine that computes. Nothing here computes, so no arithmetic worker inherits the priority."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

    del AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel


def _load(
    settings: EngineSettings, source: ModelSource, dtype: torch.dtype, device: torch.device
) -> Engine:
    if source.is_tabular:
        from outrider.actors.engine.tabular import TabularEngine, load_table

        return TabularEngine(load_table(Path(source.location)), settings)
    # Importing transformers takes seconds, which a table need not wait for.
    from outrider.actors.engine.fingerprint import model_fingerprint
    from outrider.actors.engine.transformers_engine import TransformersEngine

    model, folder = _load_model(settings, source, dtype, device)
    fingerprint = model_fingerprint(model, folder)
    return TransformersEngine(
        model,
        settings,
        name=settings.model,
        fingerprint=fingerprint,
        packs=should_pack(model, settings.packed_weights),
    )


def _load_model(
    settings: EngineSettings, source: ModelSource, dtype: torch.dtype, device: torch.device
) -> tuple[PreTrainedModel, Path | None]:
    """The model on its device, and the folder that its files lie in."""
    from transformers import AutoModelForCausalLM
    from transformers.utils.hub import cached_file

    from outrider.actors.engine.checkpoint import check_weights, read_config, readable

    location = source.location
    config = read_config(settings, source)
    with readable(settings, source), _without_progress_bars():
        # With `output_loading_info` the result is a pair, which transformers does not say.
        loaded = cast(
            "tuple[PreTrainedModel, dict[str, set[str]]]",
            AutoModelForCausalLM.from_pretrained(
                location,
                config=config,
                dtype=dtype,
                # Whatever the checkpoint names: it is replaced, and need not be installed.
                attn_implementation="eager",
                trust_remote_code=settings.allow_remote_code,
                output_loading_info=True,
            ),
        )
    model, report = loaded
    check_weights(
        model, set(report["missing_keys"]), set(report["unexpected_keys"]), settings=settings
    )
    config_file = cached_file(location, "config.json")
    folder = Path(config_file).parent if config_file else None
    _own_weights(model)
    # transformers decorates `to`, which leaves it untyped.
    return model.to(device), folder  # type: ignore[arg-type]


def _own_weights(model: PreTrainedModel) -> None:
    """Copies weights into the process's own memory.

    They may be a mapping of the file: written over, it would change a running model, or end the process if cut short.
    """
    for tensor in [*model.parameters(), *model.buffers()]:
        tensor.data = tensor.data.clone()


@contextmanager
def _without_progress_bars() -> Iterator[None]:
    """Keeps transformers from drawing on a service's error stream."""
    from transformers.utils import logging

    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # untyped in transformers
    try:
        yield
    finally:
        if was_enabled:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]  # as above


def _check(settings: EngineSettings) -> None:
    for name in ("num_slots", "max_scratch", "max_context", "num_threads"):
        value = getattr(settings, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} is {value}; it must be at least 1")
    if not 0 <= settings.niceness <= 19:
        raise ValueError(f"niceness is {settings.niceness}; it must be 0 to 19")
    if settings.attention not in {"auto", "each", "stretches", "together"}:
        raise ValueError(
            f"attention is {settings.attention!r}; it must be auto, each, stretches or together"
        )
    if settings.cuda_graphs not in {"auto", "on", "off"}:
        raise ValueError(f"cuda_graphs is {settings.cuda_graphs!r}; it must be auto, on or off")


def _dtype(name: str) -> torch.dtype:
    if name not in DTYPES:
        raise ValueError(f"dtype is {name!r}; it must be one of {', '.join(DTYPES)}")
    return DTYPES[name]


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"device is {name!r}; it must be cpu, cuda or cuda:N") from error
    if device.type not in {"cpu", "cuda"}:
        raise ValueError(f"device is {name!r}; it must be cpu, cuda or cuda:N")
    if device.type == "cuda":
        count = torch.cuda.device_count()
        if not torch.cuda.is_available() or (device.index or 0) >= count:
            raise ValueError(
                f"device is {name!r}, but torch {torch.__version__} finds {count} CUDA devices here; "
                "use cpu, or install a CUDA build of torch and its driver"
            )
    return device
