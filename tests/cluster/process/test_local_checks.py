"""Files that a configuration names: `config validate` refuses what `serve` would, in the same words."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.cluster.process.command_failed import CommandFailed
from outrider.cluster.start.commands import config_validate, serve

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
