"""Every temperature that a request may ask for, with a drafter of every kind: no number overflows, and no text changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.actors.draft.diffusion.small_diffusion import diffusion_drafter, small_net
from tests.actors.draft.methods.small_nested import VOCAB as NESTED_VOCAB
from tests.actors.draft.methods.small_nested import save
from tests.actors.draft.reference_nets import target_folder
from tests.actors.pair import test_foreign_pair as foreign
from tests.actors.pair.pair import Pair, texts_alone

from outrider.actors.draft.choice.drafter_registry import loading_method
from outrider.actors.draft.service.draft_server import load_method
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.tables.tabular_engine import Table, random_table
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.speculation.policies import DraftPolicies, RootPolicy

TEMPERATURES = [1e-45, 1e-40, 1e-30, 1e-6, 100.0]
SLOTS = 2 * len(TEMPERATURES) + 1
"""Sessions at a time: all temperatures with and without filters, and a usual one."""
NESTED = random_table(NESTED_VOCAB, 1, seed=9, concentration=0.2)


@dataclass(frozen=True)
class Drafting:
    """A drafter for one test, and the target that it fits."""

    table: Table
    fields: dict[str, Any]
    """Of `Pair`."""


def _of_folder(written: foreign.Written) -> Callable[[Path], Drafting]:
    def drafting(folder: Path) -> Drafting:
        target, _, _ = target_folder(folder / "t")
        return _loaded(foreign.TARGET, str(written(folder / "d")), {"target": str(target)})

    return drafting


def _loaded(table: Table, model: str, options: dict[str, Any]) -> Drafting:
    method = loading_method(model)
    assert method is not None
    engine = EngineSettings(model=model, num_slots=SLOTS)
    loaded = load_method(
        DraftSettings(name="d", incarnation=1, method=method, options=options, engine=engine)
    )
    fields = {"feedback": loaded.feedback, "method": (loaded.sessions, loaded.drafter)}
    return Drafting(table, fields)


def _sorted(folder: Path) -> Drafting:
    return _loaded(NESTED, save(folder / "n", 4, (1, 2, 4)), {})


def _diffusion(folder: Path) -> Drafting:
    return Drafting(foreign.TARGET, {"method": diffusion_drafter(small_net(), num_slots=SLOTS)})


def _model(folder: Path) -> Drafting:
    return Drafting(foreign.TARGET, {})


DRAFTINGS: dict[str, Callable[[Path], Drafting]] = {
    "model": _model,
    "sorted": _sorted,
    "diffusion": _diffusion,
    "medusa": _of_folder(foreign.medusa),
    "mlp": _of_folder(foreign.mlp),
    "dflash": _of_folder(foreign.dflash),
    "dspark": _of_folder(foreign.dspark),
    "eagle3": _of_folder(foreign.eagle3),
    "mtp": _of_folder(foreign.mtp),
}


@pytest.mark.parametrize("name", DRAFTINGS)
def test_no_temperature_fails_a_drafter(tmp_path: Path, name: str) -> None:
    """Nor a session beside it; with and without filters, and with the target's own candidates."""
    usual = Sampling(seed=5, max_tokens=30, temperature=0.8)
    asked = [replace(usual, seed=3, temperature=temperature) for temperature in TEMPERATURES]
    filtered = [replace(one, top_p=0.9, min_p=0.01, logit_bias={3: 5.0}) for one in asked]
    samplings = [*asked, *filtered, usual]
    drafting = DRAFTINGS[name](tmp_path)
    roots = Speculation(policies=DraftPolicies(roots=RootPolicy.TARGET))
    prompt = [3, 1, 4, 1, 5]
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        pair = Pair(drafting.table, drafting.table, **drafting.fields)
        for number, sampling in enumerate(samplings):
            pair.open(number, sampling, roots if sampling in asked else Speculation(), prompt)
        pair.run()
        plain = texts_alone(drafting.table, samplings, prompt)
    assert list(pair.texts.values()) == plain
    assert not pair.draft.stats.failures
    assert all(pair.stats(number).proposed > 0 for number in pair.texts)
