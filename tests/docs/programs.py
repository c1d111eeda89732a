"""What the shell finds in place of programs while blocks of the documentation run: ours, which need a port of their own and must end some
time, and those of clusters that are not here. A call of `python -m tests.docs.programs NAME WORD...` is one of program NAME.

Variables: STAGE, a folder for what runs beside the block and for what helm has rendered; PORT, where services listen.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

WAIT_S = 200.0
"""For whatever runs beside a block to be there: seconds on an idle machine."""

SERVES = "; Ctrl-C or SIGTERM ends it"
JOB_ID = re.compile(r"outrider-serve-\d{8}-\d{6}-[0-9a-f]{6}")
OUTRIDER = (sys.executable, "-c", "from outrider.client.cli import main; main()")
RAY = (sys.executable, "-c", "from ray.scripts.scripts import main; main()")
_START = """
import types
import ray.scripts.scripts as scripts

known = vars(scripts.ray_constants)
scripts.ray_constants = types.SimpleNamespace(**known | {"ENABLE_RAY_CLUSTER": True})
scripts.main()
"""
NODE = (sys.executable, "-c", _START)
"""`ray`, starting a node. With RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 Ray keeps to loopback, and starts no node but a head: this does."""


def stage() -> Path:
    """Where this call's traces go."""
    return Path(os.environ["STAGE"])


def _put(file: Path, number: int) -> None:
    """Writes a file that is never seen half-written."""
    written = file.with_suffix(f"{file.suffix}-part")
    written.write_text(str(number))
    written.replace(file)


def beside(name: str, command: Sequence[str], said: str) -> None:
    """Starts a command that does not end by itself; returns when it has said this. Its process is in NAME.pid, its words in NAME.log
    and, once it has ended, its exit code in NAME.code."""
    log = stage() / f"{name}.log"
    if os.fork() == 0:
        os.setsid()
        with log.open("wb") as file:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.dup2(1, 2)
        _put(stage() / f"{name}.pid", process.pid)
        _put(stage() / f"{name}.code", process.wait())
        os._exit(0)
    deadline = time.monotonic() + WAIT_S
    while not (stage() / f"{name}.pid").exists() or said not in log.read_text(errors="replace"):
        if (stage() / f"{name}.code").exists() or time.monotonic() > deadline:
            raise SystemExit(f"{' '.join(command)}\n{log.read_text(errors='replace')}")
        time.sleep(0.05)


def interrupted(command: Sequence[str]) -> None:
    """Runs a command that goes on for ever, and presses Ctrl-C when it has said something. Where that ends the command, 0 is expected; following a job is
    broken off with 130."""
    # A test run that was started in the background ignores Ctrl-C, and its children would too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        print(process.stdout.readline().decode(), end="", flush=True)
        process.send_signal(signal.SIGINT)
        print(process.stdout.read().decode(), end="", flush=True)
    expected = 130 if "--follow" in command else 0
    raise SystemExit(0 if process.returncode == expected else process.returncode or 1)


def outrider(words: list[str]) -> None:
    """The real one. A service runs on beside the block, on emulated devices unless a file says what it runs."""
    names = sorted(stage().glob("job-*.log"))
    if names:
        job = JOB_ID.search(names[-1].read_text())
        words = [JOB_ID.sub(job[0], word) if job else word for word in words]
    if words[0] == "serve" and "--config" not in words:
        words += ["--emulate", "2ms,1ms"]
        if "--listen" not in words:
            words += ["--listen", f"127.0.0.1:{os.environ['PORT']}"]
    number = len(list(stage().glob("*.pid")))
    if words[0] == "serve":
        beside(f"serve-{number}", [*OUTRIDER, *words], SERVES)
    elif words[0] == "submit" and "serve" in words:
        beside(f"job-{number}", [*OUTRIDER, *words], SERVES)
    elif {"--watch", "--follow"} & set(words):
        interrupted([*OUTRIDER, *words])
    else:
        os.execv(OUTRIDER[0], [*OUTRIDER, *words])


def ray(words: list[str]) -> None:
    """The real one. A node runs on beside the block, with ports and a folder of its own."""
    if words[0] != "start":
        os.execv(RAY[0], [*RAY, *words])
    number = len(list(stage().glob("*.pid")))
    # Jobs find the command itself.
    node = stage() / "node"
    node.mkdir(exist_ok=True)
    (node / "outrider").write_text(f'#!/bin/bash\nexec {shlex.join(OUTRIDER)} "$@"\n')
    (node / "outrider").chmod(0o755)
    os.environ["PATH"] = f"{node}:{os.environ['PATH']}"
    own = [*os.environ["RAY_NODE"].split(), *os.environ["RAY_HEAD"].split() * ("--head" in words)]
    beside(f"ray-{number}", [*NODE, *words, "--block", *own], "Ray runtime started")


