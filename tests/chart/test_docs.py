"""What docs/kubernetes.md shows as values is accepted. What it tells to type is run by tests/docs/test_run.py."""

from __future__ import annotations

import re
from pathlib import Path

from tests.chart.rendered import ROOT, run_helm

TEXT = "\n".join(
    (ROOT / name).read_text() for name in ("docs/kubernetes.md", "helm/outrider/README.md")
)
BLOCKS = re.findall(r"^ *```(\w+)\n(.*?)^ *```$", TEXT, re.MULTILINE | re.DOTALL)


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
