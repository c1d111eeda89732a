"""The archive that becomes the job's folder."""

from __future__ import annotations

import os
from pathlib import Path
from zipfile import ZipFile

import pytest

from outrider.cluster.jobs.arguments import Carried
from outrider.cluster.jobs.package import collect
from outrider.cluster.process.command_failed import USAGE, CommandFailed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with something to leave out."""
    made = tmp_path / "work"
    for name in ("a.txt", "deep/b.txt", "ignored/c.txt", ".git/HEAD", "big.bin", "mine.txt"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(name)
    (made / ".gitignore").write_text("ignored\n")
    (made / ".rayignore").write_text("*.bin\n")
    return made


def names(archive: Path) -> set[str]:
    """What it holds."""
    with ZipFile(archive) as opened:
        return set(opened.namelist())


def test_folder_without_what_is_to_be_left_out(folder: Path, tmp_path: Path) -> None:
    """By `.gitignore`, `.rayignore`, Ray's own list and the patterns given."""
    package = collect(folder, excludes=["mine.txt"])
    package.write(tmp_path / "job.zip")

    assert names(tmp_path / "job.zip") == {".gitignore", ".rayignore", "a.txt", "deep/b.txt"}
    assert package.size == sum(
        len((folder / name).read_bytes()) for name in names(tmp_path / "job.zip")
    )


def test_carried_files_are_added(folder: Path, tmp_path: Path) -> None:
    """A file of elsewhere, and one that was made up, which goes before one of the folder with its name."""
    elsewhere = tmp_path / "p.txt"
    elsewhere.write_text("prompts")
    carried = (Carried("files/p.txt", elsewhere), Carried("a.txt", content=b"made up"))
    collect(folder).carrying(carried).write(tmp_path / "job.zip")
    with ZipFile(tmp_path / "job.zip") as opened:
        assert opened.read("files/p.txt") == b"prompts"
        assert opened.read("a.txt") == b"made up"
        assert opened.namelist().count("a.txt") == 1


def test_same_content_makes_the_same_archive(folder: Path, tmp_path: Path) -> None:
    """Ray then need not take it twice."""
    for name in ("1.zip", "2.zip"):
        collect(folder).carrying((Carried("made", content=b"up"),)).write(tmp_path / name)

    assert (tmp_path / "1.zip").read_bytes() == (tmp_path / "2.zip").read_bytes()


@pytest.mark.parametrize("carried", [(), (Carried("made", content=b"x" * 2000),)])
def test_too_large_is_refused(folder: Path, carried: tuple[Carried, ...]) -> None:
    """Before anything is written, and said of the folder."""
    if not carried:
        (folder / "large").write_bytes(b"x" * 2000)
    with pytest.raises(
        CommandFailed, match=f"the working directory {folder} is too large"
    ) as caught:
        collect(folder, limit=2000).carrying(carried)
    assert caught.value.exit_code == USAGE
    assert ".rayignore" in str(caught.value)


def test_links_that_lead_back_are_left_out(folder: Path, tmp_path: Path) -> None:
    """Two of them in one folder would make copies without end; other links are what they lead to."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "far.txt").write_text("far")
    for name, target in {
        "deep/up": "..",
        "deep/here": ".",
        "above": "../..",
        "out": str(elsewhere),
        "same.txt": "a.txt",
        "itself": "itself",
    }.items():
        (folder / name).symlink_to(target)
    (elsewhere / "back").symlink_to(folder)

    found = collect(folder, limit=10_000).names
    assert {"out/far.txt", "same.txt", "deep/b.txt"} < found
    assert not [name for name in found if name.startswith(("deep/up", "deep/here", "above"))]
    assert not [name for name in found if name.startswith(("itself", "out/back"))]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (b"caf\xe9", b"", r"the name 'caf\\udce9' is no UTF-8"),
        (b".gitignore", b"caf\xe9\n", ".gitignore, .rayignore or .* cannot be read"),
        (b".rayignore", b"!\n", ".gitignore, .rayignore or .* cannot be read"),
    ],
)
def test_what_cannot_be_packed_is_told(
    folder: Path, name: bytes, content: bytes, message: str
) -> None:
    """As a fault of the folder, not of Outrider's own."""
    Path(os.fsdecode(bytes(folder) + b"/" + name)).write_bytes(content)
    with pytest.raises(CommandFailed, match=message) as caught:
        collect(folder)
    assert caught.value.exit_code == USAGE
