"""The blocks of the operators' pages, run as they stand: against real services on emulated devices and a real Ray cluster, in the order in
which somebody would type them. `programs.py` says what stands for programs of clusters that are not here."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import yaml
from tests.chart.rendered import helm
from tests.client.batch.lines import chat, completion, write
from tests.docs.examples import PAGES, ROOT, Example, examples
from tests.docs.stage import Stage, staged
from tests.service.head import PATIENCE, free_port

from outrider.client import Client, OutriderError

pytestmark = pytest.mark.timeout(600)

BLOCKS = examples("bash", "sh", "python")
TARGET = {"model": "law:agree70", "device": "emulated:2ms"}
DRAFTER = {"model": "law:agree70/draft", "device": "emulated:1ms"}
SERVED = r"agree70.*serving"

ELSEWHERE = {
    ("README.md", "outrider demo"): (".ci/run", ("'.[serve,dev]'", 'outrider" demo --quick')),
    ("README.md", "python -m pytest"): (".ci/run", ("'.[serve,dev]'", "python -m pytest -q -n 2")),
}
"""Blocks that another test runs, by page and words: which one, and the words that show it."""


@dataclass(frozen=True, slots=True)
class Step:
    """A block, found by its page and words of it."""

    page: str
    words: str
    says: tuple[str, ...] = ()
    """Patterns of what comes out."""

    typed: str = ""
    before: Callable[[Stage], Any] | None = None
    beside: Callable[[Stage, Event], None] | None = None
    """Goes on while the block runs."""

    def block(self) -> Example:
        """The one that is meant."""
        (found,) = [each for each in BLOCKS if each.page == self.page and self.words in each.text]
        return found

    def take(self, stage: Stage) -> None:
        """Runs it and looks at what comes out."""
        if self.before is not None:
            self.before(stage)
        is_over = Event()
        aside = Thread(target=self.beside or (lambda *_: None), args=(stage, is_over))
        aside.start()
        try:
            said = stage.run(self.block(), typed=self.typed)
        finally:
            is_over.set()
            aside.join()
        for pattern in self.says:
            assert re.search(pattern, said + stage.logs(), re.DOTALL), f"{pattern}:\n{said}"


def configured(stage: Stage, **sections: Any) -> None:
    """Writes service.yaml, which listens where clients of the stage go."""
    service = {"listen": f"127.0.0.1:{stage.port}"} | sections.pop("service", {})
    content = {"service": service, "targets": [TARGET], "drafters": [DRAFTER]} | sections
    (stage.folder / "service.yaml").write_text(yaml.safe_dump(content))


def shown(page: str, words: str, stage: Stage) -> dict[str, Any]:
    """A configuration of a page, with what stands for its words."""
    (found,) = [each for each in examples("yaml", page=page) if words in each.text]
    content: dict[str, Any] = yaml.safe_load(stage.here(found.text))
    return content


def with_prompt_lookup(stage: Stage) -> None:
    """What is to be applied: another drafter."""
    configured(stage, drafters=[DRAFTER, {"method": "prompt_lookup"}])


def on_the_cluster(stage: Stage) -> None:
    """docs/cluster.md's configuration with models that are here, and docs/observability.md's page of metrics."""
    content = shown("docs/cluster.md", "node_labels: {role: target}", stage)
    metrics = shown("docs/observability.md", "metrics:", stage)["service"]
    (target,), (drafter,) = content["targets"], content["drafters"]
    content["targets"] = [target | TARGET | {"replicas": 1}]
    content["drafters"] = [drafter | DRAFTER | {"replicas": 1}]
    configured(stage, **content | {"service": metrics})


def answers_are_kept(stage: Stage) -> None:
    """An output with an error, which is to go."""
    write(stage.folder / "OUT.jsonl", {"custom_id": "a", "error": None}, {"error": {"code": "x"}})


def requests_by_name(stage: Stage, is_over: Event) -> None:
    """Somebody sends the request that is waited for."""
    while not is_over.wait(0.2):
        try:
            with Client(f"127.0.0.1:{stage.port}", timeout_s=20.0) as client:
                client.generate("Once", request_id="r-123")
        except OutriderError:
            continue  # One of that name runs still.


def with_certificates(stage: Stage) -> None:
    """The service that docs/security.md describes, and a client's files where the page has them."""
    configured(stage, **shown("docs/security.md", "client_ca", stage))
    shutil.copy(stage.folder / "public/ca.crt", stage.folder / "ca.crt")
    shutil.copy(stage.folder / "tokens", stage.folder / "token")
    serve = "outrider serve --config service.yaml --log-level info"
    stage.run(Example("docs/security.md", "bash", serve, 0))
    # The authority is a public one for this client, which has its certificate and token by variables.
    own = {"OUTRIDER_TLS_CERT": "anne.crt", "OUTRIDER_TLS_KEY": "anne.key"}
    roots = {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(stage.folder / "ca.crt")}
    stage.variables |= {**own, **roots, "OUTRIDER_TOKEN_FILE": "token"}


def another_certificate(stage: Stage) -> None:
    """The page's commands made new ones; the log is where the page has it."""
    for name in ("crt", "key"):
        file = stage.folder / f"public/tls.{name}"
        shutil.copy(file, f"{file}.new")
        os.replace(f"{file}.new", file)
    stage.run(Example("docs/security.md", "bash", "outrider health --tls-name localhost", 0))
    (log,) = stage.traces.glob("serve-*.log")
    (stage.folder / "serve.log").symlink_to(log)


