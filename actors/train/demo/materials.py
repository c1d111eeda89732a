"""What the parts of a training run share: the corpus, the tokenizer and the models that are there."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path

import torch
from rich.console import Console
from torch import nn
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from outrider.actors.train.demo.recipe import Recipe, build
from outrider.actors.train.text.corpus import Document, load
from outrider.actors.train.text.packing import Tokens, mix_stream, texts_digest
from outrider.actors.train.text.train_tokenizer import encode_documents, load_tokenizer
from outrider.actors.train.training_errors import TrainError

STREAM_SEED = 20


class Materials:
    """Text of a data folder and models of an output folder; the corpus is read and encoded once."""

    def __init__(
        self, data_dir: Path, out: Path, device: torch.device, recipe: Recipe, console: Console
    ) -> None:
        self.out, self.device, self.recipe, self.console = out, device, recipe, console
        self._data_dir = data_dir

    @cached_property
    def documents(self) -> dict[str, tuple[list[Document], list[Document]]]:
        """Of each source, what is trained on and what is held out."""
        return {source.name: load(self._data_dir, source) for source in self.recipe.sources}

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """The trained one.

        Raises:
            TrainError: There is none yet.
        """
        folder = self.out / "tokenizer"
        if not (folder / "tokenizer_config.json").exists():
            raise TrainError(f"{folder}: no tokenizer yet; run the tokenizer stage first")
        return load_tokenizer(folder)

    def stream(self, num_tokens: int, seed: int) -> Tokens:
        """Training text of all sources, mixed by their weights."""
        return mix_stream(self._encoded, self._weights, num_tokens, STREAM_SEED + seed)

    @cached_property
    def texts(self) -> str:
        """Tells training texts apart, as the tokenizer writes them."""
        return f"{texts_digest(self._encoded, weights=self._weights):016x}"

    @property
    def _weights(self) -> dict[str, float]:
        return {source.name: source.weight for source in self.recipe.sources}

    @cached_property
    def _encoded(self) -> dict[str, list[Tokens]]:
        """What is trained on, of each source."""
        tokenizer = self.tokenizer()
        with self.console.status("encoding the corpus"):
            encoded = {
                name: encode_documents(tokenizer, documents)
                for name, (documents, _) in self.documents.items()
            }
        sizes = ", ".join(f"{k} {sum(map(len, v)):,}" for k, v in encoded.items())
        self.console.print(f"tokens: {sizes}")
        return encoded

    def build(self, stage: str, layers: int | None = None) -> LlamaForCausalLM:
        """A freshly initialised model, of the recipe's depth or another."""
        vocabulary = self.tokenizer()
        torch.manual_seed(self.recipe.schedules[stage].seed)
        special = {
            "bos": vocabulary.bos_token_id,
            "eos": vocabulary.eos_token_id,
            "pad": vocabulary.pad_token_id,
        }
        shape = self.recipe.shapes[stage]
        shape = replace(shape, layers=shape.layers if layers is None else layers)
        return nn.Module.to(build(shape, special), self.device)

    def load(self, name: str) -> LlamaForCausalLM:
        """A trained model, frozen.

        Raises:
            TrainError: There is no such model yet.
        """
        folder = self.out / name
        if not folder.is_dir():
            raise TrainError(f"{folder}: no such model yet; run the {name} stage first")
        model: LlamaForCausalLM = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
        model.train(False)
        model.requires_grad_(False)
        return nn.Module.to(model, self.device)
