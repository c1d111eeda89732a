"""The blocks of the operators' pages, run as they stand: against real services on emulated devices and a real Ray cluster, in the order in
which somebody would type them. `programs.py` says what stands for programs of clusters that are not here."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.chart.rendered import helm
from tests.client.batch.lines import chat, completion, write
from tests.docs.examples import PAGES, ROOT
from tests.docs.scenes import BLOCKS, ELSEWHERE, NODES, ON_A_CLUSTER, SCENES, Step
from tests.docs.stage import Stage, staged
from tests.service.head import PATIENCE, free_ports


@pytest.fixture(scope="module")
def cluster() -> Iterator[Stage]:
    """The nodes of docs/cluster.md, as processes of this machine."""
    folder = Path(tempfile.mkdtemp(prefix="docs-", dir="/tmp"))  # Ray's sockets want short names.
    port, dashboard, served = free_ports(3)
    nodes = "--num-cpus=4 --object-store-memory=80000000 --dashboard-agent-listen-port=0 --include-log-monitor=false"
    head = f"--port={port} --dashboard-port={dashboard} --dashboard-host=127.0.0.1"
    variables = {
        "RAY_NODE": nodes,
        "RAY_HEAD": f"{head} --no-monitor --include-dashboard=true --temp-dir={folder / 'ray'}",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        **PATIENCE,
    }
    try:
        with staged(folder / "stage", served, variables) as stage:
            stage.words = {"10.0.0.1:6379": f"127.0.0.1:{port}", "10.0.0.1": "127.0.0.1"}
            token = stage.folder / ".ray-token"
            token.write_text("t" * 64)
            token.chmod(0o600)
            NODES.take(stage)
            stage.words |= {
                f"http://{at}:8265": f"http://127.0.0.1:{dashboard}" for at in ("10.0.0.1", "head")
            }
            stage.variables |= {
                "RAY_AUTH_MODE": "token",
                "RAY_AUTH_TOKEN_PATH": str(token),
                "RAY_ADDRESS": f"127.0.0.1:{port}",
                "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{dashboard}",
            }
            yield stage
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def scene(folder: Path, on: Stage | None = None) -> Iterator[Stage]:
    """A stage with the files and addresses of the pages; on a cluster with its variables."""
    port = on.port if on else free_ports(1)[0]
    with staged(folder / "stage", port, {}) as stage:
        here, address = stage.folder, f"127.0.0.1:{port}"
        if on:
            own = ("PATH", "HOME", "STAGE")
            stage.variables |= {k: v for k, v in on.variables.items() if k not in own}
            (here / "token").write_text((on.folder / ".ray-token").read_text())
        stage.words = {
            **(on.words if on else {}),
            **dict.fromkeys(("127.0.0.1:50051", "0.0.0.0:50051", "10.0.0.1:50051"), address),
            "HOST:PORT": address,
            "10.0.0.1:50051,10.0.0.2:50051": f"127.0.0.1:1,{address}",
            "127.0.0.1:9464": f"127.0.0.1:{free_ports(1)[0]}",
            "DNS:decode.example.com": "DNS:localhost,DNS:demo-outrider.decoding.svc",
            "decode.example.com:50051": f"localhost:{port}",
            "decode.example.com": "localhost",
            "/etc/outrider": str(here),
            "/shared/": f"{here}/",
            "s3://bucket/": f"{here}/",
            "/models/llama-8b": "law:agree70",
            "/models/llama-1b": "law:agree70/draft",
            "--seconds 10": "--seconds 1",
            "--shards 8": "--shards 2",
            # Training takes an hour; tests/actors/train/demo/test_demo.py does it in small.
            "--working-dir texts train": "--working-dir texts --dry-run train",
        }
        records = (completion("a", model="agree70"), chat("b", model="agree70"))
        for name in ("in", "IN", "requests"):
            write(here / f"{name}.jsonl", *records)
        (here / "prompts.txt").write_text("Once\n")
        (here / "texts").mkdir()
        yield stage


@pytest.mark.parametrize("name", SCENES)
def test_blocks_run(name: str, tmp_path: Path) -> None:
    """Every command ends with 0 and says what it should."""
    with scene(tmp_path) as stage:
        if name in ("certificates", "kubernetes", "the chart"):
            stage.variables["HELM"] = helm()
        for step in SCENES[name]:
            step.take(stage)


@pytest.mark.parametrize("name", ON_A_CLUSTER)
def test_blocks_run_on_a_cluster(name: str, tmp_path: Path, cluster: Stage) -> None:
    """The same, where Ray runs already."""
    with scene(tmp_path, cluster) as stage:
        for step in ON_A_CLUSTER[name]:
            step.take(stage)


def test_each_block_is_run_once() -> None:
    """Here or by another test; a fence without a language would not be found."""
    steps = [step for steps in (*SCENES.values(), *ON_A_CLUSTER.values()) for step in steps]
    run = [step.block().name for step in (*steps, NODES)]
    for (page, words), (file, shows) in ELSEWHERE.items():
        run.append(Step(page, words).block().name)
        text = (ROOT / file).read_text()
        assert all(each in text for each in shows), (page, words)
    assert sorted(run) == sorted(each.name for each in BLOCKS)
    for page in PAGES:
        fences = re.findall(r"^ *```(.*)$", (ROOT / page).read_text(), re.MULTILINE)
        assert all(fences[::2]), page
        assert not any(fences[1::2]), page
