"""Slots and context by the memory: that models start wherever their weights fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.actors.engine.kv.sizing import (
    LEAST_CONTEXT,
    USUAL_SLOTS,
    CacheRoom,
    DoesNotFit,
    Memory,
    ModelFacts,
    choose_room,
)

GIB = 2**30


def facts(
    layers: int, key_heads: int, head_dim: int, weights: float, context: int, vocab: int, group: int
) -> ModelFacts:
    """A model in bfloat16; weights in 1e9 numbers."""
    return ModelFacts(
        num_layers=layers,
        row_bytes=2 * layers * key_heads * head_dim * 2,
        weight_bytes=int(weights * 2e9),
        max_context=context,
        vocab_size=vocab,
        group=group,
        itemsize=2,
    )


MODELS = {
    "Llama-3.1-8B": facts(32, 8, 128, 8.03, 131_072, 128_256, 4),
    "Qwen3-8B": facts(36, 8, 128, 8.19, 40_960, 151_936, 4),
    "Gemma-3-4B": facts(34, 4, 256, 3.88, 131_072, 262_208, 2),
    # Of 131,072 positions those that it was trained for first, beyond which rows are rescaled.
    "Phi-3.5-mini": facts(32, 32, 96, 3.82, 4_096, 32_064, 1),
}
SHIPPED = ModelFacts(
    num_layers=8,
    row_bytes=2 * 8 * 8 * 64 * 4,
    weight_bytes=40_000_000,
    max_context=2_048,
    vocab_size=8_192,
)


def gpu(gib: float) -> Memory:
    """A GPU of which everything is free."""
    return Memory(total=int(gib * GIB), name="cuda:0", is_lazy=False)


def machine(gib: float) -> Memory:
    """A CPU's memory."""
    return Memory(total=int(gib * GIB), name="this machine", is_lazy=True)


def choose(
    model: ModelFacts, memory: Memory, slots: int | None = None, context: int | None = None
) -> CacheRoom:
    """With the usual scratch rows."""
    return choose_room(model, memory, num_slots=slots, max_context=context, max_scratch=320)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("gib", [80, 24, 16])
def test_models_start_where_their_weights_fit(name: str, gib: int) -> None:
    """With a room that is used well and does not overflow, slots with rows for prompts and trees and all."""
    model = MODELS[name]
    if model.weight_bytes > 0.95 * gib * GIB:
        with pytest.raises(DoesNotFit, match="use a smaller model, a smaller dtype"):
            choose(model, gpu(gib))
        return
    room = choose(model, gpu(gib))
    assert 1 <= room.num_slots <= USUAL_SLOTS
    assert 1_024 <= room.max_context <= model.max_context
    assert room.max_context >= 2_048 or room.num_slots == 1
    assert room.needed <= gib * GIB
    rows = room.num_slots * (room.max_context + 320)
    assert room.needed > model.weight_bytes + rows * model.row_bytes
    # More would not fit, or is not wanted.
    if room.max_context < model.max_context:
        assert room.num_slots <= 4
        with pytest.raises(DoesNotFit):
            choose(model, gpu(gib), room.num_slots, room.max_context + 512)
    elif room.num_slots < USUAL_SLOTS:
        with pytest.raises(DoesNotFit):
            choose(model, gpu(gib), room.num_slots + 1, room.max_context)


def test_slots_go_before_context_and_context_before_the_last_slots() -> None:
    """With less and less memory: 16 whole contexts, fewer, four shorter ones, and one of 2,048."""
    model = MODELS["Qwen3-8B"]
    rooms = [choose(model, gpu(gib)) for gib in (200, 80, 30, 17.3)]
    assert [room.num_slots for room in rooms[:1]] == [USUAL_SLOTS]
    assert rooms[0].max_context == rooms[1].max_context == model.max_context
    assert 4 <= rooms[1].num_slots < USUAL_SLOTS
    assert rooms[2].num_slots == 4
    assert 2_048 <= rooms[2].max_context < model.max_context
    assert rooms[3].num_slots < 4
    assert rooms[3].max_context >= 2_048


def test_the_shipped_pair_starts_with_32_slots() -> None:
    """As in the README, on a small machine and a small GPU."""
    for memory in (machine(4), gpu(8)):
        room = choose(SHIPPED, memory, slots=32)
        assert (room.num_slots, room.max_context) == (32, 2_048)


def test_what_does_not_fit_is_refused_with_what_does() -> None:
    """Both numbers of the message are right, and neither can be one more."""
    model, memory = MODELS["Llama-3.1-8B"], gpu(80)
    with pytest.raises(DoesNotFit) as caught:
        choose(model, memory, 16, 131_072)
    message = str(caught.value)
    slots = int(message.split("num_slots up to ")[1].split()[0])
    context = int(message.split("max_context up to ")[1].split()[0])
    assert choose(model, memory, slots, 131_072).num_slots == slots
    assert choose(model, memory, 16, context).max_context == context
    with pytest.raises(DoesNotFit):
        choose(model, memory, slots + 1, 131_072)
    with pytest.raises(DoesNotFit):
        choose(model, memory, 16, context + 256)


def test_one_of_two_is_kept() -> None:
    """What is set stays as it is; the other follows."""
    model, memory = MODELS["Llama-3.1-8B"], gpu(80)
    by_slots = choose(model, memory, slots=16)
    assert by_slots.num_slots == 16
    assert LEAST_CONTEXT < by_slots.max_context < model.max_context
    by_context = choose(model, memory, context=32_768)
    assert by_context.max_context == 32_768
    assert 4 < by_context.num_slots <= USUAL_SLOTS


def test_a_machine_may_be_filled_on_purpose_and_is_shared_otherwise() -> None:
    """Rows that nobody writes take no memory on a CPU; but target and drafter choose without asking each other."""
    model, memory = MODELS["Qwen3-8B"], machine(64)
    chosen = choose(model, memory)
    assert chosen.needed - model.weight_bytes < 0.55 * (64 * GIB - model.weight_bytes)
    on_purpose = choose(model, memory, chosen.num_slots + 1, chosen.max_context)
    assert on_purpose.needed <= 64 * GIB


def test_logits_take_room() -> None:
    """A vocabulary ten times as large leaves fewer slots."""
    model = MODELS["Qwen3-8B"]
    wide = replace(model, vocab_size=10 * model.vocab_size)
    assert choose(wide, gpu(80)).num_slots < choose(model, gpu(80)).num_slots


def test_memory_that_is_not_known_refuses_nothing() -> None:
    """On a system that does not tell."""
    memory = Memory(total=None, name="this machine", is_lazy=True)
    model = MODELS["Llama-3.1-8B"]
    assert choose(model, memory).num_slots == USUAL_SLOTS
    assert choose(model, memory, 4_096).max_context == model.max_context
