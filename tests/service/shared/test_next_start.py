"""What a service that was killed leaves, and who removes it."""

from __future__ import annotations

from pathlib import Path

from tests.service.processes import ServiceProcess, ray_folder, run
from tests.service.shared.others import Heard, Killed


def test_killed_service_leaves_its_folder(killed: Killed) -> None:
    """With the token. Its ready file says nothing any more, and whoever asks is told so."""
    assert (killed.folder / "token").exists()
    told = run("status", "--ready-file", str(killed.ready))
    assert told.returncode == 3
    assert "is left over" in told.stderr


def test_next_start_removes_it(
    service: ServiceProcess, killed: Killed, third: Heard, parent: Path
) -> None:
    """And the ready file; the folder of a service that lives stays, and it serves on."""
    kept = ray_folder(service.family())
    assert set(parent.glob("outrider-*")) == {kept, ray_folder(third.service.family())}
    assert not killed.ready.exists()
    assert (kept / "token").exists()
    for one in (service, third.service):
        asked = run("status", "--ready-file", str(one.folder / "ready"))
        assert asked.returncode == 0, asked.stderr
