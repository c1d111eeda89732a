"""A target that is only read: its hidden states and its tables of tokens, and texts that it writes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from outrider.actors.draft.choice.drafter_registry import check_speaks
from outrider.actors.draft.heads.speculator_net import matrix
from outrider.actors.draft.on_states.known_formats import target_shape
from outrider.actors.draft.on_states.net_folder import NetFolderError
from outrider.actors.draft.on_states.target_tables import digest_of, target_tables
from outrider.actors.engine.checkpoint.checkpoint import UNREADABLE, check_weights
from outrider.actors.engine.checkpoint.model_facts import check_config, eos_token_ids
from outrider.actors.engine.checkpoint.model_source import ModelSource, resolve_model
from outrider.actors.engine.checkpoint.tokenizers import tokenizer_fingerprint
from outrider.actors.engine.engine_settings import DEMO_PREFIX, EngineSettings
from outrider.actors.engine.load.fingerprint import model_fingerprint
from outrider.actors.exchange.feedback_request import Layer
from outrider.actors.train.demo.rollout import continue_rows
from outrider.actors.train.demo.train_demo import choose_device
from outrider.actors.train.features.feature_cache import Int32s
from outrider.actors.train.features.output_layer import OutputLayer
from outrider.actors.train.features.training_text import read_texts
from outrider.actors.train.loop.data_parallel import is_first
from outrider.actors.train.loop.objective import mixed_precision
from outrider.actors.train.loop.result_folder import check_folder
from outrider.actors.train.trainer_options import TargetTrainerOptions
from outrider.actors.train.training_errors import TrainError


@dataclass(frozen=True, eq=False)
class FrozenTarget:
    """A model of transformers, float32."""

    name: str
    """As others find it again: a local folder by its whole path, else as it was asked for."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    fingerprint: str
    """As the service will know it by."""

    @cached_property
    def tables_digest(self) -> str:
        """Tells its embedding and head from those of others.

        Raises:
            TrainError: Drafters could not borrow them, as its files do not have them.
        """
        digest = digest_of(self.embedding_VD, self.head_VD)
        if Path(self.name).is_dir():
            vocab_size, width = self.head_VD.shape
            try:
                found = target_tables(self.name, vocab_size=vocab_size, width=width)
                if digest_of(*found) != digest:
                    raise NetFolderError("its files hold others than the model has")
            except NetFolderError as error:
                raise TrainError(
                    f"a drafter cannot borrow the target's embedding and head ({error}); train sorted, or mlp_speculator with tables 'own'"
                ) from error
        return digest

    @cached_property
    def output(self) -> OutputLayer:
        """From its states after the final norm to its logits. Raises TrainError where those do not follow from these."""
        return OutputLayer(self.model)

    @property
    def width(self) -> int:
        """Numbers of a hidden state."""
        return int(self.head_VD.shape[1])

    @property
    def num_blocks(self) -> int:
        """Its blocks."""
        return int(self.model.config.get_text_config().num_hidden_layers)

    @property
    def max_context(self) -> int | None:
        """Tokens that it reads at most; None: it does not say."""
        most: int | None = getattr(
            self.model.config.get_text_config(), "max_position_embeddings", None
        )
        return most if most is None or most > 0 else None  # -1: no limit

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Its end-of-text tokens."""
        return eos_token_ids(self.model)

    @property
    def tokenizer_fingerprint(self) -> str:
        """Digest of its tokenizer."""
        return tokenizer_fingerprint(self.tokenizer)

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.head_VD.device

    @property
    def embedding_VD(self) -> torch.Tensor:
        """Its table of tokens."""
        return matrix(self.model.get_input_embeddings()).detach()

    @property
    def head_VD(self) -> torch.Tensor:
        """Its output layer."""
        # Untyped in transformers.
        head: nn.Module = self.model.get_output_embeddings()  # type: ignore[no-untyped-call]
        return matrix(head).detach()

    @torch.no_grad()
    def features(self, tokens_BL: Int32s, layers: Sequence[Layer]) -> torch.Tensor:
        """Hidden states [B, L, D] at every position, those of the layers side by side.

        Raises:
            TrainError: The model has no such layer, or that one's state cannot be had.
        """
        base = getattr(self.model, self.model.base_model_prefix)
        blocks = self.num_blocks
        for layer in layers:
            if layer != "norm" and not 0 <= layer < blocks:
                raise TrainError(f"layer {layer}: give 'norm', or 0 to {blocks - 1}")
        ids = torch.from_numpy(tokens_BL.astype(np.int64)).to(self.device)
        with mixed_precision(self.device):
            output = base(
                input_ids=ids, use_cache=False, output_hidden_states=tuple(layers) != ("norm",)
            )
        return torch.cat(
            [
                output.last_hidden_state if layer == "norm" else output.hidden_states[layer]
                for layer in layers
            ],
            dim=-1,
        ).float()

    def write(
        self, prompts_BL: Int32s, length: int, seed: int, temperatures: Sequence[float]
    ) -> Int32s:
        """Rows [B, length] that begin with the prompts and go on as the model draws them."""
        prompts = torch.from_numpy(prompts_BL.astype(np.int64)).to(self.device)
        generator = torch.Generator(self.device).manual_seed(seed)
        rows = continue_rows(self.model, prompts, length, generator, temperatures)
        return rows.cpu().numpy().astype(np.int32)


def target_of(options: TargetTrainerOptions) -> FrozenTarget:
    """Reads the target of a trainer, which may take minutes: once it is known that the result can have a folder, that the options fit a target whose shape
    can be told, and that there are texts that can be read. Nothing is written.

    Raises:
        DataError: The texts cannot be used.
        TrainError: There is no such model or no room for a folder, or the options do not fit.
    """
    device = choose_device(options.device)
    if is_first():
        check_folder(options.out)
        _source_of(options.target)
        shape = target_shape(options.target)
        if shape is not None:
            _check_shape(options, shape.width, shape.num_blocks)
        read_texts(options.data)
    target = load_target(options.target, device)
    _check_shape(options, target.width, target.num_blocks)
    _ = target.output
    return target


def _check_shape(options: TargetTrainerOptions, width: int, num_blocks: int) -> None:
    try:
        options.check_target(width=width, num_blocks=num_blocks)
    except ValueError as error:
        raise TrainError(str(error)) from error


def _source_of(name: str, role: str = "target") -> ModelSource:
    """Where a model is. Raises TrainError where it is none that can be learnt from, as far as that is known before it is loaded."""
    try:
        source = resolve_model(name)
        if source.is_tabular:
            raise ValueError(f"{name!r} is a table, which has no hidden states")
        check_speaks(name, "give the model that it drafts for")
    except (ValueError, OSError) as error:
        raise TrainError(f"{role} {name!r}: {error}") from error
    return source


def load_target(name: str, device: torch.device, role: str = "target") -> FrozenTarget:
    """Reads a model and its tokenizer.

    Args:
        name: Folder or hub id, or demo:NAME.
        device: Gets it.
        role: What it is asked for as, for messages: a draft model is read likewise.

    Raises:
        TrainError: There is no such model, no service could serve it, or it has no tokenizer.
    """
    source = _source_of(name, role)
    try:
        # Else hours of training would make a drafter for a target that is refused when it is served.
        check_config(AutoConfig.from_pretrained(source.location), name=name)
        # With `output_loading_info` the result is a pair, which transformers does not say.
        loaded = cast(
            "tuple[PreTrainedModel, dict[str, set[str]]]",
            AutoModelForCausalLM.from_pretrained(
                source.location, dtype=torch.float32, output_loading_info=True
            ),
        )
        model, found = loaded
        missing, unexpected = set(found["missing_keys"]), set(found["unexpected_keys"])
        # Warnings go where the trainer speaks; its result alone goes to the output.
        with redirect_stdout(sys.stderr):
            check_weights(model, missing, unexpected, settings=EngineSettings(model=name))
        tokenizer = AutoTokenizer.from_pretrained(source.location)
    except UNREADABLE as error:
        raise TrainError(f"{role} {name!r}: {error}") from error
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise TrainError(f"{role} {name!r}: {type(tokenizer).__name__} is no fast tokenizer")
    nn.Module.requires_grad_(model, False)
    model.train(False)
    folder = Path(source.location) if source.is_local else None
    fingerprint = model_fingerprint(model, folder)
    is_folder = source.is_local and not name.startswith(DEMO_PREFIX)
    found_at = str(Path(source.location).absolute()) if is_folder else name
    return FrozenTarget(found_at, nn.Module.to(model, device), tokenizer, fingerprint)
