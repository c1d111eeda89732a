"""Files that a configuration names: `config validate` refuses what `serve` would, in the same words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from outrider.cluster.config.config_errors import ConfigError
from outrider.cluster.config.schema import parse_config
from outrider.cluster.process.command_failed import CommandFailed
from outrider.cluster.start.commands import config_validate, serve
from outrider.cluster.start.local_checks import problems_here

DEMO = "targets: [{model: 'demo:target'}]\n"

CASES = {
    "no table": (
        "targets: [{model: 'tabular:/no/x.npz'}]",
        "targets[0].model: ",
        "there is no file",
    ),
    "a table that is none": (
        "targets: [{model: 'tabular:HERE'}]",
        "targets[0].model: ",
        "is not a table",
    ),
    "no folder": ("targets: [{model: /no/such}]", "targets[0].model: ", "no such folder"),
    "a name without end": (
        f"targets: [{{model: {'x' * 5000}}}]",
        "targets[0].model: ",
        "File name too long",
    ),
    "nobody's home": (
        f"{DEMO}drafters: [{{model: ~nobody-has-this-name/x}}]",
        "drafters[0].model: ",
        "cannot be looked for",
    ),
    "a draft net for a target": (
        "targets: [{model: 'demo:eagle3'}]",
        "targets[0].model: ",
        "name it under drafters",
    ),
    "a resource that never comes": (
        "targets: [{model: 'demo:target', resources: {gold: 1}}]",
        "targets[0].resources.gold: ",
        "has 0: see cluster.local_resources",
    ),
    "no certificate": (
        f"{DEMO}security: {{public: {{cert: /no/a, key: /no/b}}}}",
        "security.public: ",
        "cannot read /no/a",
    ),
    "tokens without end": (
        f"{DEMO}security: {{public: {{tokens: /dev/zero}}}}",
        "security.public.tokens: ",
        "no ordinary file",
    ),
}


@pytest.mark.parametrize("case", list(CASES))
def test_a_file_is_looked_for_before_anything_starts(case: str, tmp_path: Path) -> None:
    """The key that names it and the reason, no traceback."""
    text, place, reason = CASES[case]
    broken = tmp_path / "broken.npz"
    broken.write_bytes(b"PK\x03\x04 and no more")
    config = tmp_path / "config.yaml"
    listen = "service: {listen: '127.0.0.1:0'}\n"
    config.write_text(listen + text.replace("HERE", str(broken)))
    for command in (config_validate, lambda file: serve(config=file)):
        with pytest.raises(CommandFailed) as refused:
            command(config)
        assert place in str(refused.value)
        assert reason in str(refused.value)
        assert len(str(refused.value)) < 1_500


def test_a_cluster_has_files_of_its_own(tmp_path: Path) -> None:
    """They need not lie where the file is checked."""
    config = tmp_path / "config.yaml"
    config.write_text("cluster: {address: auto}\ntargets: [{model: 'tabular:/no/x.npz'}]\n")
    assert config_validate(config)["targets"][0]["model"] == "tabular:/no/x.npz"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"exit": 4}, "exit is 4; 'demo:sorted' has exits after 1, 2, 3 layers"),
        ({"exits": "1,9"}, r"'demo:sorted': exits is \[1, 9\]; they must be ascending numbers of"),
        ({"exit": 3, "exits": "1,2"}, None),
        ({"exit": 2}, ""),
        ({"exits": "2,3"}, ""),
    ],
)
def test_exits_that_a_checkpoint_does_not_have(
    options: dict[str, object], problem: str | None
) -> None:
    """Before anything is started, where the checkpoint is at hand."""
    drafter = {"method": "sorted", "model": "demo:sorted", "options": options}
    if problem is None:
        with pytest.raises(ConfigError, match="none of exits"):
            parse_config({"drafters": [drafter]}, source="test")
        return
    found = problems_here(parse_config({"drafters": [drafter]}, source="test"))
    assert [one.path for one in found] == ["drafters[0].model"] * bool(problem)
    assert all(re.search(problem, one.message) for one in found)


def test_a_model_without_exits_is_not_for_sorted(tmp_path: Path) -> None:
    """It is told what to do, and taken with exits that are chosen."""
    (tmp_path / "config.json").write_text('{"model_type": "llama", "num_hidden_layers": 3}')
    for options, is_fine in (({}, False), ({"exits": "1,3"}, True)):
        drafter = {"method": "sorted", "model": str(tmp_path), "options": options}
        found = problems_here(parse_config({"drafters": [drafter]}, source="test"))
        assert [("train sorted" in one.message) for one in found] == [True] * (not is_fine)
