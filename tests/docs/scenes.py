"""Which blocks of the operators' pages are run in which order, and what there has to be before each. A scene is what somebody would type
one after another, beside one service."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any

import yaml
from tests.client.batch.lines import read, write
from tests.docs.examples import Example, examples
from tests.docs.stage import Stage

from outrider.client import Client, OutriderError, SamplingOptions

BLOCKS = examples("bash", "sh", "python")
TARGET = {"model": "law:agree70", "device": "emulated:2ms"}
DRAFTER = {"model": "law:agree70/draft", "device": "emulated:1ms"}
LIGHT_DRAFTER = {"method": "prompt_lookup"}
"""It starts in half the time, where nothing is asked of what it drafts."""
SERVED = r"agree70.*serving"
LINE_S = 30.0
"""Longest wait for a line of an actor's log."""
FEW_TOKENS = SamplingOptions(max_tokens=40)

ELSEWHERE = {
    ("README.md", "outrider demo"): (".ci/run", ("'.[serve,dev]'", 'outrider" demo --quick')),
    ("README.md", "python -m pytest"): (".ci/run", ("'.[serve,dev]'", "python -m pytest -q -n 3")),
    # The same line, run with the configuration of this page.
    ("docs/cluster.md", "serve --config service.yaml\n"): (
        "docs/observability.md",
        ("\noutrider serve --config service.yaml\ncurl",),
    ),
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
    after: Callable[[Stage], None] = lambda stage: None
    """Looks at what it left."""
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
        self.after(stage)


def configured(stage: Stage, **sections: Any) -> None:
    """Writes service.yaml, which listens where clients of the stage go."""
    service = {"listen": f"127.0.0.1:{stage.port}"} | sections.pop("service", {})
    content = {"service": service, "targets": [TARGET], "drafters": [LIGHT_DRAFTER]} | sections
    (stage.folder / "service.yaml").write_text(yaml.safe_dump(content))


def shown(page: str, words: str, stage: Stage) -> dict[str, Any]:
    """A configuration of a page, with what stands for its words."""
    (found,) = [each for each in examples("yaml", page=page) if words in each.text]
    content: dict[str, Any] = yaml.safe_load(stage.here(found.text))
    return content


def with_prompt_lookup(stage: Stage) -> None:
    """What is to be applied: another drafter."""
    configured(stage, drafters=[DRAFTER, LIGHT_DRAFTER])


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


def answers_of_the_job(stage: Stage) -> None:
    """Each record once, none with an error."""
    assert {one["custom_id"]: one["error"] for one in read(stage.folder / "answers.jsonl")} == {
        "a": None,
        "b": None,
    }


def requests_by_name(stage: Stage, is_over: Event) -> None:
    """Somebody sends the request that is waited for."""
    while not is_over.wait(0.2):
        try:
            with Client(f"127.0.0.1:{stage.port}", timeout_s=20.0) as client:
                client.generate("Once", sampling=FEW_TOKENS, request_id="r-123")
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
    """The page's commands made new ones; the log is where the page has it, and says so: an actor's lines come there by Ray, a moment later."""
    for name in ("crt", "key"):
        file = stage.folder / f"public/tls.{name}"
        shutil.copy(file, f"{file}.new")
        os.replace(f"{file}.new", file)
    stage.run(Example("docs/security.md", "bash", "outrider health --tls-name localhost", 0))
    (log,) = stage.traces.glob("serve-*.log")
    (stage.folder / "serve.log").symlink_to(log)
    given_up = time.monotonic() + LINE_S
    while "new certificate" not in log.read_text(errors="replace"):
        assert time.monotonic() < given_up, f"no new certificate in the log\n{stage.logs()}"
        time.sleep(0.1)


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
        Step("docs/observability.md", "curl", ("outrider_up",), before=on_the_cluster),
        Step("docs/batch.md", "ray job submit", ("succeeded",)),
    ),
    "changes": (Step("docs/cluster.md", "--watch     #", ("nothing to",), before=on_the_cluster),),
    "jobs": (
        Step(
            "docs/jobs.md",
            "submit list",
            ("SUCCEEDED", "STOPPED", r"tokens/s"),
            before=configured,
            after=answers_of_the_job,
        ),
    ),
}
NODES = Step("docs/cluster.md", "ray start --head")