def released(stage: Stage) -> None:
    """The release that docs/kubernetes.md's certificates are for."""
    values = stage.folder / "values.yaml"
    values.write_text(yaml.safe_dump(shown("docs/kubernetes.md", "tokenSecret", stage)))
    line = "helm install demo helm/outrider --namespace decoding --values values.yaml"
    stage.run(Example("docs/kubernetes.md", "bash", line, 0))


SCENES: dict[str, tuple[Step, ...]] = {
    "a laptop": (
        Step("README.md", "outrider chat", ("serving at 127.0.0.1", "agree70"), "Hello\n/exit\n"),
        Step("README.md", "TextChunk"),
        Step("docs/batch.md", "outrider batch IN.jsonl", ("tokens",)),
        Step("docs/batch.md", "jq -c", before=answers_are_kept),
        Step("docs/timeline.md", "outrider trace", ("target",), beside=requests_by_name),
        Step("docs/timeline.md", "start_trace", (r"^[\d.]+",)),
        Step("docs/observability.md", "outrider status --watch", ("tokens",)),
        Step("docs/cluster.md", "outrider status    #", ("agree70",)),
    ),
    "own models": (Step("README.md", "outrider serve --target", (SERVED, "prompt_lookup")),),
    "a file": (
        Step("README.md", "outrider config validate", ("nothing to change",), before=configured),
    ),
    "operations": (
        Step("docs/operations.md", "outrider serve --ready-file", ("agree70",)),
        Step("docs/operations.md", "sbatch", ("agree70",), before=configured),
        Step("docs/operations.md", "10.0.0.2:50051"),
        Step("docs/operations.md", "--drain 1200", ("add +drafter",), before=with_prompt_lookup),
        Step("docs/operations.md", "outrider bench", ("outputs equal", "accepted")),
        Step("docs/observability.md", "pip install"),
    ),
    "certificates": (
        Step("docs/security.md", "openssl req"),
        Step("docs/security.md", "outrider status", (SERVED,), before=with_certificates),
        Step("docs/security.md", "tls=tls", ("True",)),
        Step("docs/security.md", "s_client", ("notAfter=",), before=another_certificate),
        Step("docs/kubernetes.md", "kubectl --namespace decoding exec", (SERVED,), before=released),
    ),
    "kubernetes": (
        Step("docs/kubernetes.md", "helm repo add"),
        Step("docs/kubernetes.md", "docker build"),
        Step("docs/kubernetes.md", "helm test"),
        Step("docs/kubernetes.md", "helm install laptop"),
        Step("docs/kubernetes.md", "helm upgrade"),
        Step("docs/kubernetes.md", "helm uninstall"),
        Step("docs/kubernetes.md", "patch raycluster"),
    ),
    "the chart": (Step("helm/outrider/README.md", "helm install"),),
}
ON_A_CLUSTER: dict[str, tuple[Step, ...]] = {
    "by hand": (
        Step("docs/cluster.md", "serve --config service.yaml\n", before=on_the_cluster),
        Step("docs/batch.md", "ray job submit", ("succeeded",)),
    ),
    "metrics": (Step("docs/observability.md", "curl", ("outrider_up",), before=on_the_cluster),),
    "changes": (Step("docs/cluster.md", "--watch     #", ("nothing to",), before=on_the_cluster),),
    "jobs": (Step("docs/jobs.md", "submit list", ("SUCCEEDED", "STOPPED"), before=configured),),
}
NODES = Step("docs/cluster.md", "ray start --head")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Stage]:
    """The nodes of docs/cluster.md, as processes of this machine."""
    folder = Path(tempfile.mkdtemp(prefix="docs-", dir="/tmp"))  # Ray's sockets want short names.
    port, dashboard = free_port(), free_port()
    nodes = "--num-cpus=4 --object-store-memory=80000000 --dashboard-agent-listen-port=0"
    head = f"--port={port} --dashboard-port={dashboard} --dashboard-host=127.0.0.1"
    variables = {
        "RAY_NODE": nodes,
        "RAY_HEAD": f"{head} --include-dashboard=true --temp-dir={folder / 'ray'}",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        **PATIENCE,
    }
    try:
        with staged(folder / "stage", free_port(), variables) as stage:
            stage.words = {"10.0.0.1:6379": f"127.0.0.1:{port}", "10.0.0.1": "127.0.0.1"}
            token = stage.folder / ".ray-token"
            token.write_text("t" * 64)
            token.chmod(0o600)
            NODES.take(stage)
            stage.words |= {f"http://{at}:8265": f"http://127.0.0.1:{dashboard}" for at in HEADS}
            stage.variables |= {
                "RAY_AUTH_MODE": "token",
                "RAY_AUTH_TOKEN_PATH": str(token),
                "RAY_ADDRESS": f"127.0.0.1:{port}",
                "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{dashboard}",
            }
            yield stage
    finally:
        shutil.rmtree(folder, ignore_errors=True)


HEADS = ("10.0.0.1", "head")


@contextmanager
def scene(folder: Path, on: Stage | None = None) -> Iterator[Stage]:
    """A stage with the files and addresses of the pages; on a cluster with its variables."""
    port = on.port if on else free_port()
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
            "127.0.0.1:9464": f"127.0.0.1:{free_port()}",
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
            # Training takes an hour; tests/actors/train/test_demo.py does it in small.
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
    if name in ("certificates", "kubernetes", "the chart"):
        os.environ["HELM"] = helm()
    with scene(tmp_path) as stage:
        stage.variables["HELM"] = os.environ.get("HELM", "")
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
