"""How many slots of how long a context a model gets in the memory there is. Pure: numbers in, numbers out.

A slot holds the keys and values of a whole context in every layer: also those with a sliding window keep all of it. Beside
slots and weights a pass needs memory of its own, which grows with the slots and rows that it shows to attention.
"""

from __future__ import annotations

from dataclasses import dataclass

USUAL_SLOTS = 16
"""Slots chosen at most: more is a matter of taste, and asked for."""

FLOOR_SLOTS = 4
"""Down to so many slots the whole context is kept; below, the context is shortened first."""

FLOOR_CONTEXT = 2_048
"""Down to this context the floor of slots is kept; below, slots are given up first."""

LEAST_CONTEXT = 4
"""Shortest context: a prompt token, and room for the look that the engine takes at a model when it loads it."""

CONTEXT_STEP = 256
"""A shortened context is a multiple of this, where it is longer."""

RESERVE = 0.03
"""Part of the memory that is left alone, for the allocator's gaps and what the driver takes."""

CPU_SHARE = 0.5
"""Part of the machine's memory, weights set aside, that a choice gives an actor on a CPU: target and drafter usually share one."""

MASK_KINDS = 2
"""Masks of one pass at a time: of full and of sliding layers."""


class DoesNotFit(ValueError):
    """The memory is too small for what was asked, or for the model at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What a model asks of memory."""

    num_layers: int
    row_bytes: int
    """Keys and values of one token in all layers."""

    weight_bytes: int
    """Weights that are not in memory yet."""

    max_context: int
    """Longest text."""

    vocab_size: int
    group: int = 1
    """Query heads of one key head."""

    itemsize: int = 4
    """Bytes of a number in weights, keys and values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a device has."""

    total: int | None
    """Bytes that explicit values may take: those that are free on a GPU, all of the machine's (or container's) on a CPU, where rows
    that nobody wrote take none. None: unknown, everything fits."""

    name: str
    """What messages call the device."""

    is_lazy: bool
    """Whether memory is only taken when it is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRoom:
    """What was chosen."""

    num_slots: int
    max_context: int
    needed: int
    """Bytes of everything: weights not loaded yet, slots, and a pass."""

    row_bytes: int
    """Keys and values of one token in all layers, as they were counted."""

    reason: str
    """For the log."""


def choose_room(
    facts: ModelFacts,
    memory: Memory,
    *,
    num_slots: int | None,
    max_context: int | None,
    max_scratch: int,
) -> CacheRoom:
    """Chooses what was left open, and checks what was not.

    The rule: the whole context in 16 slots; if that does not fit, in as many as do, down to 4; then 4 slots of a shorter
    context, down to 2,048 tokens; then fewer slots; then one slot of what there is. A given number of slots, or a given
    context, is kept, and the other follows. Given values may fill the device; a choice on a CPU takes half of what the
    weights leave of the machine, because target and drafter may each believe themselves alone there.

    Args:
        facts: The model.
        memory: The device.
        num_slots: Sessions at a time; None: to be chosen.
        max_context: Tokens of a sequence; None: to be chosen. At most the model's own.
        max_scratch: Tree nodes of a slot.

    Raises:
        DoesNotFit: With the numbers, and with values that fit, if any do.
        ValueError: A number is less than one.
    """
    for name, value in (("num_slots", num_slots), ("max_scratch", max_scratch)):
        if value is not None and value < 1:
            raise ValueError(f"{name} is {value}; it must be at least 1")
    costs = _Costs(facts, max_scratch)
    total = memory.total
    if total is None:
        context = max_context or facts.max_context
        slots = num_slots or USUAL_SLOTS
        return _room(costs, slots, context, f"the memory of {memory.name} is unknown")
    given = total - int(total * RESERVE) - costs.fixed
    if given <= 0:
        raise DoesNotFit(
            f"the weights take {_gib(facts.weight_bytes)} and a pass {_gib(costs.fixed - facts.weight_bytes)}, "
            f"and {memory.name} has {_gib(total)}; use a smaller model, a smaller dtype or another device"
        )
    budget = int(given * CPU_SHARE) if memory.is_lazy else given
    if num_slots is not None and max_context is not None:
        if costs.slots(num_slots, max_context) > given:
            raise _refusal(costs, memory, given, num_slots, max_context)
        return _room(costs, num_slots, max_context, "as set")
    if max_context is not None:
        slots = min(USUAL_SLOTS, costs.most_slots(budget, max_context))
        if slots < 1 and costs.slots(1, max_context) <= given:
            slots = 1
        if slots < 1:
            raise _refusal(costs, memory, given, 1, max_context)
        return _room(costs, slots, max_context, f"slots by the memory of {memory.name}")
    if num_slots is not None:
        context = costs.most_context(budget, num_slots)
        if context < min(FLOOR_CONTEXT, facts.max_context):
            context = costs.most_context(given, num_slots)
        if context < LEAST_CONTEXT:
            raise _refusal(costs, memory, given, num_slots, min(FLOOR_CONTEXT, facts.max_context))
        return _room(costs, num_slots, context, _why(costs, context, memory))
    slots, context = _both(costs, budget)
    if slots < 1 or context < LEAST_CONTEXT:
        slots, context = _both(costs, given)
    if slots < 1 or context < LEAST_CONTEXT:
        raise _refusal(costs, memory, given, 1, min(FLOOR_CONTEXT, facts.max_context))
    return _room(costs, slots, context, _why(costs, context, memory))


class _Costs:
    """Bytes of slots and passes."""

    def __init__(self, facts: ModelFacts, max_scratch: int) -> None:
        self.facts = facts
        self.max_scratch = max_scratch
        # Logits in the model's type, in float32, and once more while they are drawn from, of a pass that fills a slot's scratch.
        logits = max_scratch * facts.vocab_size * (facts.itemsize + 8)
        self.fixed = facts.weight_bytes + logits
        # Attention may gather the rows of a layer (and lay them out again), and builds masks of a prompt chunk's queries.
        gathered = 2 * facts.row_bytes // facts.num_layers
        masks = MASK_KINDS * max_scratch * facts.group * facts.itemsize
        self.of_row = facts.row_bytes + gathered + masks

    def slots(self, num_slots: int, context: int) -> int:
        """Bytes of so many slots, and of a pass over all of them."""
        return num_slots * (context + self.max_scratch) * self.of_row

    def most_slots(self, budget: int, context: int) -> int:
        return budget // self.slots(1, context)

    def most_context(self, budget: int, num_slots: int) -> int:
        """The longest context of so many slots; below `LEAST_CONTEXT` if none fits."""
        context = budget // (num_slots * self.of_row) - self.max_scratch
        if context >= self.facts.max_context:
            return self.facts.max_context
        return context // CONTEXT_STEP * CONTEXT_STEP if context > CONTEXT_STEP else context


def _both(costs: _Costs, budget: int) -> tuple[int, int]:
    whole = costs.facts.max_context
    slots = min(USUAL_SLOTS, costs.most_slots(budget, whole))
    if slots >= FLOOR_SLOTS:
        return slots, whole
    floor = min(FLOOR_CONTEXT, whole)
    for slots in range(FLOOR_SLOTS, 0, -1):
        context = costs.most_context(budget, slots)
        if context >= floor:
            return slots, context
    return 1, costs.most_context(budget, 1)


def _room(costs: _Costs, num_slots: int, context: int, reason: str) -> CacheRoom:
    needed = costs.fixed + costs.slots(num_slots, context)
    return CacheRoom(
        num_slots=num_slots,
        max_context=context,
        needed=needed,
        row_bytes=costs.facts.row_bytes,
        reason=reason,
    )


def _why(costs: _Costs, context: int, memory: Memory) -> str:
    if context == costs.facts.max_context:
        return "the model's whole context fits"
    return f"the model's {costs.facts.max_context} tokens do not fit the memory of {memory.name}"


def _refusal(
    costs: _Costs, memory: Memory, given: int, num_slots: int, max_context: int
) -> DoesNotFit:
    needed = costs.fixed + costs.slots(num_slots, max_context)
    slots, context = costs.most_slots(given, max_context), costs.most_context(given, num_slots)
    fitting = []
    if slots >= 1:
        fitting.append(f"num_slots up to {slots} with this context")
    if context >= LEAST_CONTEXT:
        fitting.append(f"max_context up to {context} with {num_slots} slots")
    advice = " or ".join(fitting) or "nothing of this model; use a smaller dtype or another device"
    return DoesNotFit(
        f"{num_slots} slots of {max_context} + {costs.max_scratch} rows (max_context + max_scratch), with what else a pass "
        f"needs, take {_gib(needed)}, and {memory.name} has {_gib(memory.total or 0)}; what fits: {advice}"
    )


def _gib(octets: int) -> str:
    return f"{octets / 2**30:.1f} GiB"
