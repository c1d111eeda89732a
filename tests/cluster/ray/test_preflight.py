"""What this machine lacks is told before anything is started: by the real command line, and with Ray out of reach."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner, Result

from outrider.client.cli.app import app
from outrider.cluster.process.preflight import (
    START_BYTES,
    START_FILES,
    Unfit,
    check_address,
    check_room,
)
from outrider.cluster.ray import ray_runtime
from outrider.cluster.ray.own_node import OBJECT_STORE_BYTES
from outrider.cluster.start import launch

MIB = 2**20


@pytest.fixture
def busy() -> Iterator[str]:
    """An address at which somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """The temporary folder, one of our own, with a name short enough to be taken."""
    tmp_path_factory.getbasetemp()  # made now, or it would be made inside
    with tempfile.TemporaryDirectory(prefix="o", dir="/tmp") as made:
        monkeypatch.setattr(tempfile, "tempdir", made)
        yield Path(made)


def serve(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    """`outrider serve`, where reaching for Ray or a model is a failure of the test."""

    def reached(*_: object, **__: object) -> None:
        pytest.fail("the start went on")

    monkeypatch.setattr(ray_runtime, "OwnNode", reached)
    return CliRunner().invoke(app, ["serve", *arguments], env={"NO_COLOR": "1"})


def disk(monkeypatch: pytest.MonkeyPatch, where: Path, *, free: int, files: int = 10**6) -> None:
    """Gives the file system of a folder so many free bytes and files; every other one has plenty."""
    plenty = SimpleNamespace(f_bavail=2**40, f_frsize=1, f_files=10**6, f_favail=10**6)
    small = SimpleNamespace(f_bavail=free, f_frsize=1, f_files=10**6, f_favail=files)

    def statvfs(path: object) -> SimpleNamespace:
        return small if str(path) == str(where) else plenty

    monkeypatch.setattr(os, "statvfs", statvfs)


def test_busy_port_is_told_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, busy: str, folder: Path
) -> None:
    """Exit code 1, the flag, the field, the address and what to do; no model was looked at, no folder made."""

    def looked(*_: object) -> None:
        pytest.fail("a model was looked at")

    monkeypatch.setattr(launch, "problems_here", looked)
    result = serve(monkeypatch, "--listen", busy)
    assert result.exit_code == 1
    assert f"service.listen (--listen): cannot listen at {busy}: the port is in use" in (
        result.stderr
    )
    assert "take another port" in result.stderr
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("key", ["listen", "metrics"])
def test_busy_port_of_the_configuration_file(
    monkeypatch: pytest.MonkeyPatch, busy: str, folder: Path, tmp_path: Path, key: str
) -> None:
    """A port from the file is found as well, that of the metrics, too."""
    file = tmp_path / "c.yaml"
    addresses = {"listen": "127.0.0.1:0", key: busy}
    file.write_text(json.dumps({"service": addresses}))
    result = serve(monkeypatch, "--config", str(file))
    assert result.exit_code == 1
    assert f"service.{key}" in result.stderr
    assert "the port is in use" in result.stderr
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("coordinators", [1, 3])
def test_busy_port_is_told_before_a_cluster_is_joined(
    monkeypatch: pytest.MonkeyPatch, busy: str, tmp_path: Path, coordinators: int
) -> None:
    """The first coordinator runs here. Several share their port: those of another service would answer half of the requests."""

    def joined(*_: object, **__: object) -> None:
        pytest.fail("the start went on")

    monkeypatch.setattr(ray_runtime.RayRuntime, "start", joined)
    file = tmp_path / "c.yaml"
    service = {"listen": busy, "coordinators": coordinators}
    file.write_text(json.dumps({"service": service, "cluster": {"address": "127.0.0.1:6379"}}))
    result = serve(monkeypatch, "--config", str(file))
    assert result.exit_code == 1
    assert f"service.listen (--listen): cannot listen at {busy}: the port is in use" in (
        result.stderr
    )


