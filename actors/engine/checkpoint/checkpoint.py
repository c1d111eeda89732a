"""What a checkpoint says about itself, looked at before its weights are read, and what came of reading them.

transformers fills gaps, leaves out what it does not know, and takes its own class for one that a checkpoint brings. Here each of
that is an error, or at least said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import structlog
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    PreTrainedConfig,
    PreTrainedModel,
)

from outrider.actors.engine.attention.attention import UnsupportedModel
from outrider.actors.engine.checkpoint.cache_argument import check_arguments
from outrider.actors.engine.checkpoint.model_facts import check_config, text_config
from outrider.actors.engine.checkpoint.model_source import ModelSource
from outrider.actors.engine.engine_settings import EngineSettings

UNREADABLE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    IndexError,
    KeyError,
    OSError,
    RuntimeError,
    SafetensorError,
    StrictDataclassError,
    TypeError,
    ValueError,
)
"""What transformers raises for a checkpoint that it cannot read, or that wants a package that is not there."""

_LAYER = re.compile(r"\.(\d+)\.")

_log = structlog.get_logger(__name__)


@contextmanager
def readable(settings: EngineSettings, source: ModelSource) -> Iterator[None]:
    """Turns what transformers raises inside into one error.

    Raises:
        ValueError: The checkpoint cannot be read; says why, and what may help.
    """
    try:
        yield
    except UNREADABLE as error:
        raise ValueError(_unreadable(settings, source, error)) from error


def read_config(settings: EngineSettings, source: ModelSource) -> PreTrainedConfig:
    """Reads a model's configuration, and refuses what it alone shows cannot be served.

    Raises:
        ValueError: It cannot be read, or says that the weights are quantised in a way that transformers does not know.
        UnsupportedModel: See `check_config` and `_check_class`.
    """
    with readable(settings, source):
        # transformers leaves this one untyped.
        config: PreTrainedConfig = AutoConfig.from_pretrained(
            source.location, trust_remote_code=settings.allow_remote_code
        )
    check_config(config, name=settings.model)
    _check_class(config, settings, source)
    _check_quantisation(config, name=settings.model)
    return config


def _check_class(config: PreTrainedConfig, settings: EngineSettings, source: ModelSource) -> None:
    """Refuses what the class of transformers shows to be unsupported, before a context is asked for and weights are read.

    Raises:
        UnsupportedModel: There is none, which is often so of models that also take images, or it lacks what the engine needs.
        ValueError: It wants a package that is not there.
    """
    title = f"{settings.model} ({config.model_type})"
    brings_code = "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        if brings_code:
            return
        text, advice = text_config(config), ""
        if type(text) in MODEL_FOR_CAUSAL_LM_MAPPING:
            advice = f"; its language model ({text.model_type}) can be tried, saved as a model of its own"
        raise UnsupportedModel(
            f"{title} is of a type of which transformers has no causal language model{advice}"
        )
    with readable(settings, source):
        found = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    if not isinstance(found, tuple) and not (brings_code and settings.allow_remote_code):
        check_arguments(found, title=title)


def _check_quantisation(config: PreTrainedConfig, *, name: str) -> None:
    """Refuses what transformers would ignore with a warning, and then read quantised weights as if they were not."""
    from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING as KNOWN

    given = getattr(config, "quantization_config", None)
    given = given or getattr(text_config(config), "quantization_config", None)
    if given is None:
        return
    says: Mapping[str, Any] = given if isinstance(given, dict) else given.to_dict()
    method = says.get("quant_method")
    if method is None and (says.get("load_in_8bit") or says.get("load_in_4bit")):
        return
    # bitsandbytes is there once for each of its widths.
    if method not in KNOWN and f"{method}_4bit" not in KNOWN:
        raise ValueError(
            f"model {name!r} is quantised by {method!r} (quant_method in config.json), which this version of "
            f"transformers does not know; it knows {', '.join(sorted(map(str, KNOWN)))}"
        )


def check_weights(
    model: PreTrainedModel,
    missing: set[str],
    unexpected: set[str],
    *,
    settings: EngineSettings,
) -> None:
    """Refuses weights that are not those of the configuration.

    Args:
        model: As loaded.
        missing: Weights of the model that the checkpoint lacks; transformers fills them with random numbers.
        unexpected: Weights of the checkpoint that the model has no place for, without those that its class ignores.
        settings: Of the model.

    Raises:
        ValueError: Some are missing, or there are more layers than the configuration says.
    """
    name, config = settings.model, model.config
    if missing:
        raise ValueError(
            f"model {name!r} lacks {len(missing)} weights of a {config.model_type} causal language "
            f"model, among them {', '.join(sorted(missing)[:3])}; is it a base model without a head, or incomplete?"
        )
    layers = text_config(config).num_hidden_layers
    # Layers that predict further tokens are counted apart, and lie behind the others.
    most = layers + (getattr(text_config(config), "num_nextn_predict_layers", None) or 0)
    further = sorted(key for key in unexpected if _layer_of(key, model) >= most)
    if further:
        raise ValueError(
            f"model {name!r} has weights of more than the {layers} layers that its configuration says, among them "
            f"{', '.join(further[:3])}; is num_hidden_layers in config.json that of another model?"
        )
    if unexpected:
        _log.warning(
            "weights of the checkpoint have no place in the model and are left out",
            model=name,
            count=len(unexpected),
            among_them=sorted(unexpected)[:3],
        )
    code = getattr(config, "auto_map", None)
    if code and not settings.allow_remote_code:
        _log.warning(
            "the checkpoint brings code of its own, which is not run; set allow_remote_code if it should be",
            model=name,
            code=sorted(str(each) for each in code.values()),
            instead=f"{type(model).__module__}.{type(model).__name__}",
        )


def _layer_of(key: str, model: PreTrainedModel) -> int:
    """Number of the layer that a weight would be of, told by the first layer's weights having that name; -1: of none."""
    found = _LAYER.search(key)
    if found is None:
        return -1
    first = f"{key[: found.start()]}.0."
    has_such = any(name.startswith(first) or f".{first}" in name for name in model.state_dict())
    return int(found[1]) if has_such else -1


def _unreadable(settings: EngineSettings, source: ModelSource, error: Exception) -> str:
    reason = str(error)
    if not isinstance(error, (OSError, ValueError)):
        reason = f"{type(error).__name__}: {reason}"
    advice = "is the folder complete?"
    if isinstance(error, ImportError):
        advice = "install the package where the actor runs"
    elif isinstance(error, (StrictDataclassError, TypeError)):
        advice = "is its config.json as this version of transformers wants it?"
    elif "trust_remote_code" in reason:
        advice = "set allow_remote_code if you trust the code in the model's repository"
    elif not source.is_local:
        advice = "is the hub id right, and can the hub be reached?"
    return f"model {settings.model!r} cannot be loaded: {reason} ({advice})"
