"""What the chart renders for a laptop with certificates on all ports, run on this machine as it stands, and used by a client.
Skipped where there are no namespaces.

Ray's containers have the command that KubeRay gives them (`kuberay.py`); all else is the rendered text.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

import psutil
import pytest
import yaml
from tests.certificates import Authority, Pair
from tests.chart import kuberay
from tests.chart.machine import Ended, Machine, Running, check_machine
from tests.chart.rendered import CHART, NAME, NAMESPACE, Pod, of_kind, pods, render, scenario_file

from bench.network.network import Host, Unavailable, network
from outrider.client import (
    Client,
    Health,
    OutriderError,
    SamplingOptions,
    SpeculationOptions,
    Tls,
    Unauthorized,
)

HEAD = kuberay.head_service(NAME, NAMESPACE)

NODE_S = 300.0
"""Until Ray's own probe succeeds; seven seconds on an idle machine."""

PROBE_S = 60.0
"""Until a probe has answered; half a second on an idle machine."""

READY = "/run/outrider/ready.json"

TOKEN = "the-token-of-the-test"

STARTS = 3
"""Of one container."""

DRAIN_S = 60.0
"""Until a service has ended that was told to; two seconds on an idle machine."""


@dataclass
class Release:
    """The running pods, by group."""

    machine: Machine
    pods: dict[str, Pod]
    hosts: dict[str, Host]
    authority: Authority

    @property
    def address(self) -> str:
        """Where the Service leads to."""
        return self.reached_at("grpc")

    def reached_at(self, port: str) -> str:
        """Where a port of the service's container is, by its name."""
        ports = self.pods["coordinator"].container("serve")["ports"]
        (number,) = [each["containerPort"] for each in ports if each["name"] == port]
        return f"{self.hosts['coordinator'].address}:{number}"

    def client(self) -> Client:
        """A client with a certificate and a token."""
        own = self.authority.issue("client")
        tls = Tls(
            ca=self.authority.ca,
            cert=own.cert,
            key=own.key,
            server_name=f"{NAME}.{NAMESPACE}.svc",
        )
        return Client(self.address, timeout_s=60, tls=tls, token=TOKEN)

    def serves(self) -> bool:
        """What a client hears."""
        try:
            with self.client() as client:
                return client.health(timeout_s=5.0) is Health.SERVING
        except OutriderError:
            return False

    def probe(self, running: Running, command: list[str]) -> bool:
        """What the kubelet asks in a container. Not asked before the ready file is there: a kubelet waits between probes, which take
        half a second of a processor."""
        try:
            is_there = running.exec(["test", "-e", READY]).wait(PROBE_S) == 0
            return is_there and running.exec(command).wait(PROBE_S) == 0
        except (psutil.Error, ValueError):  # It has no process yet.
            return False

    def start(self, group: str) -> None:
        """Starts Ray's container of a pod and waits until it is ready, as its probe says. One that ends is started again, as the
        kubelet does: on busy cores a node of Ray gives itself up when its helpers take more than half a minute.
        """
        pod, host = self.pods[group], self.hosts[group]
        container = pod.spec["containers"][0]
        probe = container["readinessProbe"]["httpGet"]
        url = f"http://{host.address}:{probe['port']}{probe['path']}"
        for attempts_left in reversed(range(STARTS)):
            running = self.machine.start(
                pod,
                host,
                container["name"],
                command=kuberay.ray_command(pod, HEAD),
                variables=kuberay.ray_variables(pod, HEAD),
            )
            try:
                self.machine.until(lambda: _answers(url), timeout_s=NODE_S, what=f"Ray on {group}")
                return
            except Ended:
                if running.process.poll() is None or not attempts_left:
                    raise
                del self.machine.containers[group, container["name"]]

    def serve(self) -> Running:
        """Starts the container `serve` and waits until it is ready, as its probe says."""
        pod = self.pods["coordinator"]
        container = pod.container("serve")
        probe = container["startupProbe"]
        running = self.machine.start(
            pod,
            self.hosts["coordinator"],
            "serve",
            command=[*container["command"], *container["args"]],
            variables={},
        )
        self.machine.until(
            lambda: self.probe(running, probe["exec"]["command"]),
            timeout_s=min(240.0, probe["periodSeconds"] * probe["failureThreshold"]),
            what="the service",
        )
        return running


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """The scenario `cpu` with the security of `mtls`, running."""
    wanted = yaml.safe_load(scenario_file("mtls").read_text())["security"]
    objects = render(
        "--values",
        str(scenario_file("cpu")),
        "--set-json",
        f"security={json.dumps(wanted)}",
    )
    folder = tmp_path_factory.mktemp("certificates")
    outside, inside = Authority(folder, "outside"), Authority(folder, "inside")
    server = outside.issue("server", f"{NAME}.{NAMESPACE}.svc")
    named = {pod.group: pod for pod in pods(objects) if pod.is_ray}
    try:
        check_machine()
        with network(list(named)) as net, Machine() as machine:
            machine.names = _names(net.hosts)
            machine.configs = {
                each["metadata"]["name"]: each["data"] for each in of_kind(objects, "ConfigMap")
            }
            machine.secrets = {
                wanted["public"]["tlsSecret"]: _secret(server, outside),
                wanted["internal"]["tlsSecret"]: _secret(inside.issue("actor"), inside),
                wanted["public"]["tokenSecret"]: {"tokens": f"# of the test\n{TOKEN}\n".encode()},
            }
            made = Release(machine, named, net.hosts, outside)
            for group in named:
                _route(net.hosts[group])
                made.start(group)
            yield made
    except Unavailable as reason:
        pytest.skip(str(reason))


