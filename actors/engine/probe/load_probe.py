"""A look at a freshly loaded model: does tree attention over slots fit it?

"Any decoder-only model" cannot be decided from a list of names. So the model is looked at when it is loaded. What its layers ask
of attention at the end of its context is recorded and compared with what transformers itself would do there
(`probe_layers.py`). Then a few tokens are run, as transformers runs them (the reference), and, when the engine stands, as a tree
(here). A model that asks for what is not supported, or whose tree differs from the reference, is refused at load.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from outrider.actors.engine.attention.attention import UnsupportedModel
from outrider.actors.engine.protocol import Engine, Moves, Rows

PROBE_PREFIX = 8
"""Tokens before the probed tree. Any small number does: what changes with the length is looked at in `probe_layers.py`."""

PROBE_PARENTS = (-1, -1, 0, 1, 2)
"""The probed tree: two branches, of 3 and 2 nodes, interleaved, by ascending depth."""

PROBE_DEPTHS = (0, 0, 1, 1, 2)
"""Of its nodes."""

MIN_LIMIT = {torch.float32: 1e-3, torch.bfloat16: 0.03, torch.float16: 0.005}
"""Root mean square difference of logits between tree and reference, as a share of their spread, that is never too much.
Rounding gives about 1e-6 in float32; a branch that sees another, or an ignored position, gives 0.3 and more."""

ROUNDING_SHARE = 2.0
"""Times transformers' own rounding up to which a difference counts as rounding, too. Trees differ by half of it to all of it."""

NUM_ROUNDED = 2
"""Times that the longest branch is computed again in half precision, with inputs that are rounded otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeTree:
    """What the probe runs."""

    prefix: list[int]
    """Tokens before the tree; none where the context is too short."""

    tokens: list[int]
    """Of the tree's nodes, at least one."""

    parents: list[int]
    """Of the tree's nodes, -1 for a child of the prefix."""

    def branches(self) -> tuple[list[list[int]], list[tuple[int, int]]]:
        """Texts from the first token to each leaf, and for each node the text and the row of it that it is."""
        paths: list[list[int]] = []
        for token, parent in zip(self.tokens, self.parents, strict=True):
            paths.append([*(self.prefix if parent < 0 else paths[parent]), token])
        leaves = [path for node, path in enumerate(paths) if node not in self.parents]
        places = [
            (next(i for i, leaf in enumerate(leaves) if leaf[: len(path)] == path), len(path) - 1)
            for path in paths
        ]
        return leaves, places


