"""A model that gives other scores after some tokens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import torch

from outrider.actors.engine.protocol import Engine, Logits, Rows


def alter_scores(
    model: Engine, tokens: Collection[int], change: Callable[[torch.Tensor], None]
) -> None:
    """From now on the scores of rows that hold one of these tokens are changed, in place."""
    forward = model.forward

    def altered(batch: Sequence[Rows]) -> Logits:
        logits = forward(batch)
        for entry, rows in enumerate(batch):
            wanted = {"all": rows.tokens, "last": rows.tokens[-1:], "none": ()}[rows.logits]
            for place, token in enumerate(wanted, start=logits.offsets[entry]):
                if token in tokens:
                    change(logits.values_RV[place])
        return logits

    setattr(model, "forward", altered)  # noqa: B010 - a method of this one instance
