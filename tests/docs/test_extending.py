"""The methods of docs/extending.md work as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from tests.docs.examples import ROOT

from outrider.actors.draft.choice.drafter_registry import DRAFTERS
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.speculation.drafter_records import DrafterRecords
from outrider.actors.speculation.sampling.random_acts import UniformDecisions
from outrider.actors.speculation.selector_spec import DrafterOffer, SelectorSpec
from outrider.actors.speculation.trees.draft_tree import DraftTree, sources_by_parent
from outrider.actors.speculation.verifiers.typical import typical
from outrider.actors.train.trainer_spec import TrainerSpec
from outrider.cluster.config.schema import parse_config

TRAINING = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")

PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")


def written(language: str, page: str = PAGE) -> list[str]:
    """The blocks of a page in a language."""
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def run(block: str) -> dict[str, Any]:
    """What a block defines."""
    names: dict[str, Any] = {}
    code = compile(block, "docs/extending.md", "exec", dont_inherit=True)
    exec(code, names)  # noqa: S102 - the page is ours
    return names


def test_the_drafter() -> None:
    """It loads, and is what the shipped one is."""
    (spec,) = run(written("python")[0])["SPECS"]
    loaded = spec.build(DraftSettings(name="d", incarnation=1, method=spec.name))

    assert loaded.drafter.num_free_slots == 64
    assert (spec.needs_model, spec.options) == (False, DRAFTERS["repeat_last"].options)


def test_the_trainer(tmp_path: Path) -> None:
    """It is a trainer, and trains."""
    (spec,) = run(written("python", TRAINING)[0])["SPECS"]
    assert isinstance(spec, TrainerSpec)
    (tmp_path / "text").write_text("a b a")
    result = spec.run(spec.options(data=tmp_path / "text", out=tmp_path / "counts"))
    assert result.report == {"words": 2}
    assert (tmp_path / "counts").read_text() == "a\nb"


def test_the_verifier() -> None:
    """It decides as the shipped one does."""
    (spec,) = run(written("python")[1])["SPECS"]
    parents = (-1, -1, 0)
    rng = np.random.default_rng(4)
    for _ in range(50):
        tree = DraftTree(
            tokens_N=tuple(rng.integers(0, 5, 3).tolist()),
            parents_N=parents,
            sources_N=sources_by_parent(parents),
        )
        rows, uniforms = rng.dirichlet(np.ones(5), 4), rng.random(8)
        said = [
            verify(tree=tree, target_probs_NV=rows, decisions=UniformDecisions(uniforms))
            for verify in (spec.verify, typical)
        ]
        assert said[0] == said[1]
    assert not spec.is_lossless


def test_the_selector() -> None:
    """It takes turns: whoever drafted least is next."""
    (spec,) = run(written("python")[2])["SPECS"]
    assert isinstance(spec, SelectorSpec)
    selector = spec.build(DrafterRecords(), **spec.settled({}))
    offers = [DrafterOffer(name=name, num_sessions=0, is_at_work=False) for name in ("a", "b", "c")]
    drafted = []
    for _ in range(6):
        drafted.append(selector.ranked(offers)[0].name)
        selector.observe({drafted[-1]: 3}, 32)
    assert drafted == ["a", "b", "c"] * 2
    assert spec.at_work == 1


def test_the_configuration() -> None:
    """It is one."""
    (block,) = written("yaml")
    config = parse_config(yaml.safe_load(block), source="docs/extending.md")

    assert [drafter.method for drafter in config.drafters] == ["prompt_lookup", "repeat_last"]
    assert config.drafters[0].options == {"longest_match": 6}