def probe_tree(
    vocab_size: int, *, max_context: int, max_scratch: int, first_token: int = 1
) -> ProbeTree:
    """The tree, or as much of it as fits. Other first tokens give other trees of the same shape."""
    prefix_length = max(0, min(PROBE_PREFIX, max_context - 1 - max(PROBE_DEPTHS)))
    num_nodes = sum(prefix_length + depth < max_context for depth in PROBE_DEPTHS)
    num_nodes = min(num_nodes, max_scratch)
    tokens = [(7919 * i + first_token) % vocab_size for i in range(prefix_length + num_nodes)]
    return ProbeTree(
        prefix=tokens[:prefix_length],
        tokens=tokens[prefix_length:],
        parents=list(PROBE_PARENTS[:num_nodes]),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reference:
    """What transformers computes for the probed tree."""

    logits_NV: torch.Tensor
    """float32, for each node."""

    rounding: float
    """Greatest difference of a node's logits from those that transformers gives for inputs a last bit away, in other batches
    and by fused attention, as a share of the spread; 0 in float32, where this is not computed."""


def reference_of(model: PreTrainedModel, tree: ProbeTree, *, name: str) -> Reference:
    """Runs each branch of the tree as a text of its own, without a cache, step by step: some versions' fused attention leaves
    out what it cannot do, as 5.10 does with capped scores.

    Raises:
        ValueError: The model cannot run, or gives no numbers.
    """
    branches, places = tree.branches()
    try:
        model.set_attn_implementation("eager")
        first, longest = len(tree.prefix), max(map(len, branches))
        # What follows a branch changes nothing in it.
        texts = [branch + branch[-1:] * (longest - len(branch)) for branch in branches]
        alone = _run(model, texts, first)
    except torch.OutOfMemoryError:
        raise
    except (
        AttributeError,
        IndexError,
        NotImplementedError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        raise ValueError(
            f"{name} ({model.config.model_type}) cannot run texts of {longest} tokens "
            f"in transformers itself: {type(error).__name__}: {error}"
        ) from error
    logits_NV = torch.stack([alone[branch, row - first] for branch, row in places])
    if logits_NV.isnan().any():
        raise ValueError(f"{name} ({model.config.model_type}) gives no numbers: {_damage(model)}")
    if model.dtype == torch.float32:
        return Reference(logits_NV=logits_NV, rounding=0.0)
    return Reference(logits_NV=logits_NV, rounding=_rounding(model, tree, logits_NV))


def _rounding(model: PreTrainedModel, tree: ProbeTree, logits_NV: torch.Tensor) -> float:
    """See `Reference.rounding`. Small differences are not always small later: they may choose another expert."""
    try:
        model.set_attn_implementation("sdpa")
    except ValueError:  # it has step by step only
        model.set_attn_implementation("eager")
    branches, places = tree.branches()
    first, longest = len(tree.prefix), max(range(len(branches)), key=lambda i: len(branches[i]))
    rows = [row - first for branch, row in places if branch == longest]
    expected_NV = logits_NV[[branch == longest for branch, _ in places]]
    generator = torch.Generator().manual_seed(0)

    def nudge(_: torch.nn.Module, __: object, embedded: torch.Tensor) -> torch.Tensor:
        signs = torch.randint(-1, 2, embedded.shape, generator=generator).to(embedded)
        return embedded * (1 + signs * torch.finfo(embedded.dtype).eps)

    handle = model.get_input_embeddings().register_forward_hook(nudge)
    try:
        copies = _run(model, [branches[longest]] * NUM_ROUNDED, first)
    finally:
        handle.remove()
    return max(_errors(copy[rows], expected_NV).max().item() for copy in copies)


def _run(model: PreTrainedModel, texts: Sequence[Sequence[int]], first: int) -> torch.Tensor:
    """Logits from a row on. Shape (texts, rows from there, V)."""
    selection: dict[str, int] = {}
    # For large vocabularies, most of the time.
    if "logits_to_keep" in inspect.signature(model.forward).parameters:
        selection["logits_to_keep"] = len(texts[0]) - first
    ids = torch.tensor(texts, device=model.device)
    logits: torch.Tensor = model(input_ids=ids, use_cache=False, **selection).logits
    return logits[:, first - len(texts[0]) :].float()


def _damage(model: PreTrainedModel) -> str:
    """Why logits are not numbers."""
    for label, weight in model.named_parameters():
        if weight.is_floating_point() and not weight.isfinite().all():
            return f"weight {label} holds NaN or infinity; is the checkpoint damaged?"
    return f"it leaves the range of {model.dtype}; choose another dtype"


def _errors(logits_NV: torch.Tensor, expected_NV: torch.Tensor) -> torch.Tensor:
    """Root mean square difference of each node's logits, as a share of the spread of all. Shape (N,)."""
    spread = (expected_NV - expected_NV.mean(dim=1, keepdim=True)).square().mean().sqrt()
    return (logits_NV - expected_NV).square().mean(dim=1).sqrt() / spread.clamp(min=1e-6)


def check_tree(
    engine: Engine, tree: ProbeTree, reference: Reference, *, limit: float | None = None
) -> None:
    """Compares a tree through the engine with the reference of each branch.

    Args:
        engine: Of the model, with a free slot.
        tree: What to run.
        reference: What should come out.
        limit: Greatest difference as a share of the logits' spread; None: what rounding in the model's type allows.

    Raises:
        UnsupportedModel: They differ by more than rounding.
    """
    slot = engine.acquire()
    for start in range(0, len(tree.prefix), engine.max_scratch):
        chunk = tree.prefix[start : start + engine.max_scratch]
        parents = range(-1, len(chunk) - 1)
        engine.forward([Rows(slot=slot, tokens=chunk, parents=parents, logits="none")])
        engine.rebase(Moves.one(slot, range(len(chunk))))
    logits = engine.forward([Rows(slot=slot, tokens=tree.tokens, parents=tree.parents)])
    engine.release(slot)
    dtype = engine.spec.dtype
    errors_N = _errors(logits.values_RV, reference.logits_NV)
    # In half precision rounding may choose another expert for a node. What is wrong with attention is so for most.
    error = (errors_N.max() if dtype == torch.float32 else errors_N.median()).item()
    if limit is None:
        limit = max(MIN_LIMIT[dtype], ROUNDING_SHARE * reference.rounding)
    if not error <= limit:
        raise UnsupportedModel(
            f"{engine.spec.name} gives other logits for a tree than for its branches one by one (difference "
            f"{error:.3g} of their spread, limit {limit:.3g}); its attention depends on something else "
            "than keys, values and positions"
        )
