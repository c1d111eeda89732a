"""Every example of the operators' pages: shell commands are read by the commands themselves, configurations by the service, and what
can be run cheaply is run."""

from __future__ import annotations

import ast
import json
import re
import ssl
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
import typer
import yaml
from tests.docs.examples import PAGES, ROOT, Example, commands, examples
from typer.main import get_command

from outrider.actors.tls import check
from outrider.client.access import Access, Tls
from outrider.client.batch.record import Record, parse
from outrider.client.cli.app import app
from outrider.cluster.bearer import Tokens
from outrider.cluster.config import Config, parse_config

SHELL = examples("bash", "sh")
YAML = examples("yaml")
SUBMITTED = ("serve", "batch", "train", "bench")


REFUSALS: tuple[type[Exception], ...] = (
    click.ClickException,
    next(each for each in typer.BadParameter.__mro__ if each.__name__ == "ClickException"),
)
"""What a command line is refused with: Ray's by click, ours by the copy of it that typer may carry."""


def outrider(words: list[str]) -> None:
    """Reads a command line as `outrider` does, and what `submit` hands on as the command that it names."""
    _read(get_command(app), words)
    if words[:2] == ["outrider", "submit"]:
        for verb in SUBMITTED:
            if verb in words:
                _read(get_command(app), ["outrider", *words[words.index(verb) :]])


def ray(words: list[str]) -> None:
    """As Ray's command does; what `ray job submit` runs, as `outrider`."""
    from ray.scripts.scripts import cli

    _read(cli, words)
    if "--" in words:
        outrider(words[words.index("--") + 1 :])


def pip(words: list[str]) -> None:
    """Extras exist."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert words[1] == "install"
    for extra in re.findall(r"\[([\w,]+)\]", " ".join(words)):
        assert set(extra.split(",")) <= set(extras), words


def kubectl(words: list[str]) -> None:
    """What runs in a pod is a command of ours; the rest is Kubernetes' own."""
    if "--" in words:
        outrider(words[words.index("--") + 1 :])


def helm(words: list[str]) -> None:
    """Folders and files exist. What it renders is tested in tests/chart/test_docs.py."""
    for word in words:
        if word.startswith("helm/"):
            assert (ROOT / word).exists(), words


def make(words: list[str]) -> None:
    """Targets exist."""
    text = (ROOT / "Makefile").read_text()
    for target in words[1:]:
        assert re.search(rf"^{target}:", text, re.MULTILINE), words


def python(words: list[str]) -> None:
    """Modules exist."""
    if words[1] == "-m" and words[2] != "pytest":
        place = ROOT / words[2].replace(".", "/")
        assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), words


def files(words: list[str]) -> None:
    """Files of this repository exist."""
    for word in words:
        if word.startswith(("docs/", "docker/", "helm/")):
            assert (ROOT / word).exists(), words


def anything(words: list[str]) -> None:
    """A program that is not ours."""


READERS: dict[str, Callable[[list[str]], None]] = {
    "outrider": outrider,
    "ray": ray,
    "pip": pip,
    "kubectl": kubectl,
    "helm": helm,
    "make": make,
    "python": python,
    "sbatch": files,
    "docker": files,
    **dict.fromkeys(
        ("curl", "grep", "jq", "mkdir", "mv", "openssl", "scancel", "tee", "cp"), anything
    ),
}
"""Who reads a command, by its first word."""


def _read(command: Any, words: list[str]) -> None:
    name, *rest = words
    group = command
    context = group.make_context(name, list(rest))
    while getattr(group, "commands", None) is not None:
        name, group, rest = group.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        context = group.make_context(name, list(rest), parent=context)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that examples name as if they were there."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("example", SHELL, ids=[each.name for each in SHELL])
