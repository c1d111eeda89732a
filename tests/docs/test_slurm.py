"""docs/slurm.sbatch, run as it is. Slurm itself is stood in for: `srun` runs a command on a host of `bench.network.network`, `scontrol` names
the hosts, and the test is the one that sends SIGTERM at the end. Everything else is real: two nodes of Ray, a service over both.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import yaml
from tests.service.conftest import save_tables
from tests.service.processes import ROOT, until

from bench.network.network import Network, Unavailable, network
from outrider.client import Client, SamplingOptions, SpeculationOptions

START_S = 240.0
"""Until the service serves; half a minute on an idle machine."""

END_S = 90.0


def stand_ins(folder: Path, hosts: Network) -> None:
    """The commands of Slurm that the script uses, and `outrider`."""
    scripts = {
        "scontrol": "#!/bin/bash\n[ \"$1 $2\" = 'show hostnames' ] && printf '%s\\n' first second\n",
        "srun": "#!/bin/bash\n"
        "while [[ $1 == --* ]]; do case $1 in --nodelist=*) node=${1#*=};; esac; shift; done\n"
        "case $node in\n"
        + "".join(
            f'  {name}) exec {" ".join(hosts.hosts[name].prefix)} "$@";;\n'
            for name in ("first", "second")
        )
        + "esac\n",
        "outrider": f"#!{sys.executable}\nfrom outrider.client.cli import main\nmain()\n",
        "ray": f"#!{sys.executable}\nfrom ray.scripts.scripts import main\nmain()\n",
    }
    for name, text in scripts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)


def configured(folder: Path) -> Path:
    """A target on the other node, a drafter wherever there is room."""
    target, draft = save_tables(folder)
    file = folder / "service.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "service": {"listen": "0.0.0.0:50051"},
                "cluster": {"address": "auto", "drain_s": 1.0, "placement_timeout_s": START_S},
                "targets": [
                    {"name": "t", "model": f"tabular:{target}", "node_labels": {"role": "other"}}
                ],
                "drafters": [{"name": "d", "model": f"tabular:{draft}"}],
            }
        )
    )
    return file


def test_the_script_serves_over_its_nodes_and_ends_with_the_job(tmp_path: Path) -> None:
    """The text is that of plain decoding; at the job's end nothing stays, and neither does the token."""
    try:
        with network(["first", "second"]) as hosts:
            _run(tmp_path, hosts)
    except Unavailable as reason:
        pytest.skip(str(reason))


def _run(folder: Path, hosts: Network) -> None:
    commands, work = folder / "bin", folder / "work"
    for each in (commands, work):
        each.mkdir()
    stand_ins(commands, hosts)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    log = folder / "log"
    with log.open("wb") as said:
        job = subprocess.Popen(
            [
                *hosts.hosts["first"].prefix,
                *("bash", str(ROOT / "docs" / "slurm.sbatch"), str(configured(folder))),
            ],
            cwd=work,
            env={
                **kept,
                "PATH": f"{commands}:{kept['PATH']}",
                "PYTHONPATH": str(ROOT / "src"),
                "OMP_NUM_THREADS": "1",
                "SLURM_JOB_ID": "7",
                "SLURM_JOB_NODELIST": "[first,second]",
            },
            stdout=said,
            stderr=said,
        )
    family: list[psutil.Process] = []
    try:
        ready = work / "outrider-7.json"

        def is_ready() -> bool:
            assert job.poll() is None, log.read_text(errors="replace")
            return ready.exists()

        try:
            until(is_ready, timeout_s=START_S, what="the ready file")
        except TimeoutError as error:
            raise AssertionError(log.read_text(errors="replace")) from error
        family = psutil.Process(job.pid).children(recursive=True)
        content = json.loads(ready.read_text())
        addresses = {each["name"]: each["address"] for each in content["actors"]}
        assert addresses["t"].startswith(f"{hosts.hosts['second'].address}:")
        assert content["address"] == f"{hosts.hosts['first'].address}:50051"
        (token,) = work.glob("outrider-7-*/token")
        assert token.stat().st_mode & 0o077 == 0
        with Client(content["address"], timeout_s=60.0) as client:
            sampling = SamplingOptions(seed=1, max_tokens=40, ignore_eos=True)
            texts = [
                client.generate(
                    tokens=[1, 2, 3],
                    sampling=sampling,
                    speculation=SpeculationOptions(enabled=enabled),
                )
                for enabled in (True, False)
            ]
        ids = [[token.id for token in text.outputs[0].tokens] for text in texts]
        assert ids[0] == ids[1]

        job.send_signal(signal.SIGTERM)
        assert job.wait(END_S) == 143
        assert not token.exists()
        assert not ready.exists()
        gone, left = psutil.wait_procs(family, END_S)
        assert [each.name() for each in left] == []
        assert len(gone) == len(family)
    finally:
        for process in {*family, *_children(job.pid)}:
            if process.is_running():
                process.kill()
        job.kill()
        job.wait(END_S)


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
