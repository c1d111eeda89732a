"""What the configuration of a decoder layer says, in our terms: of Llama's and Qwen3's shape, which released draft nets have."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from outrider.actors.draft.checkpoints.checkpoint_format import UnfitCheckpoint

FULL, SLIDING = "full_attention", "sliding_attention"
"""Kinds of layers."""

MOST_COUNTED = 1_024
"""Layers, slots of a block and tokens in a row, at most: no size of a tensor bounds them."""

ROTATIONS = ("default", "mrope", "linear", "llama3", "yarn")
"""Kinds of rotary positions that our nets compute."""

PLAIN = ("default", "mrope")
"""Kinds that turn every pair at its plain speed: pairs of the second kind go by one of three positions, and in a text all three are the same."""

ACTIVATIONS = ("silu", "gelu", "gelu_pytorch_tanh")
"""Functions of the gated product that our nets compute."""

OTHER_NAMES = {"swish": "silu", "gelu_new": "gelu_pytorch_tanh"}

ROTATION_FIELDS = (
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "original_max_position_embeddings",
    "beta_fast",
    "beta_slow",
    "attention_factor",
    "mscale",
    "mscale_all_dim",
    "truncate",
)
"""What is kept of their parameters."""

GAINS = ("mscale", "mscale_all_dim")

NEEDED = {
    "linear": ("factor",),
    "llama3": (
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
    ),
    "yarn": ("factor",),
}
"""Parameters that a kind cannot do without."""


def whole(config: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """A whole number of a configuration.

    Raises:
        UnfitCheckpoint: It is missing or none.
    """
    value = config.get(name)
    value = default if value is None else value
    if type(value) is not int:
        raise UnfitCheckpoint(f"{name} is {value!r}; a whole number is needed")
    return value


def count(config: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """A whole number of a configuration that something is made for each of.

    Raises:
        UnfitCheckpoint: It is missing, none, or not 1 to `MOST_COUNTED`.
    """
    value = whole(config, name, default)
    if not 1 <= value <= MOST_COUNTED:
        raise UnfitCheckpoint(f"{name} is {value}; it must be 1 to {MOST_COUNTED}")
    return value


def wholes(config: Mapping[str, Any], name: str) -> list[int]:
    """A list of whole numbers of a configuration.

    Raises:
        UnfitCheckpoint: It is missing or none.
    """
    value = config.get(name)
    if not isinstance(value, list | tuple) or any(type(one) is not int for one in value):
        raise UnfitCheckpoint(f"{name} is {value!r}; a list of whole numbers is needed")
    return list(value)


def number(config: Mapping[str, Any], name: str, default: float | None = None) -> float:
    """A number of a configuration, greater than 0.

    Raises:
        UnfitCheckpoint: It is missing or none.
    """
    value: Any = config.get(name)
    value = default if value is None else value
    if type(value) not in (int, float) or not 0.0 < value < math.inf:
        raise UnfitCheckpoint(f"{name} is {value!r}; a number greater than 0 is needed")
    return float(value)


def truth(config: Mapping[str, Any], name: str, *, default: bool = False) -> bool:
    """A truth of a configuration; null is as if it were not there.

    Raises:
        UnfitCheckpoint: It is neither true nor false: a word or a number may mean either.
    """
    value = config.get(name)
    value = default if value is None else value
    if not isinstance(value, bool):
        raise UnfitCheckpoint(f"{name} is {value!r}; it must be true or false")
    return value


def part(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An object in a configuration; empty: it is not there.

    Raises:
        UnfitCheckpoint: It is no object.
    """
    value = config.get(name) or {}
    if not isinstance(value, Mapping):
        raise UnfitCheckpoint(f"{name} is {value!r}; an object is needed")
    return value


def unread(config: Mapping[str, Any], name: str, known: Collection[str]) -> tuple[str, ...]:
    """Notes on fields of an object in a configuration that say something and that nothing here reads.

    Args:
        config: That holds it.
        name: Of the object.
        known: Fields that are read, or that say nothing of what is computed.
    """
    own = part(config, name)
    others = sorted(
        key for key in own.keys() - set(known) if own[key] not in (None, False, 0, [], "")
    )
    if not others:
        return ()
    return (f"that these fields of {name} change nothing: {', '.join(others)}",)