def test_commands_are_what_the_programs_take(example: Example) -> None:
    """The shell can read them, each program is known, and ours takes the options."""
    subprocess.run(["bash", "-n"], input=example.text, text=True, check=True, timeout=20)
    found = list(commands(example.text))
    assert found
    for words in found:
        assert words[0] in READERS, f"{words[0]}: say in this test how {words} is checked"
        try:
            READERS[words[0]](words)
        except REFUSALS as error:
            raise AssertionError(f"{' '.join(words)}: {error}") from error


@pytest.mark.parametrize(
    "line",
    [
        "outrider status --wotch",
        "outrider statos",
        "outrider submit bench --prompt x",
        "ray start --heads",
        "pip install 'outrider[nonsense]'",
        "make nonsense",
        "kubectl exec x -- outrider generate --nonsense",
        "X=1 outrider apply",
    ],
)
def test_wrong_commands_are_found(line: str) -> None:
    """Else nothing would be tested above."""
    (words,) = commands(line)
    with pytest.raises((*REFUSALS, AssertionError)):
        READERS[words[0]](words)


@pytest.mark.parametrize("example", YAML, ids=[each.name for each in YAML])
def test_configurations_are_accepted(example: Example) -> None:
    """By the service, but for the chart's values (tests/chart/test_docs.py), Prometheus' file and Kubernetes' objects."""
    documents = list(yaml.safe_load_all(example.text))
    for document in documents:
        if "apiVersion" in document:
            assert {"kind", "metadata", "spec"} <= set(document)
        elif "scrape_configs" in document:
            for file in document["rule_files"]:
                assert (ROOT / "cluster" / "metrics" / file).exists()
        elif example.page == "docs/kubernetes.md":
            continue
        else:
            assert set(document) <= set(Config.model_fields)
            parse_config(document, source=example.name)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    """Files, and headings in them."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!http)([^)\s]+)\)", text):
        path, _, heading = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        assert file.exists(), target
        if heading and file.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            known = {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}
            assert heading in known, target


def test_records_of_a_batch_are_read() -> None:
    """The lines of docs/batch.md that are input; the others are JSON."""
    records = 0
    for example in examples("json", "jsonl", page="docs/batch.md"):
        for line in example.text.splitlines():
            if "body" in json.loads(line):
                assert isinstance(parse(1, line.encode()), Record)
                records += 1
    assert records >= 2


@pytest.mark.parametrize("page", PAGES)
def test_programs_are_python(page: str) -> None:
    """And import what there is."""
    for example in examples("python", page=page):
        for node in ast.walk(ast.parse(example.text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("outrider"):
                module = __import__(node.module or "", fromlist=["x"])
                assert all(hasattr(module, alias.name) for alias in node.names)


def test_certificates_made_by_hand_fit_the_shown_configuration(tmp_path: Path) -> None:
    """The commands of docs/security.md are run; what they leave is what the service and a client take."""
    page = "docs/security.md"
    (made,) = [each for each in examples("bash", page=page) if "mkdir" in each.text]
    done = subprocess.run(
        ["bash", "-euc", made.text],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    (shown,) = [each for each in examples("yaml", page=page) if "client_ca" in each.text]
    config = parse_config(
        yaml.safe_load(shown.text.replace("/etc/outrider", str(tmp_path))), source=page
    )
    public, internal = config.security.public, config.security.internal
    assert public is not None
    assert public.tls is not None
    assert internal is not None
    assert public.tokens is not None
    check(public.tls)
    check(internal.tls)
    token = (tmp_path / "tokens").read_text().strip()
    assert Tokens(Path(public.tokens)).admit(token)
    client = Tls(
        ca=tmp_path / "public/ca.crt", cert=tmp_path / "anne.crt", key=tmp_path / "anne.key"
    )
    Access(client, tmp_path / "tokens")
    for certificate, purpose in ((public.cert, "sslserver"), (client.cert, "sslclient")):
        verified = subprocess.run(
            [
                *("openssl", "verify", "-purpose", purpose, "-CAfile", public.client_ca or ""),
                str(certificate),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )
        assert verified.returncode == 0, verified.stderr
    context = ssl.create_default_context(cafile=public.client_ca)
    assert len(context.get_ca_certs()) == 1
