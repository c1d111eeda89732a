"""Pods on this machine: each has a network of its own, each container its own processes and its own root, read-only, and its user.

What a rendered pod says is done as it says it: commands, arguments, variables, mounts, users, and nothing is translated. What is not
there is the image: the machine's own root and this source tree stand in for it. Needs root, `ip`, /dev/net/tun and mounts.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
from tests.chart.rendered import ROOT, Object, Pod

from bench.network.network import Host, Unavailable

END_S = 60.0
"""Bound on the end of killed processes."""

IMAGE_PATH = "/image/bin"
"""Where the image's programs lie in a container."""

OUTRIDER = f"""#!{sys.executable}
from outrider.client.cli import main
main()
"""

_HERE = (str(ROOT), sys.prefix, sys.base_prefix)


class Ended(AssertionError):
    """A container has ended that should run; says which, and what all have said."""


@dataclass
class Running:
    """A container that runs."""

    process: subprocess.Popen[bytes]
    log: Path
    spec: Path

    @property
    def said(self) -> str:
        """Its output so far."""
        return self.log.read_text(errors="replace")

    def own(self) -> psutil.Process:
        """The container's first process."""
        (first,) = psutil.Process(self.process.pid).children()
        return first

    def end(self) -> None:
        """Kills it. A namespace ends with its first process, and that one not with its parent: whoever changes users loses the signal."""
        firsts = []
        if self.process.poll() is None:
            firsts = psutil.Process(self.process.pid).children()
        for first in firsts:
            with contextlib.suppress(psutil.NoSuchProcess):
                first.kill()
        self.process.kill()
        self.process.wait(END_S)
        _, alive = psutil.wait_procs(firsts, END_S)
        assert not alive

    def exec(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Starts a command in the container, as a hook, a probe or `kubectl exec` does."""
        spec = json.loads(self.spec.read_text())
        inside = [
            "nsenter",
            "-t",
            str(self.own().pid),
            "-m",
            "-p",
            "-n",
            "-r",
            "-w",
            "-S",
            "1000",
            "-G",
            "1000",
            "--",
        ]
        return subprocess.Popen([*inside, *command], env=spec["environment"])


@dataclass
class Machine:
    """Runs pods. A context manager: leaving it ends all and removes their files."""

    token: str = field(default_factory=lambda: secrets.token_hex(32))
    """Ray's."""

    names: dict[str, str] = field(default_factory=dict)
    """What each name in the network stands for."""

    configs: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """Files of each ConfigMap."""

    secrets: dict[str, Mapping[str, bytes]] = field(default_factory=dict)
    """Files of each secret."""

    containers: dict[tuple[str, str], Running] = field(default_factory=dict)
    _folder: Path = field(init=False)

    def __enter__(self) -> Self:
        # Open to the containers' user, and short.
        self._folder = Path(tempfile.mkdtemp(prefix="opods-", dir="/tmp"))
        self._folder.chmod(0o755)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for running in self.containers.values():
            running.end()
        for folder in self._folder.glob("*/volumes/shared-mem"):
            subprocess.run(["umount", str(folder)], check=False)
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(
        self,
        pod: Pod,
        host: Host,
        name: str,
        *,
        command: Sequence[str],
        variables: Mapping[str, str],
    ) -> Running:
        """Starts a container of a pod.

        Args:
            pod: The pod.
            host: Its place in the network.
            name: The container's name.
            command: What it runs.
            variables: Beside the container's own; those win.
        """
        container = pod.container(name)
        place = self._folder / pod.group / name
        shutil.rmtree(place, ignore_errors=True)  # Of an earlier start of the container.
        (place / "root").mkdir(parents=True)
        spec = {
            "root": str(place / "root"),
            "mounts": {
                each["mountPath"]: [
                    str(self._volume(pod, each["name"])),
                    each.get("readOnly", False),
                ]
                for each in container["volumeMounts"]
            },
            "shared": [folder for folder in dict.fromkeys(_HERE) if not folder.startswith("/usr")],
            "files": {
                "/etc/hosts": "".join(
                    f"{address} {known}\n"
                    for known, address in {**self.names, socket.gethostname(): host.address}.items()
                ),
                # Nobody else is asked: an answer that never comes would hold names up for long.
                "/etc/resolv.conf": "nameserver 127.0.0.1\n",
                f"{IMAGE_PATH}/outrider": OUTRIDER,
            },
            "user": pod.spec["securityContext"]["runAsUser"],
            "group": pod.spec["securityContext"]["runAsGroup"],
            "environment": {
                "PATH": f"{IMAGE_PATH}:{Path(sys.executable).parent}:/usr/bin:/bin",
                "PYTHONPATH": str(ROOT / "src"),
                "PYTHONDONTWRITEBYTECODE": "1",
                "OMP_NUM_THREADS": "1",
                **variables,
                **{each["name"]: self._value(each) for each in container["env"]},
            },
            "command": list(command),
        }
        (place / "spec.json").write_text(json.dumps(spec))
        (place / "spec.json").chmod(0o600)
        enter = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        others = [each for (group, _), each in self.containers.items() if group == pod.group]
        if others and pod.spec.get("shareProcessNamespace", False):
            enter = ["nsenter", "-t", str(others[0].own().pid), "-p", "unshare", "--mount"]
        with (place / "log").open("wb") as log:
            process = subprocess.Popen(
                [
                    *host.prefix,
                    *enter,
                    sys.executable,
                    str(ROOT / "tests/chart/enter.py"),
                    str(place / "spec.json"),
                ],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        running = Running(process, place / "log", place / "spec.json")
        self.containers[pod.group, name] = running
        return running

    def until(self, condition: Callable[[], bool], *, timeout_s: float, what: str) -> None:
        """Waits until something is so.

        Raises:
            Ended: A container has ended.
            AssertionError: It is not so in time; with what all containers have said.
        """
        deadline = time.monotonic() + timeout_s
        while not condition():
            if ended := [
                key for key, each in self.containers.items() if each.process.poll() is not None
            ]:
                raise Ended(f"{what}: {ended} ended\n{self._said()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"{what}: not within {timeout_s:g} s\n{self._said()}")
            time.sleep(0.2)

    def _said(self) -> str:
        return "\n".join(f"== {key}\n{each.said[-3000:]}" for key, each in self.containers.items())

    def _volume(self, pod: Pod, name: str) -> Path:
        """The folder of a pod's volume; containers of one pod share it."""
        folder = self._folder / pod.group / "volumes" / name
        if folder.exists():
            return folder
        volume: Object = next(each for each in pod.spec["volumes"] if each["name"] == name)
        folder.mkdir(parents=True)
        if "configMap" in volume:
            for file, text in self.configs[volume["configMap"]["name"]].items():
                (folder / file).write_text(text)
            return folder
        if "secret" in volume:
            mode = volume["secret"]["defaultMode"]
            for file, content in self.secrets[volume["secret"]["secretName"]].items():
                (folder / file).write_bytes(content)
                shutil.chown(folder / file, 0, pod.spec["securityContext"]["fsGroup"])
                (folder / file).chmod(mode)
            return folder
        if "emptyDir" not in volume:
            raise AssertionError(f"the volume {volume} cannot be had on this machine")
        if volume["emptyDir"].get("medium") == "Memory":
            size = volume["emptyDir"]["sizeLimit"].removesuffix("i")
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True
            )
        # What `fsGroup` does.
        shutil.chown(folder, 0, pod.spec["securityContext"]["fsGroup"])
        folder.chmod(0o2770)
        return folder

    def _value(self, variable: Mapping[str, Any]) -> str:
        """A variable's value; a secret's is Ray's token."""
        if "value" in variable:
            return str(variable["value"])
        assert variable["valueFrom"]["secretKeyRef"]["key"] == "auth_token", variable
        return self.token


def check_machine() -> None:
    """Whether containers can be made here.

    Raises:
        Unavailable: They cannot; says why.
    """
    if os.geteuid() != 0:
        raise Unavailable("mounts need root")
    tried = subprocess.run(
        [
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "sh",
            "-c",
            "mount --make-rprivate / && mount -t tmpfs tmpfs /mnt",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=END_S,
    )
    if tried.returncode != 0:
        raise Unavailable(f"mounts cannot be made: {tried.stderr.strip()}")
