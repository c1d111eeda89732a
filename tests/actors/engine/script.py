"""Random operations on an engine, mirrored on plain texts."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from outrider.actors.engine.protocol import Engine, Moves, Rows

VOCAB_SIZE = 61
CONTEXT = 96

PlainLogits = Callable[[str, Sequence[Sequence[int]]], torch.Tensor]


@dataclass
class Text:
    """What a slot should hold, as plain token lists."""

    cached: list[int] = field(default_factory=list)
    scratch: list[tuple[int, int]] = field(default_factory=list)

    def path(self, node: int) -> list[int]:
        """Scratch rows from the last cached row to a node."""
        rows: list[int] = []
        while node >= 0:
            rows.append(node)
            node = self.scratch[node][1]
        return rows[::-1]

    def upto(self, node: int) -> list[int]:
        """Prefix and path."""
        return self.cached + [self.scratch[row][0] for row in self.path(node)]


class Script:
    """Random operations on an engine, mirrored on texts."""

    def __init__(self, engine: Engine, seed: int, *, num_sessions: int = 3):
        self.engine = engine
        self.random = random.Random(seed)
        self.texts = {engine.acquire(): Text() for _ in range(num_sessions)}
        self.kept: dict[int, list[int]] = {}

    def grow(self) -> tuple[torch.Tensor, list[list[int]]]:
        """Runs a batch; gives its logits and the texts that they should come after."""
        batch, wanted = [], []
        slots = self.random.sample(sorted(self.texts), self.random.randint(1, len(self.texts)))
        for slot in slots:
            text = self.texts[slot]
            room = min(self.engine.max_scratch - len(text.scratch), CONTEXT - 30 - len(text.cached))
            if room < 1:
                continue
            is_chunk = not text.cached or self.random.random() < 0.3
            count = self.random.randint(1, min(room, 16 if is_chunk else 8))
            parents = []
            first = len(text.scratch)
            for row in range(first, first + count):
                parents.append(row - 1 if is_chunk else self.random.randint(-1, row - 1))
            tokens = [self.random.randrange(VOCAB_SIZE) for _ in parents]
            text.scratch.extend(zip(tokens, parents, strict=True))
            which = self.random.choice(["all", "all", "last", "none"])
            first_wanted = {"all": first, "last": first + count - 1, "none": first + count}[which]
            wanted += [text.upto(row) for row in range(first_wanted, first + count)]
            batch.append(Rows(slot=slot, tokens=tokens, parents=parents, logits=which))  # type: ignore[arg-type]
        if not batch:
            return torch.empty(0, VOCAB_SIZE), []
        logits = self.engine.forward(batch)
        counts = [rows.logits for rows in batch]
        assert len(logits.offsets) == len(counts) + 1
        return logits.values_RV, wanted

    def rearrange(self) -> None:
        """Rebases, truncates, frees or copies."""
        for slot in sorted(self.texts):
            text = self.texts[slot]
            action = self.random.random()
            if action < 0.6:
                self._rebase(slot, text)
            elif action < 0.7:
                length = self.random.randint(0, len(text.cached))
                self.engine.truncate(slot, length)
                self.texts[slot] = Text(cached=text.cached[:length])
            elif action < 0.8:
                keep = self.random.randint(0, len(text.cached))
                self.engine.release(slot, keep=keep)
                self.kept[slot] = text.cached[:keep]
                del self.texts[slot]
                self._acquire_again()

    def _rebase(self, slot: int, text: Text) -> None:
        path: list[int] = []
        if text.scratch and self.random.random() < 0.9:
            path = text.path(self.random.randrange(len(text.scratch)))
        end = path[-1] if path else -1
        kept = [end]
        for row, (_, parent) in enumerate(text.scratch):
            if parent in kept and row not in path and self.random.random() < 0.7:
                kept.append(row)
        keep = kept[1:]
        self.engine.rebase(Moves.one(slot, path, keep))
        self.texts[slot] = Text(
            cached=text.cached + [text.scratch[row][0] for row in path],
            scratch=[(text.scratch[row][0], kept.index(text.scratch[row][1]) - 1) for row in keep],
        )

    def _acquire_again(self) -> None:
        """Takes a free slot with rows that were kept there, or with a copy of some other slot's."""
        slot = self.random.choice(sorted(self.kept))
        kept = self.kept.pop(slot)
        keep = self.random.choice([0, self.random.randint(0, len(kept))])
        assert self.engine.acquire(slot, keep=keep) == slot
        self.texts[slot] = Text(cached=kept[:keep])
        if keep == 0:
            self._copy_into(slot)

    def _copy_into(self, empty: int) -> None:
        source = self.random.choice(sorted({*self.texts, *self.kept}))
        rows = self.kept[source] if source in self.kept else self.texts[source].cached
        length = self.random.randint(0, len(rows))
        self.engine.copy_prefix(source, empty, length)
        self.texts[empty] = Text(cached=rows[:length])

    def check_counts(self) -> None:
        """The engine's counts are those of the texts."""
        for slot, text in self.texts.items():
            assert (len(text.cached), len(text.scratch)) == (
                self.engine.cached(slot),
                self.engine.scratch(slot),
            )


def worst_error(
    script: Script, family: str, plain_logits: PlainLogits, *, num_steps: int = 30
) -> float:
    """Greatest difference of logits over a script."""
    worst, num_compared = 0.0, 0
    for _ in range(num_steps):
        logits, texts = script.grow()
        num_compared += len(texts)
        if texts:
            expected = plain_logits(family, texts)
            worst = max(worst, (logits.cpu() - expected).abs().max().item())
        script.rearrange()
        script.check_counts()
    assert num_compared > 100
    return worst