@pytest.mark.parametrize(
    ("security", "said"),
    [
        ({"public": {"cert": "/no/a", "key": "/no/b"}}, "security.public: cannot read /no/a"),
        (
            {"public": {"tokens": "/no/c"}},
            "security.public.tokens: cannot read the tokens in /no/c",
        ),
        ({"internal": {"cert": "/no/a", "key": "/no/b", "ca": "/no/c"}}, "security.internal: "),
    ],
)
def test_certificates_are_tried_before_a_cluster_is_joined(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, security: dict[str, object], said: str
) -> None:
    """Supervisor and first coordinator run here and need them; models may lie on other nodes."""

    def joined(*_: object, **__: object) -> None:
        raise ray_runtime.RayUnavailable("it was joined")

    monkeypatch.setattr(ray_runtime.RayRuntime, "start", joined)
    file = tmp_path / "c.yaml"
    content = {
        "service": {"listen": "127.0.0.1:0"},
        "cluster": {"address": "127.0.0.1:6379"},
        "targets": [{"model": "tabular:/no/x.npz"}],
    }
    for keys, told in (({"security": security}, said), ({}, "it was joined")):
        file.write_text(json.dumps({**content, **keys}))
        result = serve(monkeypatch, "--config", str(file))
        assert result.exit_code == 1
        assert told in result.stderr


def test_full_disk_is_told_before_ray_starts(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Exit code 1, the folder, what it has and what it needs."""
    disk(monkeypatch, folder, free=3 * MIB)
    result = serve(monkeypatch, "--listen", "127.0.0.1:0")
    assert result.exit_code == 1
    assert f"the temporary folder {folder} has 3 MiB free" in result.stderr
    assert f"need {START_BYTES // MIB} MiB" in result.stderr
    assert "TMPDIR" in result.stderr
    assert list(folder.iterdir()) == []


def test_unwritable_folder_is_told_before_ray_starts(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """Also where the user is root, whom permissions do not stop, but a read-only disk does."""

    def refuse(*_: object, **__: object) -> str:
        raise OSError(30, "Read-only file system", str(folder))

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    result = serve(monkeypatch, "--listen", "127.0.0.1:0")
    assert result.exit_code == 1
    assert f"Read-only file system: '{folder}'" in result.stderr
    assert "TMPDIR" in result.stderr


def test_free_addresses_pass(busy: str) -> None:
    """A free port, every interface, a name, IPv6 where there is any; the port stays free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for _ in range(2):
        check_address(f"127.0.0.1:{port}", "a test")
    check_address("0.0.0.0:0", "a test")
    check_address("localhost:0", "a test")
    if socket.has_dualstack_ipv6():
        check_address("[::]:0", "a test")
    with pytest.raises(Unfit, match="in use"):
        check_address(busy.replace("127.0.0.1", "0.0.0.0"), "a test")


@pytest.mark.parametrize(
    ("listen", "reason"),
    [
        ("192.0.2.1:0", "no interface of this machine has this address"),
        ("no-such-host.invalid:0", "the host 'no-such-host.invalid' is not known"),
    ],
)
def test_addresses_of_others(listen: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address that this machine does not have, and a name that nobody knows."""

    def unknown(*_: object, **__: object) -> Sequence[object]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    if "invalid" in listen:
        monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(Unfit, match=reason):
        check_address(listen, "a test")


def test_room_counts_the_object_store_where_shared_memory_is_small(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Containers often have 64 MiB of shared memory; Ray then writes its objects to the same disk as its logs."""
    disk(monkeypatch, Path("/dev/shm"), free=64 * MIB)
    check_room(tmp_path, object_store_bytes=OBJECT_STORE_BYTES)
    enough = SimpleNamespace(f_bavail=START_BYTES + MIB, f_frsize=1, f_files=10**6, f_favail=10**6)
    monkeypatch.setattr(os, "statvfs", lambda _: enough)
    with pytest.raises(Unfit, match="has 65 MiB free, and Ray's files need 164 MiB"):
        check_room(tmp_path, object_store_bytes=OBJECT_STORE_BYTES)


def test_room_counts_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A disk can be full of small files; one that does not count them passes."""
    disk(monkeypatch, tmp_path, free=2**40, files=START_FILES - 1)
    with pytest.raises(Unfit, match=f"room for {START_FILES - 1} files"):
        check_room(tmp_path, object_store_bytes=OBJECT_STORE_BYTES)
    uncounted = SimpleNamespace(f_bavail=2**40, f_frsize=1, f_files=0, f_favail=0)
    monkeypatch.setattr(os, "statvfs", lambda _: uncounted)
    check_room(tmp_path, object_store_bytes=OBJECT_STORE_BYTES)


def test_missing_folder_is_told(tmp_path: Path) -> None:
    """The folder is named."""
    with pytest.raises(Unfit, match="none cannot be used: No such file"):
        check_room(tmp_path / "none", object_store_bytes=OBJECT_STORE_BYTES)
