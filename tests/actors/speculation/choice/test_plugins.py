"""Methods of other packages: what an installed package offers is there, and what cannot be is refused by name."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest

from outrider.actors.speculation import plugins, verifiers
from outrider.actors.speculation.number_options import NumberOption
from outrider.actors.speculation.plugins import Conflict, Discovered, discover, field_docs
from outrider.actors.speculation.verifiers.exact_match import exact_match
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


@pytest.mark.parametrize("first", ["outrider.verifiers", "outrider.drafters"])
def test_one_module_may_offer_methods_of_every_kind(tmp_path: Path, first: str) -> None:
    """It imports what looks for it, whichever kind is looked for first."""
    install(tmp_path, "acme_match")
    both = (tmp_path / "acme_drafter.py").read_text() + (tmp_path / "acme_verifier.py").read_text()
    (tmp_path / "acme_both.py").write_text(
        f"from outrider.actors.draft.text.text_drafter import text_drafter\n{both}"
    )
    points = {"outrider.verifiers": "THEIRS", "outrider.drafters": "AGAIN"}
    (tmp_path / "acme-1.0.dist-info" / "entry_points.txt").write_text(
        "".join(f"[{group}]\nacme = acme_both:{name}\n\n" for group, name in points.items())
    )
    registry = {
        "outrider.verifiers": "speculation.choice.verifier",
        "outrider.drafters": "draft.choice.drafter",
    }
    before = f"from outrider.actors.{registry[first]}_registry import GROUP\n"
    said = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{before}{ASK}"],
        capture_output=True,
        text=True,
        timeout=60.0,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    assert '"acme_match"' in said.stdout
    assert said.stdout.count('"acme_again"') == 2


def test_a_name_that_is_taken_ends_the_command_in_one_line(tmp_path: Path) -> None:
    """Which says whose it is, and who has it."""
    install(tmp_path, "block")
    said = subprocess.run(
        [sys.executable, "-c", "from outrider.client.cli import main; main()", "config", "schema"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60.0,
        check=False,
    )

    assert said.returncode == 1
    assert said.stderr == (
        "error: the entry point 'acme' of outrider.verifiers of the package acme names a method 'block', which there is already, "
        "by outrider.actors.speculation.verifiers.block\n"
    )


def test_a_default_outside_its_interval_is_refused() -> None:
    """It would be what every request gets that names no value."""
    option = NumberOption(default=5.0, least=0.0, most=1.0, help="How much.")
    with pytest.raises(ValueError, match=r"'odd'.* much of odd must be in \[0, 1\]"):
        VerifierSpec(
            name="odd", verify=exact_match, summary="", source="", options={"much": option}
        )


def test_what_is_no_description_is_refused() -> None:
    """A module that lists something else is a mistake of its author."""
    with pytest.raises(Conflict, match="which is no int"):
        discover(verifiers, int, group="outrider.none")  # type: ignore[type-var]
    assert len(discover(verifiers, VerifierSpec, group="outrider.none")) >= 12


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A folder of methods, of which one module has none, and a package that offers one and then two."""
    folder = tmp_path / "acme_words"
    folder.mkdir()
    (folder / "__init__.py").touch()
    named = "from types import SimpleNamespace as Word\n"
    (folder / "early.py").write_text(f"{named}SPECS = (Word(name='b'), Word(name='a'))")
    (folder / "helper.py").write_text("nothing = 0")
    (folder / "late.py").write_text(f"{named}SPECS = (Word(name='c'),)")
    (tmp_path / "acme_more.py").write_text(
        f"{named}ONE, TWO = Word(name='e'), (Word(name='d'), Word(name='f'))\nTAKEN = Word(name='c')"
    )
    (tmp_path / "acme_raises.py").write_text("import acme_nowhere")
    (tmp_path / "acme_ends.py").write_text("import sys\n\nsys.exit('no command line')")
    (tmp_path / "acme_typo.py").write_text("ONE = 1\nSPECS = (1,\n")
    info = tmp_path / "acme_words-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme_words\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[acme.words]\nz = acme_more:ONE\ny = acme_more:TWO\n\n[acme.taken]\nx = acme_more:TAKEN\n\n"
        "[acme.none]\nx = acme_more:NONE\n\n[acme.raises]\nx = acme_raises:SPECS\n\n"
        "[acme.ends]\nx = acme_ends:SPECS\n\n[acme.typo]\nx = acme_typo:SPECS\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("acme_words")


def test_methods_come_by_module_and_then_by_entry_point(words: ModuleType) -> None:
    """In the order of their names, whatever order they were written in."""
    found = discover(words, type(sys.implementation), group="acme.words")
    assert list(found) == ["b", "a", "c", "d", "f", "e"]
    assert all(name == word.name for name, word in found.items())


def test_methods_are_looked_for_once_and_not_before_one_is_asked_for() -> None:
    """What offers methods may import what asks for them."""
    looked: list[int] = []

    def look() -> dict[str, EntryPoint]:
        looked.append(len(looked))
        return {name: EntryPoint(name, "acme", "acme.words") for name in ("b", "a")}

    found = Discovered(look)
    assert not looked
    assert list(found) == ["b", "a"]
    assert len(found) == 2
    assert found["a"].name == "a"
    assert looked == [0]


def test_a_name_that_is_there_already_is_refused(words: ModuleType) -> None:
    """With the place that names it again."""
    says = r"'x' of acme.taken of the package acme_words names a method 'c', which there is already, by acme_words.late"
    with pytest.raises(Conflict, match=says):
        discover(words, type(sys.implementation), group="acme.taken")


@pytest.mark.parametrize(
    ("group", "says"),
    [
        ("acme.none", r"cannot be loaded: AttributeError: .*'NONE'"),
        ("acme.raises", r"cannot be loaded: ModuleNotFoundError: .*acme_raises.py, line 1"),
        (
            "acme.ends",
            r"cannot be loaded: SystemExit: no command line \(.*acme_ends.py, line 3\)",
        ),
        (
            "acme.typo",
            r"cannot be loaded: SyntaxError: '\(' was never closed \(\S*acme_typo.py, line 2\)",
        ),
    ],
)
def test_a_package_that_cannot_be_loaded_is_named(words: ModuleType, group: str, says: str) -> None:
    """And where it failed; a package that is missing there is none of this one's."""
    says = f"'x' of {group} of the package acme_words {says}.*; fix or uninstall it$"
    with pytest.raises(Conflict, match=says):
        discover(words, type(sys.implementation), group=group)


def test_an_entry_point_of_no_package_is_named_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some finders of modules make such."""
    alone = EntryPoint("x", "acme_nowhere:SPECS", "acme.alone")
    monkeypatch.setattr(plugins, "entry_points", lambda group: [alone])
    with pytest.raises(Conflict, match=r"^the entry point 'x' of acme\.alone cannot be loaded"):
        discover(verifiers, VerifierSpec, group="acme.alone")


class Base:
    """Options that others have, too."""

    depth: int = 1
    """How deep."""

    bare: int = 2


class Options(Base):
    """Options of one."""

    width: int = 3
    """How wide: a text of
    two lines."""

    depth: int = 4
    """Deeper."""


def test_docs_of_fields_are_read_below_them() -> None:
    """Those of a class that it derives from as well, the nearest one's where there are two; in one line."""
    assert field_docs(Base) == {"depth": "How deep."}
    assert field_docs(Options) == {"depth": "Deeper.", "width": "How wide: a text of two lines."}
    made = type("Made", (), {})
    assert field_docs(type("Both", (Options, made), {})) == field_docs(Options)
