"""The links that make one package of the top-level folders."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("folder", ["actors", "client", "cluster"])
def test_link_leads_to_its_folder(folder: str) -> None:
    """A checkout that lost its symbolic links fails here, not with a hundred import errors."""
    link = ROOT / "src" / "outrider" / folder

    assert link.is_symlink(), f"{link} is no symbolic link; check out with core.symlinks=true"
    assert link.resolve() == ROOT / folder


def test_every_folder_of_code_is_a_package() -> None:
    """A folder without `__init__.py` would be missing from the wheel."""
    folders = {
        file.parent
        for top in ("actors", "client", "cluster")
        for file in (ROOT / top).rglob("*.py")
    }

    assert [
        str(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()
    ] == []


def test_source_distribution_is_the_package_and_nothing_else(tmp_path: Path) -> None:
    """Tests without their folders and helpers would fail wherever it is unpacked."""
    setup = "import setuptools; setuptools.setup()"
    done = subprocess.run(
        [sys.executable, "-c", setup, "--quiet", "egg_info", "--egg-base", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    built = tmp_path / "outrider.egg-info"
    held = {Path(line) for line in (built / "SOURCES.txt").read_text().splitlines()}

    others = {file for file in held if file.parts[0] != "src" and built not in file.parents}
    assert {str(file) for file in others} == {
        "LICENSE",
        "MANIFEST.in",
        "README.md",
        "pyproject.toml",
    }
    modules = {
        Path("src", "outrider", file.relative_to(ROOT))
        for top in ("actors", "client", "cluster")
        for file in (ROOT / top).rglob("*.py")
    }
    assert modules <= held
