"""Methods of other packages: what an installed package offers is there, and what cannot be is refused by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from outrider.actors.speculation import verifiers
from outrider.actors.speculation.plugins import Conflict, discover
from outrider.actors.speculation.verify.verifier_spec import VerifierSpec

VERIFIER = """
from outrider.actors.speculation.verify.verifier_spec import VerifierSpec
from outrider.actors.speculation.verifiers.exact_match import exact_match

THEIRS = VerifierSpec(name="{name}", verify=exact_match, summary="theirs", source="nobody")
"""
DRAFTER = """
from outrider.actors.draft.methods.repeat_last import build
from outrider.actors.draft.state.drafter_spec import DrafterSpec

AGAIN = DrafterSpec(name="acme_again", build=build, summary="theirs")
"""
ASK = """
import json
from outrider.actors.draft.choice.drafter_registry import DRAFTERS
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.cluster.config.schema import schema
methods = schema()["$defs"]["DrafterConfig"]["properties"]["method"]["enum"]
print(json.dumps([list(VERIFIERS), list(DRAFTERS), methods]))
"""


def install(folder: Path, name: str) -> None:
    """A package as pip would leave it."""
    (folder / "acme_verifier.py").write_text(VERIFIER.format(name=name))
    (folder / "acme_drafter.py").write_text(DRAFTER)
    info = folder / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[outrider.verifiers]\nacme = acme_verifier:THEIRS\n\n"
        "[outrider.drafters]\nacme = acme_drafter:AGAIN\n"
    )


def ask(folder: Path) -> subprocess.CompletedProcess[str]:
    """What a process that finds the package knows."""
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(folder)!r})\n{ASK}"],
        capture_output=True,
        text=True,
        timeout=60.0,
        check=False,
    )


def test_methods_of_an_installed_package_are_there(tmp_path: Path) -> None:
    """By its entry points alone, in the registries and in the configuration's schema."""
    install(tmp_path, "acme_match")
    said = ask(tmp_path)

    assert said.returncode == 0, said.stderr
    assert '"acme_match"' in said.stdout
    assert said.stdout.count('"acme_again"') == 2


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    """And the message says by whom."""
    install(tmp_path, "block")
    said = ask(tmp_path)

    assert said.returncode != 0
    assert "the entry point 'acme' of outrider.verifiers names a method 'block'" in said.stderr


def test_what_is_no_description_is_refused() -> None:
    """A module that lists something else is a mistake of its author."""
    with pytest.raises(Conflict, match="which is no int"):
        discover(verifiers, int, group="outrider.none")  # type: ignore[type-var]
    assert len(discover(verifiers, VerifierSpec, group="outrider.none")) >= 12
