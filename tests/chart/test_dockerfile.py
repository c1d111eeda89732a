"""The image's recipe, as far as it can be checked without building it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from tests.chart.rendered import CHART, ROOT

TEXT = (ROOT / "docker" / "Dockerfile").read_text()

Instruction = tuple[str, str]


def instructions() -> list[Instruction]:
    """Every instruction: its word, and the rest with continued lines joined."""
    kept = "\n".join(line for line in TEXT.splitlines() if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n\s*", " ", kept)
    return [
        (word, rest.strip())
        for word, _, rest in (line.partition(" ") for line in joined.splitlines() if line.strip())
    ]


def last_stage() -> list[Instruction]:
    """Those of the image that is shipped."""
    all_of_them = instructions()
    begins = max(index for index, (word, _) in enumerate(all_of_them) if word == "FROM")
    return all_of_them[begins:]


def copied() -> list[tuple[str, str]]:
    """Source in the repository and place in the image of each COPY that is not from another stage."""
    pairs = []
    for word, rest in instructions():
        if word == "COPY" and not rest.startswith("--from"):
            *sources, target = shlex.split(rest)
            pairs += [(source, target) for source in sources]
    return pairs


def test_instructions_are_known() -> None:
    """Also shows that the file was read as meant."""
    known = {"FROM", "ARG", "ENV", "RUN", "WORKDIR", "COPY", "EXPOSE", "USER", "CMD"}

    assert {word for word, _ in instructions()} == known


def test_base_images_have_exact_versions() -> None:
    """The same one in both stages, of a Python that the package allows."""
    bases = [rest.split()[0] for word, rest in instructions() if word == "FROM"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert len(bases) == 2
    assert len(set(bases)) == 1
    found = re.fullmatch(r"python:(\d+)\.(\d+)\.\d+-slim-\w+", bases[0])
    assert found is not None, bases[0]
    assert project["requires-python"] == ">=3.11"
    assert (int(found[1]), int(found[2])) >= (3, 11)
    assert "latest" not in TEXT


def test_image_ends_as_the_user_that_the_chart_runs_as() -> None:
    """By number, so that Kubernetes can see that it is not root; the account exists."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())["podSecurity"]
    last = [rest for word, rest in last_stage() if word == "USER"][-1]

    assert last == f"{values['runAsUser']}:{values['runAsGroup']}"
    assert not any(word in ("RUN", "COPY") for word, _ in _after_user(last_stage()))
    assert f"useradd --uid {values['runAsUser']} " in TEXT


def test_what_is_installed_is_the_readmes_line() -> None:
    """With the torch of another index if one is given."""
    installs = [rest for word, rest in instructions() if word == "RUN" and "pip install" in rest]
    (line,) = installs
    extra = re.search(r"'(\.\[[a-z,]+\])'$", line)

    assert extra is not None
    assert f"pip install '{extra[1]}'" in (ROOT / "README.md").read_text()
    assert '${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"}' in line
    assert ("ARG", 'TORCH_INDEX=""') in instructions()


def test_command_is_one_of_ours() -> None:
    """The image alone serves the shipped models."""
    (command,) = [yaml.safe_load(rest) for word, rest in last_stage() if word == "CMD"]

    assert command == ["outrider", "serve", "--listen", "0.0.0.0:50051"]
    variables = " ".join(rest for word, rest in last_stage() if word == "ENV")
    assert "RAY_AUTH_MODE=token" in variables
    assert not re.search(r"(?i)password|secret|key=", TEXT)


def test_context_holds_what_is_copied_and_no_more() -> None:
    """`.dockerignore` leaves everything out but the sources of COPY."""
    lines = [
        line
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]

    assert lines[0] == "*"
    assert sorted(line[1:] for line in lines if line.startswith("!")) == sorted(
        source for source, _ in copied()
    )


def test_copied_sources_are_a_whole_package(tmp_path: Path) -> None:
    """From the copies alone: links hold, all modules of the service can be imported, the shipped models are there."""
    for source, target in copied():
        place = tmp_path / (source if target == "./" else target)
        if (ROOT / source).is_dir():
            shutil.copytree(
                ROOT / source, place, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy(ROOT / source, place)
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]
    assert (tmp_path / project["readme"]).is_file()
    assert all((tmp_path / name).is_file() for name in project["license-files"])
    check = (
        "from outrider.actors import demo\n"
        "import outrider.client.cli, outrider.cluster.start.commands, outrider.cluster.start.launch\n"
        "assert all((demo.path(name) / 'model.safetensors').is_file() for name in demo.NAMES)\n"
        "print(outrider.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", check],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "src"), "RAY_AUTH_MODE": "token"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(tmp_path)


@pytest.mark.parametrize("program", ["bash", "openssl"])
def test_programs_that_kuberay_calls_are_there(program: str) -> None:
    """bash is part of the base image; the rest is installed."""
    packages = next(rest for word, rest in last_stage() if word == "RUN")

    assert program == "bash" or f" {program} " in f"{packages} "


def _after_user(stage: list[Instruction]) -> list[Instruction]:
    index = max(index for index, (word, _) in enumerate(stage) if word == "USER")
    return stage[index:]
