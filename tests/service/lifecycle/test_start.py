"""How a service starts, and how it says that it cannot."""

from __future__ import annotations

import shutil
import signal
import socket
from pathlib import Path

import psutil
import yaml
from tests.service.conftest import save_tables
from tests.service.processes import (
    END_TIMEOUT_S,
    START_TIMEOUT_S,
    ServiceProcess,
    run,
    start,
    still_running,
    until,
)

from outrider.actors import demo


def test_missing_model_is_told_at_once() -> None:
    """Exit code 1 and one sentence, before Ray is started."""
    result = run("serve", "--target", "/no/such/folder", "--listen", "127.0.0.1:0")

    assert result.returncode == 1
    assert "targets[0].model: model '/no/such/folder': there is no such folder" in result.stderr
    assert "Traceback" not in result.stderr


def test_wrong_configuration_is_told_at_once(tmp_path: Path) -> None:
    """Exit code 2 and every problem."""
    file = tmp_path / "service.yaml"
    file.write_text("drafers: []\ncluster: {lease_s: 0}\n")
    result = run("serve", "--config", str(file))

    assert result.returncode == 2
    assert "unknown key 'drafers'; did you mean 'drafters'?" in result.stderr
    assert "cluster.lease_s: must be greater than or equal to 1, but is 0" in result.stderr


def test_port_in_use_is_told_at_once() -> None:
    """Exit code 1 and one sentence, before Ray is started or a model is looked at."""
    with socket.create_server(("127.0.0.1", 0)) as busy:
        address = f"127.0.0.1:{busy.getsockname()[1]}"
        result = run("serve", "--listen", address, "--target", "/no/such/folder")

    assert result.returncode == 1
    assert result.stderr.startswith(
        f"error: service.listen (--listen): cannot listen at {address}: the port is in use"
    )
    assert len(result.stderr.splitlines()) == 1


def test_actor_that_refuses_ends_the_start_with_its_own_words(tmp_path: Path) -> None:
    """A damaged model is found by the actor; its sentence reaches the user, and nothing stays."""
    folder = tmp_path / "broken"
    shutil.copytree(demo.path("target"), folder)
    (folder / "model.safetensors").write_bytes(b"no weights")
    result = run("serve", "--target", str(folder), "--listen", "127.0.0.1:0", timeout_s=200)

    assert result.returncode == 1
    assert "the target 'broken' cannot start:" in result.stderr
    assert "cannot be loaded" in result.stderr
    assert "is the folder complete?" in result.stderr
    assert "Traceback" not in result.stderr


def test_missing_resource_is_named(tmp_path: Path) -> None:
    """The resource, who needs it, and that nobody has it."""
    target, _ = save_tables(tmp_path)
    config = {
        "service": {"listen": "127.0.0.1:0"},
        "targets": [{"model": f"tabular:{target}", "num_gpus": 1000}],
    }
    file = tmp_path / "service.yaml"
    file.write_text(yaml.safe_dump(config))
    result = run("serve", "--config", str(file), timeout_s=200)

    assert result.returncode == 1
    assert (
        "there is no room in the Ray cluster: 'target' needs 1000 GPU, and no node has"
        in result.stderr
    )


def test_interrupt_while_starting_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C before the service serves: exit code 0, no process stays."""
    target, _ = save_tables(tmp_path)
    service = start(tmp_path, ["--target", f"tabular:{target}", "--listen", "127.0.0.1:0"])
    family = family_with_raylet(service)
    assert service.end(signal.SIGINT) == 0

    until(
        lambda: not still_running(family), timeout_s=END_TIMEOUT_S, what="the end of every process"
    )
    assert not (tmp_path / "ready").exists()


def family_with_raylet(service: ServiceProcess) -> list[psutil.Process]:
    """Every process of a starting service, once Ray's are among them."""
    names: set[str] = set()

    def has_raylet() -> bool:
        for process in service.family():
            try:
                names.add(process.name())
            except psutil.NoSuchProcess:
                continue
        return "raylet" in names

    until(has_raylet, timeout_s=START_TIMEOUT_S, what="the start of Ray")
    return service.family()