def windowed(config: Mapping[str, Any]) -> list[bool]:
    """Whether each layer has a sliding window, as far as `layer_types` says.

    Raises:
        UnfitCheckpoint: A layer attends in another way.
    """
    kinds = config.get("layer_types") or []
    if not isinstance(kinds, list | tuple) or not set(map(str, kinds)) <= {FULL, SLIDING}:
        raise UnfitCheckpoint(f"layer_types is {kinds!r}; {FULL} and {SLIDING} run here")
    return [kind == SLIDING for kind in kinds]


def layer_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes and kinds of a layer, by the names of our configurations.

    Raises:
        UnfitCheckpoint: A number is missing, or the layer computes something that ours do not.
    """
    width, num_heads = whole(config, "hidden_size"), whole(config, "num_attention_heads")
    head_dim = whole(config, "head_dim", width // max(num_heads, 1))
    said = config.get("hidden_act") or "silu"
    if (kind := OTHER_NAMES.get(str(said), said)) not in ACTIVATIONS:
        raise UnfitCheckpoint(f"hidden_act is {said!r}; these run here: {', '.join(ACTIVATIONS)}")
    if truth(config, "mlp_bias"):
        raise UnfitCheckpoint("mlp_bias is set; the layers that run here have none in the MLP")
    if (
        config.get("num_experts")
        or config.get("n_routed_experts")
        or config.get("num_local_experts")
    ):
        raise UnfitCheckpoint("the layer is a mixture of experts, which no draft net here is")
    if config.get("quantization_config"):
        raise UnfitCheckpoint("the weights are quantised; draft nets are read in F32, F16 or BF16")
    return {
        "width": width,
        "num_layers": count(config, "num_hidden_layers"),
        "num_heads": num_heads,
        "num_key_heads": whole(config, "num_key_value_heads", num_heads),
        "head_dim": head_dim,
        "inner": whole(config, "intermediate_size"),
        "activation": kind,
        "eps": number(config, "rms_norm_eps", 1e-6),
        **rotation_fields(config, head_dim),
    }


def rotation_fields(config: Mapping[str, Any], head_dim: int) -> dict[str, Any]:
    """`rope_theta`, `rope_scaling` and `rotary_dim` of our configurations, from either place where transformers has them.

    Raises:
        UnfitCheckpoint: Positions are rotated in a way that ours are not.
    """
    given = {**part(config, "rope_scaling"), **part(config, "rope_parameters")}
    if kinds := [name for name, value in given.items() if isinstance(value, Mapping)]:
        raise UnfitCheckpoint(
            f"positions are rotated differently in {', '.join(kinds)}; one rotation for all layers runs here"
        )
    theta = number(given if given.get("rope_theta") is not None else config, "rope_theta", 10_000.0)
    kind = given.get("rope_type", given.get("type", "default"))
    if kind not in ROTATIONS:
        raise UnfitCheckpoint(f"rope_type is {kind!r}; these run here: {', '.join(ROTATIONS)}")
    for name in ("is_neox_style", "rope_is_neox_style"):
        if not truth(config, name, default=True):
            raise UnfitCheckpoint(
                f"{name} is false; halves of a head are turned here, not neighbours"
            )
    factors = given if given.get("partial_rotary_factor") is not None else config
    share = number(factors, "partial_rotary_factor", 1.0)
    if (rotated := int(head_dim * share)) % 2 or not 0 < rotated <= head_dim:
        raise UnfitCheckpoint(
            f"partial_rotary_factor is {share:g}, {rotated} of the {head_dim} numbers of a head; an even number of them is rotated"
        )
    scaling: dict[str, Any] = {}
    if kind not in PLAIN:
        scaling = {name: given[name] for name in ROTATION_FIELDS if given.get(name) is not None}
        # A gain of 0 is none.
        scaling = {name: one for name, one in scaling.items() if one != 0 or name not in GAINS}
        scaling["rope_type"] = kind
        if kind == "yarn" and "original_max_position_embeddings" not in scaling:
            scaling["original_max_position_embeddings"] = whole(config, "max_position_embeddings")
        for name in sorted({*NEEDED[kind], *scaling} - {"rope_type", "truncate"}):
            number(scaling, name)
        truth(scaling, "truncate")
        if kind == "yarn" and theta <= 1.0:
            raise UnfitCheckpoint(
                f"rope_theta is {theta:g}; yarn needs more than 1, as no pair turns slower than another at 1"
            )
        if kind == "llama3" and scaling["low_freq_factor"] >= scaling["high_freq_factor"]:
            raise UnfitCheckpoint("low_freq_factor must be less than high_freq_factor")
    return {
        "rope_theta": theta,
        "rope_scaling": scaling,
        "rotary_dim": rotated if rotated < head_dim else None,
    }
