"""The commands that hand over to the serving side."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.client.cli.conftest import Run

# Recent versions of Typer need pydantic themselves, so that it is not among the missing.
BLOCKED_SCRIPT = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "ray", "yaml", "numpy", "msgpack"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None

sys.meta_path.insert(0, Refuse())
from outrider.client.cli import main
sys.argv = ["outrider", *%r]
main()
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ("serve",),
        ("config", "schema"),
        ("config", "validate", "file"),
        ("demo",),
        ("submit", "serve"),
        ("submit", "list"),
    ],
)
def test_without_the_serving_packages(arguments: tuple[str, ...]) -> None:
    """A client-only install says what to install, and ends with 1."""
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED_SCRIPT % (arguments,)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 1, done.stderr
    assert "pip install 'outrider[serve]'" in done.stderr
    assert "Traceback" not in done.stderr


class CommandFailed(Exception):
    """As the serving side's."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Stands for the serving side; tests put their functions in."""
    module = ModuleType("outrider.cluster.start.commands")
    monkeypatch.setattr(module, "CommandFailed", CommandFailed, raising=False)
    monkeypatch.setitem(sys.modules, "outrider.cluster.start.commands", module)
    return module


def test_serve_hands_over_its_flags(
    run: Run, commands: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each flag arrives under its name; what is left out is empty."""
    given: list[dict[str, object]] = []
    monkeypatch.setattr(commands, "serve", lambda **kw: given.append(kw), raising=False)
    assert run("serve").exit_code == 0
    arguments = ("--config", "c.yaml", "--target", "t", "--draft", "a", "--draft", "b")
    more = ("--listen", "h:1", "--ready-file", "r", "--admin-file", "a", "--log-level", "info")
    assert run("serve", *arguments, *more, "--emulate", "p,q").exit_code == 0
    assert given == [
        {
            "config": None,
            "targets": (),
            "drafts": (),
            "listen": None,
            "emulate": None,
            "ready_file": None,
            "admin_file": None,
            "log_level": "warning",
        },
        {
            "config": Path("c.yaml"),
            "targets": ("t",),
            "drafts": ("a", "b"),
            "listen": "h:1",
            "emulate": "p,q",
            "ready_file": Path("r"),
            "admin_file": Path("a"),
            "log_level": "info",
        },
    ]


def test_demo_hands_over_its_flags_and_ends_with_its_code(
    run: Run, commands: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each flag arrives under its name; the demonstration's exit code is the command's."""
    given: list[dict[str, object]] = []
    module = ModuleType("outrider.client.cli.demo.demonstration")

    def run_demo(**flags: object) -> int:
        given.append(flags)
        return 1

    monkeypatch.setattr(module, "run_demo", run_demo, raising=False)
    monkeypatch.setitem(sys.modules, "outrider.client.cli.demo.demonstration", module)
    arguments = (
        "--quick",
        "-n",
        "9",
        "--trace",
        "t.json",
        "--target",
        "t",
        "--emulate",
        "p",
    )
    assert run("demo", *arguments, "--draft", "a", "--draft", "b", "--json").exit_code == 1
    assert given == [
        {
            "max_tokens": 9,
            "quick": True,
            "trace": Path("t.json"),
            "as_json": True,
            "targets": ("t",),
            "drafts": ("a", "b"),
            "emulate": "p",
        }
    ]
    assert run("demo", "--max-tokens", "0").exit_code == 2


def test_failed_command_ends_with_its_exit_code(
    run: Run, commands: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the serving side says is printed as it is."""

    def refuse(**_: object) -> None:
        raise CommandFailed("no such key 'tagret'; did you mean 'target'?", 2)

    monkeypatch.setattr(commands, "serve", refuse, raising=False)
    result = run("serve")
    assert result.exit_code == 2
    assert result.stderr == "error: no such key 'tagret'; did you mean 'target'?\n"


def test_real_configuration_commands(run: Run, tmp_path: Path) -> None:
    """`config schema` prints a schema, `config validate` tells right from wrong."""
    pytest.importorskip("pydantic")
    schema = run("config", "schema")
    assert json.loads(schema.stdout)["type"] == "object"
    file = tmp_path / "outrider.yaml"
    file.write_text("service:\n  listen: 127.0.0.1:0\n")
    good = run("config", "validate", str(file), "--json")
    assert good.exit_code == 0, good.output
    assert json.loads(good.stdout)["service"]["listen"] == "127.0.0.1:0"
    assert run("config", "validate", str(file)).stdout == f"{file} is valid\n"
    file.write_text("targets: [{model: owner/model}]\n")
    assert run("config", "validate", str(file)).stdout.startswith(
        f"{file} is valid\nnot looked at: model 'owner/model': is the hub id right, and can the hub be reached? ("
    )
    file.write_text("cluster: {address: auto}\ntargets: [{model: /nothing}]\n")
    elsewhere = run("config", "validate", str(file))
    assert elsewhere.exit_code == 0, elsewhere.output
    assert "not looked at: model '/nothing': there is no such folder" in elsewhere.stdout
    file.write_text("service:\n  lisen: 127.0.0.1:0\n")
    bad = run("config", "validate", str(file), "--json")
    assert bad.exit_code == 2
    assert "lisen" in bad.stderr
    assert json.loads(bad.stdout)["error"]["kind"] == "Usage"
