"""Draft nets and targets that are named by their hub ids: told, fetched and loaded as from folders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from tests.actors.draft import reference_nets as plain
from tests.actors.draft.reference_nets import WIDTH
from tests.actors.pair.test_foreign_pair import eagle3
from tests.fake_hub import FakeHub

PROGRAM = """
import json, sys
from outrider.actors.draft.service.draft_server import load_method
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.cluster.config.drafter_folders import found_drafters
from outrider.cluster.start.commands import service_config

for pair in sys.argv[1:]:
    target, draft = pair.split()
    config = service_config(None, targets=[target], drafts=[draft])
    (drafter,) = config.drafters
    found, problems = found_drafters(config.drafters, config.targets)
    said = {"method": drafter.method, "found": found, "problems": [one.message for one in problems]}
    if drafter.options and not problems:
        engine = EngineSettings(model=draft, num_slots=2)
        settings = DraftSettings(
            name="d", incarnation=1, method=drafter.method, options=drafter.options, engine=engine
        )
        loaded = load_method(settings)
        said["feedback"] = str(loaded.feedback)
        said["fingerprint"] = loaded.model_fingerprint
    print(json.dumps(said))
"""


def test_ids_of_a_hub_are_as_good_as_folders(tmp_path: Path) -> None:
    """Of the target only the files that hold its tables are fetched; once there, the hub is not needed."""
    hub = FakeHub(tmp_path / "hub")
    target, draft = _models(hub.folder / "owner")
    with hub.serving() as address:
        (remote,) = _run(tmp_path, address, "owner/target owner/draft")
        fetched = set(hub.fetched)
    cached, local = _run(tmp_path, "", "owner/target owner/draft", f"{target} {draft}")
    assert local["method"] == "eagle3"

    for one in (remote, cached):
        assert {name: one[name] for name in ("method", "feedback", "fingerprint", "problems")} == {
            name: local[name] for name in ("method", "feedback", "fingerprint", "problems")
        }
        assert "owner/draft is an EAGLE-3 checkpoint" in one["found"][0]
    assert {one for one in fetched if one.startswith("owner/target")} == {
        "owner/target/config.json",
        "owner/target/model.safetensors.index.json",
        "owner/target/model-00001-of-00002.safetensors",
    }


def test_a_language_model_is_not_fetched_to_be_told(tmp_path: Path) -> None:
    """A target of another width; a language model, of which nothing but its shape is asked for; a hub that has no such model."""
    hub = FakeHub(tmp_path / "hub")
    _models(hub.folder / "owner")
    plain.target_folder(hub.folder / "owner" / "narrow", hidden_size=12)

    with hub.serving() as address:
        narrow, language, nothing = _run(
            tmp_path,
            address,
            "owner/narrow owner/draft",
            "owner/target owner/narrow",
            "owner/target owner/nothing",
        )

    assert "made for 24 numbers a hidden state" in narrow["problems"][0]
    assert (language["method"], language["problems"]) == ("autoregressive", [])
    assert (nothing["method"], nothing["problems"]) == ("autoregressive", [])
    assert "owner/narrow/model.safetensors" not in hub.fetched


def _models(folder: Path) -> tuple[Path, Path]:
    """A target in two files, the first of which has its tables, and a net that borrows its embedding."""
    target, _, _ = plain.target_folder(folder / "target")
    first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    (target / "model.safetensors").rename(target / first)
    draw = plain.numbers(7)
    save_file({"model.layers.0.mlp.up_proj.weight": draw(WIDTH, WIDTH)}, target / second)
    parts = dict.fromkeys(("model.embed_tokens.weight", "lm_head.weight"), first)
    parts["model.layers.0.mlp.up_proj.weight"] = second
    (target / "model.safetensors.index.json").write_text(json.dumps({"weight_map": parts}))
    return target, eagle3(folder / "draft")


def _run(folder: Path, address: str, *pairs: str) -> list[Any]:
    """What a process of its own says of each target and net; without an address the hub is out of reach."""
    hub = {"HF_ENDPOINT": address} if address else {"HF_HUB_OFFLINE": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *pairs],
        env={**os.environ, "HF_HUB_OFFLINE": "0", "HF_HOME": str(folder / "cache"), **hub},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
