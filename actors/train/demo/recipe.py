"""The stages, shapes, schedules and sources of the demonstration models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from transformers import LlamaConfig, LlamaForCausalLM

from outrider.actors.train.loop.schedule import Schedule
from outrider.actors.train.text.corpus import CorpusSource
from outrider.actors.train.text.sources import SOURCES
from outrider.actors.train.text.train_tokenizer import CONTEXT, VOCABULARY_SIZE

STAGES = ("tokenizer", "target", "draft", "draft-small")


@dataclass(frozen=True)
class ModelShape:
    """Architecture of one model; a Llama with tied embeddings."""

    hidden: int
    layers: int
    heads: int
    key_value_heads: int
    intermediate: int
    vocabulary: int = VOCABULARY_SIZE


SHAPES = {
    "target": ModelShape(hidden=160, layers=20, heads=5, key_value_heads=1, intermediate=304),
    "draft": ModelShape(hidden=128, layers=2, heads=4, key_value_heads=2, intermediate=224),
    "draft-small": ModelShape(hidden=96, layers=1, heads=3, key_value_heads=1, intermediate=160),
}
SCHEDULES = {
    "target": Schedule(steps=600, warmup=30, decay_share=0.6),
    "draft": Schedule(steps=4500, seed=1),
    "draft-small": Schedule(steps=2400, seed=2),
}


@dataclass(frozen=True)
class LayerGrowth:
    """A part of the target's training during which it has fewer layers than in the end.

    A step costs what its layers cost, and most of what is learnt early needs few of them (Gong et al. 2019; Du et al. 2024,
    arXiv 2405.15319). The next part begins with the same function (Chen et al. 2016, arXiv 1511.05641): each added layer
    repeats one that is there, and what it writes to the residual stream begins at zero.
    """

    part: str
    layers: int
    schedule: Schedule


GROWTH = (
    LayerGrowth(
        "target-shallow",
        5,
        Schedule(steps=1000, row_length=128, long_row_length=256, decay_share=0.0),
    ),
    LayerGrowth(
        "target-half",
        10,
        Schedule(steps=500, row_length=128, long_row_length=256, warmup=30, decay_share=0.0),
    ),
)


@dataclass(frozen=True)
class Rollouts:
    """How much of its own writing the target adds to the drafts' text (rows of tokens).

    `rows` of a chunk fill whole batches of the drafts' schedules, the long ones of text among them counted.
    """

    chunks: int = 20
    rows: int = 112
    length: int = 256
    prompt_length: int = 48


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the weights besides the data."""

    sources: tuple[CorpusSource, ...] = SOURCES
    shapes: Mapping[str, ModelShape] = field(default_factory=lambda: SHAPES)
    schedules: Mapping[str, Schedule] = field(default_factory=lambda: SCHEDULES)
    growth: tuple[LayerGrowth, ...] = GROWTH
    rollouts: Rollouts = Rollouts()


def build(shape: ModelShape, special: dict[str, int]) -> LlamaForCausalLM:
    """A freshly initialised model, float32, on the CPU.

    Args:
        shape: architecture.
        special: ids of `bos`, `eos` and `pad`.
    """
    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_value_heads,
        intermediate_size=shape.intermediate,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=special["bos"],
        eos_token_id=special["eos"],
        pad_token_id=special["pad"],
    )
    return LlamaForCausalLM(config)
