"""A service as a job on a running Ray cluster that asks for a token."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import yaml
from tests.service.conftest import save_tables
from tests.service.head import Head
from tests.service.processes import until

JOB = """
import sys
from pathlib import Path
from outrider.client import Client, SamplingOptions, SpeculationOptions
from outrider.cluster.config.schema import load_config
from outrider.cluster.start.launch import start_service

with start_service(load_config(Path(sys.argv[1]))) as service:
    with Client(service.address, timeout_s=60) as client:
        sampling = SamplingOptions(max_tokens=20, seed=3, ignore_eos=True)
        outputs = [
            client.generate(tokens=[1, 2, 3], sampling=sampling, speculation=SpeculationOptions(enabled=on))
            for on in (False, True)
        ]
    roles = sorted(actor.role.value for actor in service.actors())
    print("PIDS", *(actor.pid for actor in service.actors()))
print("EQUAL" if [t.id for t in outputs[0].tokens] == [t.id for t in outputs[1].tokens] else "DIFFERENT", len(outputs[0].tokens), roles)
"""


def test_job_starts_a_service_in_the_cluster_and_leaves_no_actor(
    head: Head, tmp_path: Path
) -> None:
    """It joins with the cluster's token, is placed on a custom resource, serves, and ends what it started."""
    target, draft = save_tables(tmp_path)
    config = {
        "service": {"listen": "127.0.0.1:0"},
        "cluster": {"address": "auto"},
        "targets": [{"model": f"tabular:{target}", "resources": {"target_node": 1}}],
        "drafters": [{"model": f"tabular:{draft}"}],
    }
    (tmp_path / "service.yaml").write_text(yaml.safe_dump(config))
    (tmp_path / "job.py").write_text(JOB)
    result = head.submit(sys.executable, str(tmp_path / "job.py"), str(tmp_path / "service.yaml"))

    assert "EQUAL 20 ['coordinator', 'drafter', 'target']" in result.stdout, result.stdout
    assert result.returncode == 0
    line = next(line for line in result.stdout.splitlines() if line.startswith("PIDS "))
    pids = [int(pid) for pid in line.split()[1:]]
    assert len(pids) == 3
    until(
        lambda: not any(psutil.pid_exists(pid) for pid in pids),
        timeout_s=30.0,
        what="the end of the job's actors",
    )


def test_wrong_token_is_refused(head: Head) -> None:
    """Who does not know the token submits nothing."""
    stranger = Head(head.dashboard, {**head.variables, "RAY_AUTH_TOKEN": "wrong" * 8})
    result = stranger.submit("outrider", "config", "schema")

    assert result.returncode != 0
    assert "oken" in result.stdout + result.stderr
