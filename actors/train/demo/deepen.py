"""Giving a model more layers without changing what it says: for benchmarks of a slow target, and for training one that grows."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from outrider.actors.train.training_errors import TrainError


def deepen(model: PreTrainedModel, num_layers: int, *, repeated: int = 1) -> PreTrainedModel:
    """A copy of a Llama-family model with `num_layers` layers in all, and the same outputs.

    The added layers repeat the last ones' weights, except that the two projections writing to the
    residual stream are zero: a pass computes all of them and adds exactly nothing. A figure
    measured on such a model must say so.

    Args:
        model: has `model.layers`, whose items have `self_attn.o_proj` and `mlp.down_proj`.
        num_layers: at least the number there is.
        repeated: how many of the last layers are repeated in turn, 1 to all. Layers that are to be trained must
            not all be alike: those that see the same and write nothing learn the same.

    Raises:
        TrainError: fewer layers than there are, or not such an architecture.
    """
    layers = getattr(getattr(model, "model", None), "layers", None)
    if not isinstance(layers, nn.ModuleList) or len(layers) == 0:
        raise TrainError(
            f"{type(model).__name__} has no model.layers; deepen works on Llama-family models"
        )
    if num_layers < len(layers):
        raise TrainError(f"num_layers is {num_layers}, the model has {len(layers)}; give no fewer")
    config = copy.deepcopy(model.config)
    config.num_hidden_layers = num_layers
    kinds = getattr(config, "layer_types", None)
    if kinds is not None:
        config.layer_types = [*kinds, *[kinds[-1]] * (num_layers - len(kinds))]
    deeper: PreTrainedModel = nn.Module.to(type(model)(config), model.dtype)
    state = dict(model.state_dict())
    first = len(layers) - repeated
    for index in range(len(layers), num_layers):
        prefix = f"model.layers.{first + (index - len(layers)) % repeated}."
        for name, value in model.state_dict().items():
            if name.startswith(prefix):
                state[f"model.layers.{index}.{name.removeprefix(prefix)}"] = value
    deeper.load_state_dict(state)
    with torch.no_grad():
        for layer in list(deeper.model.layers)[len(layers) :]:
            silence(layer)
    deeper.generation_config = copy.deepcopy(model.generation_config)
    nn.Module.to(deeper, model.device)
    deeper.train(model.training)
    return deeper


def silence(layer: nn.Module) -> None:
    """Zero what a decoder layer writes to the residual stream."""
    for name in ("self_attn.o_proj", "mlp.down_proj"):
        try:
            projection = layer.get_submodule(name)
        except AttributeError as error:
            raise TrainError(
                f"{type(layer).__name__} has no {name}; deepen works on Llama-family models"
            ) from error
        for parameter in projection.parameters():
            parameter.zero_()


def deepen_folder(source: Path, destination: Path, num_layers: int) -> None:
    """Read a checkpoint with its tokenizer, deepen it, write it to another folder.

    Raises:
        TrainError: the source is not a folder, or the model cannot be deepened so.
    """
    if not source.is_dir():
        raise TrainError(f"{source}: no such folder; give a local checkpoint")
    if destination.resolve() == source.resolve():
        raise TrainError(f"{destination}: would overwrite the source; give another folder")
    model = AutoModelForCausalLM.from_pretrained(source, dtype="auto")
    deepen(model, num_layers).save_pretrained(destination)
    AutoTokenizer.from_pretrained(source).save_pretrained(destination)
