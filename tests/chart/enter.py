"""Becomes the process of a container: its own root, mounts, user and process ids. Run as root inside `unshare --mount --pid --fork`.

Takes a JSON file: `root` (an empty folder), `mounts` (path in the container, folder outside, whether read-only), `shared` (folders of the
machine that keep their paths), `files` (path to text), `user`, `group`, `environment`, `command`. The root is the machine's, read-only,
with these in place: what a container of the image sees, without an image. Only the standard library: it runs before all else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HIDDEN = ("tmp", "home", "root", "run", "srv", "mnt", "media", "var", "work")
"""Of the machine, not seen inside: an image has its own."""


def mount(*arguments: str) -> None:
    """Runs `mount`."""
    subprocess.run(["mount", *arguments], check=True)


def bind(source: Path, target: Path, *, read_only: bool) -> None:
    """Shows a folder or file at another place too."""
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    mount("--rbind", str(source), str(target))
    if read_only:
        mount("-o", "remount,bind,ro", str(target))


def build(spec: dict[str, Any]) -> Path:
    """The container's root."""
    root = Path(spec["root"])
    mount("--make-rprivate", "/")
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", str(root))
    owned = {Path(path).parts[1] for path in (*spec["mounts"], *spec["files"])}
    for entry in sorted(Path("/").iterdir()):
        if entry.name in (*HIDDEN, "proc", "dev"):
            continue
        inside = root / entry.name
        if entry.is_symlink():
            inside.symlink_to(entry.readlink())
        elif entry.name in owned and entry.is_dir():
            _piecewise(
                entry, inside, {root / path[1:] for path in (*spec["mounts"], *spec["files"])}
            )
        else:
            bind(entry, inside, read_only=entry.name != "sys")
    (root / "proc").mkdir()
    mount("-t", "proc", "proc", str(root / "proc"))
    bind(Path("/dev"), root / "dev", read_only=False)
    for path, (folder, is_read_only) in sorted(spec["mounts"].items()):
        bind(Path(folder), root / path[1:], read_only=is_read_only)
    for folder in spec["shared"]:
        bind(Path(folder), root / folder[1:], read_only=True)
    for path, text in spec["files"].items():
        (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (root / path[1:]).write_text(text)
        (root / path[1:]).chmod(0o755)
    mount("-o", "remount,ro", str(root))
    return root


def _piecewise(folder: Path, inside: Path, replaced: set[Path]) -> None:
    """A folder entry by entry, so that something else can stand among them."""
    inside.mkdir()
    for entry in folder.iterdir():
        if inside / entry.name in replaced:
            continue
        if entry.is_symlink():
            (inside / entry.name).symlink_to(entry.readlink())
        else:
            bind(entry, inside / entry.name, read_only=True)


def main() -> None:
    """Runs the command in the container."""
    spec = json.loads(Path(sys.argv[1]).read_text())
    os.chroot(build(spec))
    os.chdir("/")
    os.setgroups([])
    os.setgid(spec["group"])
    os.setuid(spec["user"])
    os.execvpe(spec["command"][0], spec["command"], spec["environment"])


if __name__ == "__main__":
    main()
