"""The files among a command's arguments: which exist where the job runs, which are carried along, which would be lost."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outrider.cluster.process.command_failed import USAGE, CommandFailed

CARRIED = "outrider-files"
"""Folder, in the job's own, of what is carried along."""

INPUTS = {"batch": ("source",), "train": ("data", "target"), "bench": ("prompts",)}
"""Parameters that name what a command reads, by verb. The configuration of `serve` is read here (`service`)."""

OUTPUTS = {"batch": ("destination", "summary"), "train": ("out", "drafts")}
"""Parameters that name what a command leaves behind, by verb."""

Parse = Callable[[Sequence[str]], Mapping[str, Any]]
"""Reads a command's arguments as the command itself will; raises for what it would refuse."""


@dataclass(frozen=True, slots=True)
class Carried:
    """A file that goes with the job."""

    name: str
    """Where it will be, relative to the job's folder."""

    source: Path | None = None
    """The file, or None if it has been made up here."""

    content: bytes = b""
    """What it holds, if it has been made up."""

    @property
    def size(self) -> int:
        """Bytes."""
        return self.source.stat().st_size if self.source is not None else len(self.content)

    def as_dict(self) -> dict[str, object]:
        """For `--dry-run`."""
        if self.source is not None:
            return {"name": self.name, "from": str(self.source)}
        return {"name": self.name, "content": self.content.decode()}


def is_uri(path: str) -> bool:
    """Whether a path says by itself where it is, as `s3://bucket/file` does."""
    return "://" in path


def with_files(
    verb: str,
    arguments: Sequence[str],
    parse: Parse,
    *,
    folder: Path | None,
    names: Collection[str] = (),
) -> tuple[list[str], tuple[Carried, ...]]:
    """The arguments for the job, and the files that must go with it.

    An input in the job's folder stays as it is; a file elsewhere on this machine, or one that the copy of the folder leaves out, is
    carried along, and the argument then says where to. Nothing else is changed.

    Args:
        verb: `serve`, `batch`, `train` or `bench`.
        arguments: What follows it.
        parse: Reads them.
        folder: The folder of this machine that the job gets a copy of.
        names: What the copy holds: files and empty folders.

    Raises:
        CommandFailed: An input does not exist here, or is a folder outside `folder` or left out of its copy.
    """
    changed = list(arguments)
    carried: list[Carried] = []
    parameters = parse(changed)
    for name in INPUTS.get(verb, ()):
        if not isinstance(parameters.get(name), str | Path):
            continue
        path = str(parameters[name])
        is_inside = _is_inside(path, folder)
        if is_uri(path) or (is_inside and _is_taken(path, names)):
            continue
        source = Path(path)
        if name == "target" and not is_inside and not source.exists():
            # The name of a model, which the job finds or refuses.
            continue
        if is_inside and folder is not None and (folder / source).is_dir():
            raise CommandFailed(
                f"{path} is left out of the copy of {folder} that the job gets: see .gitignore, .rayignore and `excludes` "
                "(--runtime-env)",
                USAGE,
            )
        if source.is_dir() and not is_inside:
            raise CommandFailed(
                f"{path} is a folder outside the job's own: --working-dir takes a folder along, --paths-on-cluster says "
                "that the cluster's nodes have it",
                USAGE,
            )
        file = Carried(f"{CARRIED}/{source.name}", existing_file(source, folder))
        changed = replaced(changed, parse, name, file.name)
        carried.append(file)
    return changed, tuple(carried)


def existing_file(path: Path, folder: Path | None) -> Path:
    """The file itself, sought in the job's folder first if the path is relative.

    Raises:
        CommandFailed: There is none.
    """
    places = [folder / path, path] if folder is not None else [path]
    for place in places:
        if place.is_file():
            return place.absolute()
    raise CommandFailed(
        f"there is no file {path} here; --paths-on-cluster says that the cluster's nodes have it",
        USAGE,
    )


def check_outputs(verb: str, parameters: Mapping[str, Any]) -> None:
    """Sees that results outlive the job: its folder does not.

    Raises:
        CommandFailed: One would be written to the job's folder.
    """
    for name in OUTPUTS.get(verb, ()):
        given = parameters.get(name)
        values = given if isinstance(given, list | tuple) else (given,)
        for value in values:
            if value is None or is_uri(str(value)) or Path(str(value)).is_absolute():
                continue
            raise CommandFailed(
                f"{value} would be written to the job's own folder, which Ray removes with the job: name an absolute path on "
                "storage of the cluster",
                USAGE,
            )


def replaced(arguments: Sequence[str], parse: Parse, name: str, new: str) -> list[str]:
    """The arguments with another value of one parameter. Which of them holds it is found by reading them again.

    Raises:
        CommandFailed: None of them holds it.
    """
    wanted = {key: str(value) for key, value in parse(arguments).items()} | {name: new}
    for position, argument in enumerate(arguments):
        for text in (new, f"{argument.partition('=')[0]}={new}", f"{argument[:2]}{new}"):
            candidate = [*arguments[:position], text, *arguments[position + 1 :]]
            if _reads_as(candidate, parse, wanted):
                return candidate
    raise CommandFailed(f"cannot tell which argument is {name}; write it apart", USAGE)


def _reads_as(arguments: Sequence[str], parse: Parse, wanted: Mapping[str, str]) -> bool:
    try:
        read = parse(arguments)
    except Exception:  # noqa: BLE001 - whatever the command refuses is not what is sought
        return False
    return {key: str(value) for key, value in read.items()} == wanted


def _is_inside(path: str, folder: Path | None) -> bool:
    """Whether the job finds the path in its folder."""
    if folder is None or Path(path).is_absolute() or not (folder / path).exists():
        return False
    return (folder / path).resolve().is_relative_to(folder.resolve())


def _is_taken(path: str, names: Collection[str]) -> bool:
    """Whether the copy of the folder holds a path in it: a file, or a folder with something in it."""
    plain = os.path.normpath(path)
    return plain == "." or any(name == plain or name.startswith(f"{plain}/") for name in names)