def helm(words: list[str]) -> None:
    """Installing is rendering, by the real helm; what is known of a release is what was rendered."""
    verb, name, *rest = words
    file = stage() / f"{name}.yaml"
    if verb == "repo":
        assert rest[1].startswith("https://")
        (stage() / f"repo-{rest[0]}").touch()
    elif verb in ("install", "upgrade") and not Path(rest[0]).exists():
        assert (stage() / f"repo-{rest[0].partition('/')[0]}").exists(), f"no chart {rest[0]}"
    elif verb in ("install", "upgrade"):
        assert file.exists() == (verb == "upgrade"), f"{verb}: {file.exists()=}"
        flags = [word for word in rest if word != "--create-namespace"]
        made = subprocess.run(
            [os.environ["HELM"], "template", name, *flags], stdout=subprocess.PIPE, check=True
        )
        file.write_bytes(made.stdout)
    elif verb == "test":
        assert any("helm.sh/hook" in str(each["metadata"]) for each in rendered(name))
    else:
        assert verb == "uninstall", verb
        assert file.exists(), f"no release {name}"


def rendered(release: str = "*", kind: str = "") -> list[dict[str, Any]]:
    """Objects of releases."""
    import yaml

    texts = [file.read_text() for file in sorted(stage().glob(f"{release}.yaml"))]
    every = [each for text in texts for each in yaml.safe_load_all(text) if each]
    return [each for each in every if kind in ("", each["kind"])]


def kubectl(words: list[str]) -> None:
    """Names must be those of objects that were rendered; a command in a pod runs here, with the variables of its container."""
    assert words[0] == "--namespace"
    match words[2:]:
        case ["create", "secret", "generic", _, "--from-file", file]:
            assert Path(file).read_text().strip()
        case ["port-forward", target, port]:
            (found,) = [
                each for each in rendered(kind="Service") if f"service/{_name(each)}" == target
            ]
            assert int(port) in [each["port"] for each in found["spec"]["ports"]]
        case ["patch", "raycluster", name, "--type", "merge", "--patch", patch]:
            assert name in [_name(each) for each in rendered(kind="RayCluster")]
            assert json.loads(patch)["spec"]
        case ["exec", pod, "-c", container, "--", *command]:
            os.environ.update(_variables(pod, container))
            os.execvp(command[0], command)
        case other:
            raise SystemExit(f"kubectl {other}: say here what it does")


def _name(found: dict[str, Any]) -> str:
    return str(found["metadata"]["name"])


def _variables(pod: str, container: str) -> dict[str, str]:
    """Of a container of a pod, with the port and the files of this stage for those of the cluster."""
    (cluster,) = rendered(kind="RayCluster")
    for group in cluster["spec"]["workerGroupSpecs"]:
        if pod.startswith(f"{_name(cluster)}-{group['groupName']}-worker-"):
            (spec,) = [
                one for one in group["template"]["spec"]["containers"] if one["name"] == container
            ]
            values = {one["name"]: one.get("value", "") for one in spec["env"]}
            return {
                name: value.replace(":50051", f":{os.environ['PORT']}")
                .replace("/etc/outrider-tls/tokens/", "")
                .replace("/etc/outrider-tls/", "")
                for name, value in values.items()
                if name.startswith("OUTRIDER_")
            }
    raise SystemExit(f"no pod like {pod}")


def docker(words: list[str]) -> None:
    """The recipe is there, and so is what it copies."""
    assert words[0] == "build"
    recipe = Path(words[words.index("-f") + 1]).read_text()
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", recipe, re.MULTILINE):
        for source in sources.split():
            assert (Path(words[-1]) / source).exists(), source


def pip(words: list[str]) -> None:
    """Nothing is installed; extras exist."""
    import tomllib

    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    assert words[0] == "install"
    for extra in re.findall(r"[\w]+", words[1].partition("[")[2]):
        assert extra in project["optional-dependencies"], extra


def sbatch(words: list[str]) -> None:
    """Script and configuration are there; the service that runs already is taken for the job's."""
    script, config = [word for word in words if not word.startswith("-")]
    assert Path(script).exists()
    assert Path(config).exists()
    Path("outrider-1234.json").symlink_to("ready.json")  # A copy has no lock of its service.


def scancel(words: list[str]) -> None:
    """The script does something with that signal."""
    assert "trap 'exit 143' TERM" in Path("docs/slurm.sbatch").read_text()
    assert words == ["--signal=TERM", "--batch", "1234"]


PROGRAMS: dict[str, Callable[[list[str]], None]] = {
    each.__name__: each for each in (outrider, ray, helm, kubectl, docker, pip, sbatch, scancel)
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](sys.argv[2:])
