"""Checkpoints as the library `speculators` 0.9.0 writes them: what is drafted is what it computes itself (`library/record.py`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.actors.draft.block import test_block_formats as slots
from tests.actors.draft.checkpoints.library.filling import (
    DRAFTED,
    FOLDER,
    PAIRS,
    states,
    write_checkpoint,
    write_target,
)
from tests.actors.draft.eagle import test_eagle_formats as pairs
from tests.actors.draft.reference_nets import VOCAB, WIDTH
from torch import Tensor

from outrider.actors.draft.block.block_file import load_block_net
from outrider.actors.draft.checkpoints.checkpoint_format import UnfitCheckpoint
from outrider.actors.draft.choice.drafter_registry import loading_method
from outrider.actors.draft.eagle.eagle_file import load_eagle
from outrider.actors.draft.on_states.known_formats import found_in

RECORDED: dict[str, dict[str, Any]] = {
    file.stem: json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))
}
REFUSED = {
    "eagle3-two-layers": "it has 2 layers; EAGLE-3 nets of one run here",
    "peagle": "P-EAGLE predicts several tokens",
    "dflash2": "DFlash 2 has convolutions",
    "xpress": "'xpress', which nothing here reads",
}
METHODS = {"eagle3": "eagle3", "mtp": "eagle3", "dflash": "dspark", "dspark": "dspark"}


def drafted(method: str, folder: Path, target: str) -> Tensor:
    """Logits of the service's engine, for the inputs of the recording."""
    if method == "dspark":
        return slots.drafted(load_block_net(folder, target=target), states(slots.LENGTH, 2), [9, 4])
    net = load_eagle(folder, target=target)
    return pairs.drafted(net, states(PAIRS, len(net.config.taps)))


def spread(logits: Tensor) -> Tensor:
    """Those of the drafted ids among those of all."""
    if logits.shape[-1] == VOCAB:
        return logits
    every = torch.full((len(logits), VOCAB), -torch.inf)
    every[:, DRAFTED] = logits
    return every


@pytest.mark.parametrize("name", sorted(RECORDED.keys() - REFUSED.keys()))
def test_what_is_drafted_is_what_the_library_computes(tmp_path: Path, name: str) -> None:
    """Every field and tensor that it writes is understood, or known to be of no use."""
    recorded = RECORDED[name]
    target = write_target(tmp_path / "t")
    folder = write_checkpoint(tmp_path / "d", recorded["config"], recorded["shapes"])
    method = METHODS[recorded["config"]["speculators_model_type"]]
    assert loading_method(str(folder)) == method
    expected = spread(torch.tensor(recorded["logits"]))
    found = drafted(method, folder, target)[: len(expected)]
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-5)


def test_tables_that_earlier_versions_store_are_the_targets_again(tmp_path: Path) -> None:
    """Before 0.9.0 the library stored embedding and head of a net of all tokens, too."""
    recorded = RECORDED["dflash-window"]
    tables = dict.fromkeys(("embed_tokens.weight", "lm_head.weight"), (VOCAB, WIDTH))
    folder = write_checkpoint(tmp_path / "d", recorded["config"], {**recorded["shapes"], **tables})
    found = drafted("dspark", folder, target="")
    torch.testing.assert_close(found, torch.tensor(recorded["logits"]), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_nothing_here_computes_is_refused_by_name(tmp_path: Path, name: str) -> None:
    """Before a weight is read."""
    recorded = RECORDED[name]
    folder = write_checkpoint(tmp_path / "d", recorded["config"], recorded["shapes"])
    with pytest.raises(UnfitCheckpoint, match=REFUSED[name]):  # noqa: PT012 - either says it
        found = found_in(folder)
        assert found is not None
        found.translated("")
