"""From settings to a running engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import structlog
import torch

from outrider.actors.engine.checkpoint.model_source import ModelSource, resolve_model
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.kv.sizing import LEAST_CONTEXT
from outrider.actors.engine.load.priority import lower_priority
from outrider.actors.engine.load.weights import own_weights
from outrider.actors.engine.profiles import DEVICE_PREFIX, Profile, find_profile
from outrider.actors.engine.protocol import Engine

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

_log = structlog.get_logger(__name__)

LEAST = {"num_slots": 1, "max_scratch": 1, "max_context": LEAST_CONTEXT, "num_threads": 1}
"""Least values of settings."""

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load_engine(settings: EngineSettings) -> Engine:
    """Loads a model and gives it slots.

    Sets the number of arithmetic threads of the process and, where a CPU computes, lowers the priority of the calling thread
    and of those workers by `niceness`; call it in the thread that will run the engine.

    Raises:
        ValueError: The settings, or the model, cannot be used; the message names the field. `UnsupportedModel` where
            the model's architecture is why.
    """
    _check(settings)
    source = resolve_model(settings.model)
    profile = emulated_profile(settings.device, source)
    device = torch.device("cpu") if profile is not None else _device(settings.device)
    if settings.num_threads is not None:
        torch.set_num_threads(settings.num_threads)
    if not source.is_tabular:
        _import_transformers()
    if profile is None and device.type == "cpu":
        lower_priority(settings.niceness)
    if source.is_tabular:
        return _load_table(settings, source, profile)
    return _load(settings, source, device)


def emulated_profile(device: str, source: ModelSource) -> Profile | None:
    """The profile of an emulated device; None for a real one.

    Raises:
        ValueError: There is no such profile, or the model cannot run there.
    """
    if not device.startswith(DEVICE_PREFIX):
        return None
    profile = find_profile(device.removeprefix(DEVICE_PREFIX))
    if not source.is_tabular:
        raise ValueError(
            f"device is {device!r}, but an emulated device does no arithmetic, so it cannot run "
            f"{source.location!r}: take law:NAME or tabular:FILE for the model, or a real device"
        )
    return profile


def _load_table(settings: EngineSettings, source: ModelSource, profile: Profile | None) -> Engine:
    from outrider.actors.engine.tables.emulated_engine import EmulatedEngine
    from outrider.actors.engine.tables.tabular_engine import TabularEngine, load_table
    from outrider.actors.engine.tables.trigram_laws import law_table

    table = law_table(source.location) if source.is_law else load_table(Path(source.location))
    if profile is None:
        return TabularEngine(table, settings)
    return EmulatedEngine(table, profile, settings)


def _import_transformers() -> None:
    """Imports what loading needs while the thread has its full priority: seconds, which would be minutes at a low one on a
    machine that computes. Nothing here computes, so no arithmetic worker inherits the priority."""
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

    del AutoConfig, AutoModelForCausalLM, PreTrainedModel


def _load(settings: EngineSettings, source: ModelSource, device: torch.device) -> Engine:
    # Importing transformers takes seconds, which a table need not wait for.
    from outrider.actors.engine.load.fingerprint import hashing_beside, model_fingerprint
    from outrider.actors.engine.models.transformers_engine import TransformersEngine

    with hashing_beside(Path(source.location) if source.is_local else None):
        model, folder = _load_model(settings, source, device)
        own_weights(model, device)
        # transformers decorates `to`, which leaves it untyped.
        model = model.to(device)  # type: ignore[arg-type]
    fingerprint = model_fingerprint(model, folder)
    engine = TransformersEngine(model, settings, name=settings.model, fingerprint=fingerprint)
    _log.info(
        "room chosen",
        model=settings.model,
        num_slots=engine.room.num_slots,
        max_context=engine.room.max_context,
        needed_gib=round(engine.room.needed / 2**30, 2),
        reason=engine.room.reason,
    )
    return engine


def _load_model(
    settings: EngineSettings, source: ModelSource, device: torch.device
) -> tuple[PreTrainedModel, Path | None]:
    """The model as it lies in its files, and their folder."""
    from transformers import AutoModelForCausalLM
    from transformers.utils.hub import cached_file

    from outrider.actors.engine.checkpoint.checkpoint import check_weights, read_config, readable
    from outrider.actors.engine.checkpoint.room import room_for

    location = source.location
    config = read_config(settings, source)
    dtype, reason = choose_dtype(settings.dtype, config, device)
    local = Path(location) if source.is_local else None
    # Before the weights are read, for that may take minutes.
    room_for(config, settings, device=device, name=settings.model, dtype=dtype, folder=local)
    _log.info("type chosen", model=settings.model, dtype=str(dtype), reason=reason)
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
    return model, folder


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
    for name, least in LEAST.items():
        value = getattr(settings, name)
        if value is not None and value < least:
            raise ValueError(f"{name} is {value}; it must be at least {least}")
    if not 0.0 < settings.gpu_share <= 1.0:
        raise ValueError(f"gpu_share is {settings.gpu_share}; it must be more than 0 and at most 1")
    if not 0 <= settings.niceness <= 19:
        raise ValueError(f"niceness is {settings.niceness}; it must be 0 to 19")
    if settings.dtype != "auto":
        _dtype(settings.dtype)
    if settings.cuda_graphs not in {"auto", "on", "off"}:
        raise ValueError(f"cuda_graphs is {settings.cuda_graphs!r}; it must be auto, on or off")


def choose_dtype(
    name: str, config: PreTrainedConfig, device: torch.device
) -> tuple[torch.dtype, str]:
    """The type of weights and cache, and why.

    `auto` is the checkpoint's own type on a GPU, float32 if it does not say. On a CPU it is float32: there speculation gives
    the text of plain decoding token for token, and half precision does not.

    Raises:
        ValueError: There is no such type.
    """
    if name != "auto":
        return _dtype(name), "as set"
    if device.type == "cpu":
        return torch.float32, "auto: on a CPU float32, in which texts equal those of plain decoding"
    saved: torch.dtype | None = getattr(config, "dtype", None) or getattr(
        config.get_text_config(decoder=True), "dtype", None
    )
    if saved is not None and saved in DTYPES.values():
        return saved, "auto: the checkpoint's own"
    return torch.float32, "auto: the checkpoint does not say"


def _dtype(name: str) -> torch.dtype:
    if name not in DTYPES:
        raise ValueError(f"dtype is {name!r}; it must be one of auto, {', '.join(DTYPES)}")
    return DTYPES[name]


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(
            f"device is {name!r}; it must be cpu, cuda, cuda:N or emulated:PROFILE"
        ) from error
    if device.type not in {"cpu", "cuda"}:
        raise ValueError(f"device is {name!r}; it must be cpu, cuda, cuda:N or emulated:PROFILE")
    if device.type == "cuda":
        count = torch.cuda.device_count()
        if not torch.cuda.is_available() or (device.index or 0) >= count:
            raise ValueError(
                f"device is {name!r}, but torch {torch.__version__} finds {count} CUDA devices here; "
                "use cpu, or install a CUDA build of torch and its driver"
            )
    return device
