"""What docs/kubernetes.md tells to type is rendered, and what it shows as values is accepted."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tests.chart.rendered import ROOT, run_helm

TEXT = "\n".join(
    (ROOT / name).read_text() for name in ("docs/kubernetes.md", "helm/outrider/README.md")
)
BLOCKS = re.findall(r"^ *```(\w+)\n(.*?)^ *```$", TEXT, re.MULTILINE | re.DOTALL)
COMMANDS = [
    line.strip()
    for language, block in BLOCKS
    if language == "bash"
    for line in block.splitlines()
    if re.match(r" *helm (install|upgrade) \S+ helm/outrider", line)
]


def test_commands_are_found() -> None:
    """Else nothing would be tested below."""
    assert len(COMMANDS) >= 7


@pytest.mark.parametrize("command", COMMANDS)
def test_command_renders(command: str) -> None:
    """`helm template` in place of `install` and `upgrade`, with the same flags."""
    _, _, release, _, *flags = shlex.split(command)
    flags = [flag for flag in flags if flag != "--create-namespace"]
    flags = [str(ROOT / flag) if flag.startswith("helm/") else flag for flag in flags]
    made = run_helm("template", release, str(ROOT / "helm/outrider"), *flags)

    assert made.returncode == 0, made.stderr
    assert "kind: Ray" in made.stdout


def test_shown_values_are_accepted(tmp_path: Path) -> None:
    """Every block of YAML but objects of Kubernetes."""
    shown = [
        block for language, block in BLOCKS if language == "yaml" and "apiVersion:" not in block
    ]
    assert shown
    for block in shown:
        (tmp_path / "values.yaml").write_text(block)
        made = run_helm(
            "template", "x", str(ROOT / "helm/outrider"), "--values", str(tmp_path / "values.yaml")
        )
        assert made.returncode == 0, made.stderr


def test_links_lead_somewhere() -> None:
    """Of both pages."""
    for page in (ROOT / "docs/kubernetes.md", ROOT / "helm/outrider/README.md"):
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), (page, target)
