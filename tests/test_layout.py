"""The links that make one package of the top-level folders."""

from __future__ import annotations

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