def _secret(pair: Pair, authority: Authority) -> dict[str, bytes]:
    """As cert-manager fills it."""
    return {
        "tls.crt": pair.cert.read_bytes(),
        "tls.key": pair.key.read_bytes(),
        "ca.crt": authority.ca.read_bytes(),
    }


def _route(host: Host) -> None:
    """Gives a pod a default route, by which Ray finds the pod's address."""
    add = ["ip", "route", "add", "default", "dev", host.interface]
    subprocess.run([*host.prefix, *add], check=True, timeout=60)


def _names(hosts: dict[str, Host]) -> dict[str, str]:
    """What the cluster's name server would answer."""
    head = hosts["head"].address
    coordinator = hosts["coordinator"].address
    return {
        "localhost": "127.0.0.1",
        HEAD: head,
        HEAD.removesuffix(".cluster.local"): head,
        f"{NAME}.{NAMESPACE}.svc": coordinator,
        **{f"{NAME}-{group}": host.address for group, host in hosts.items()},
    }


def test_rendered_containers_serve_a_client_start_again_and_drain(release: Release) -> None:
    """Three pods, no root, nothing written outside mounts: a client's text is that of plain decoding, also after the container
    `serve` was killed. Then the pod ends as Kubernetes ends it, the hook of Ray's container first.
    """
    serve = release.serve()
    assert _refused(release.address)
    with release.client() as client:
        texts = [_text(client, enabled=on) for on in (False, True)]
        actors = {actor.role: actor for actor in client.status().actors}
    assert texts[0] == texts[1] != ""
    assert sorted(actors) == ["coordinator", "drafter", "target"]
    workers = release.hosts["models"].address
    assert actors["target"].address.startswith(f"{workers}:")
    assert actors["drafter"].address.startswith(f"{workers}:")
    assert actors["coordinator"].address == f"{NAME}.{NAMESPACE}.svc:50051"

    serve.own().kill()
    serve.process.wait(DRAIN_S)
    del release.machine.containers["coordinator", "serve"]
    release.machine.until(
        lambda: not release.serves(), timeout_s=DRAIN_S, what="the end of the killed"
    )
    serve = release.serve()
    with release.client() as client:
        assert _text(client, enabled=True) == texts[0]

    named = {name for name in _dashboard_metrics() if "gpu" not in name}
    address = release.hosts["models"].address
    release.machine.until(
        lambda: named <= _metrics(f"http://{address}:8080/metrics"),
        timeout_s=NODE_S,
        what="the dashboards' metrics",
    )

    assert "outrider_up" in _metrics(f"http://{release.reached_at('service-metrics')}/metrics")

    ray = release.machine.containers["coordinator", "ray-worker"]
    hook = ray.exec(
        release.pods["coordinator"].container("ray-worker")["lifecycle"]["preStop"]["exec"][
            "command"
        ]
    )
    time.sleep(1.5)
    assert hook.poll() is None, "Ray's container would end before the service"
    serve.own().send_signal(signal.SIGTERM)
    assert hook.wait(DRAIN_S) == 0
    assert serve.process.wait(DRAIN_S) == 0
    assert serve.said.rstrip().endswith("ended")
    assert not release.serves()


def _refused(address: str) -> bool:
    """Whether the service takes nobody without a certificate."""
    with Client(address) as client, pytest.raises(Unauthorized, match="speaks TLS"):
        client.status()
    return True


def _dashboard_metrics() -> set[str]:
    """Names in the queries about Ray's nodes."""
    text = (CHART / "dashboards" / "nodes.json").read_text()
    return set(re.findall(r'"expr": "(\w+)', text))


def _metrics(url: str) -> set[str]:
    """Names of what a page of metrics holds; none if it does not come in time."""
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return set(re.findall(r"^(\w+)", answer.read().decode(), re.MULTILINE))
    except OSError:
        return set()


def _text(client: Client, *, enabled: bool) -> str:
    sampling = SamplingOptions(max_tokens=24, seed=5, temperature=0.8)
    speculation = SpeculationOptions(enabled=enabled)
    return client.generate("The telescope", sampling=sampling, speculation=speculation).text
