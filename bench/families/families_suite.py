"""`python -m bench families [NAME ...]`: which architectures of transformers run, and which are refused and why.

Each is made small and random, saved, and loaded as a service would; then a prompt in chunks, random trees, and compaction past
its windows, each row compared with a plain forward of transformers in float32. Without names, writes docs/models.md.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence

import torch
import transformers
from transformers import PreTrainedModel

from bench.families.family_models import CONTEXT, VOCAB_SIZE, model_of, names
from bench.families.family_table import Verdict, write
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.load.load_engine import load_engine
from outrider.actors.engine.protocol import Engine, Moves, Rows

PROMPT = 22
"""Tokens; longer than a window."""

LENGTH = 52
"""Committed tokens at which a run ends."""


def judge(name: str, *, in_half: bool = True) -> Verdict:
    """Makes, saves, loads and drives one architecture.

    Raises:
        Exception: transformers cannot make it.
    """
    model = model_of(name)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        settings = EngineSettings(model=folder, num_slots=2, max_context=CONTEXT, max_scratch=16)
        halved = EngineSettings(
            model=folder, num_slots=1, max_context=CONTEXT, max_scratch=16, dtype="bfloat16"
        )
        half = _refusal(halved, name) if in_half else ""
        refused = _refusal(settings, name)
        if refused:
            return Verdict(name=name, refused=refused, half=half)
        difference, num_rows = drive(load_engine(settings), model)
    return Verdict(name=name, refused="", difference=difference, num_rows=num_rows, half=half)


def _refusal(settings: EngineSettings, name: str) -> str:
    """Why settings cannot be loaded; empty if they can."""
    try:
        load_engine(settings)
    except ValueError as error:
        return str(error).replace(f"{settings.model!r}", "it").replace(settings.model, "it")
    return ""


def drive(engine: Engine, model: PreTrainedModel, *, seed: int = 0) -> tuple[float, int]:
    """Runs two texts by turns through an engine; gives the greatest difference from the plain model, and the rows compared."""
    choose = random.Random(seed)
    slots = [engine.acquire(), engine.acquire()]
    texts: list[list[int]] = [[], []]
    worst, count = 0.0, 0

    def compare(batch: list[Rows], paths: list[list[list[int]]]) -> None:
        nonlocal worst, count
        logits = engine.forward(batch)
        expected = _plain(model, [path for each in paths for path in each])
        scale = expected.std().clamp(min=1e-6)
        worst = max(worst, ((logits.values_RV - expected).abs().max() / scale).item())
        count += len(expected)

    while min(map(len, texts)) < LENGTH:
        nodes: list[Rows] = []
        of_nodes: list[list[list[int]]] = []
        for slot, text in zip(slots, texts, strict=True):
            parents = [-1, *range(6)]
            if len(text) >= PROMPT:
                parents = [choose.randint(max(-1, row - 3), row - 1) for row in range(7)]
            tokens = [choose.randrange(3, VOCAB_SIZE) for _ in parents]
            nodes.append(Rows(slot=slot, tokens=tokens, parents=parents))
            of_nodes.append(_paths(text, tokens, parents))
        compare(nodes, of_nodes)
        batch, paths = [], []
        for index, (rows, each) in enumerate(zip(nodes, of_nodes, strict=True)):
            end = choose.randrange(len(each)) if len(texts[index]) >= PROMPT else len(each) - 1
            kept = _below(rows.parents, end)
            engine.rebase(Moves.one(rows.slot, _way(rows.parents, end), kept))
            texts[index] = each[end]
            # A row behind the last that was kept, or behind the path's end.
            before = each[kept[-1]] if kept else each[end]
            token = choose.randrange(3, VOCAB_SIZE)
            batch.append(Rows(slot=rows.slot, tokens=[token], parents=[len(kept) - 1]))
            paths.append([[*before, token]])
        compare(batch, paths)
        for slot, text in zip(slots, texts, strict=True):
            engine.truncate(slot, len(text))
    return worst, count


def _paths(text: list[int], tokens: list[int], parents: list[int]) -> list[list[int]]:
    """The text of each node."""
    paths: list[list[int]] = []
    for token, parent in zip(tokens, parents, strict=True):
        paths.append([*(text if parent < 0 else paths[parent]), token])
    return paths


def _below(parents: Sequence[int], end: int) -> list[int]:
    """Nodes below one, ascending."""
    found = [end]
    for node, parent in enumerate(parents):
        if parent in found:
            found.append(node)
    return found[1:]


def _way(parents: Sequence[int], end: int) -> list[int]:
    """Nodes from the root to one."""
    way: list[int] = []
    while end >= 0:
        way.insert(0, end)
        end = parents[end]
    return way


@torch.no_grad()
def _plain(model: PreTrainedModel, paths: list[list[int]]) -> torch.Tensor:
    """Logits after each text as plain transformers computes them. Shape (texts, V)."""
    longest = max(map(len, paths))
    # What follows a text does not matter under a causal mask.
    ids = torch.tensor([[*path, *[3] * (longest - len(path))] for path in paths])
    every: torch.Tensor = model(input_ids=ids, use_cache=False).logits
    return every[torch.arange(len(paths)), torch.tensor([len(path) - 1 for path in paths])].float()


def main(wanted: Sequence[str]) -> None:
    """Judges what is named; or everything, and then writes the table."""
    transformers.utils.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    torch.set_num_threads(1)
    verdicts = []
    for name in wanted or names():
        verdict = judge(name)
        verdicts.append(verdict)
        print(f"{name}: {verdict.refused or f'{verdict.difference:.1e}'}", flush=True)
    if not wanted:
        write(verdicts)
