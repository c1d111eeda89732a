"""Who reaches whom: Services, policies, budgets, probes and monitors find the pods that they are meant for."""

from __future__ import annotations

import pytest
from tests.chart.rendered import (
    SCENARIOS,
    Object,
    Pod,
    file_of,
    matches,
    of_kind,
    only,
    pods,
    render,
    scenario,
    scenario_file,
)

SERVICES = [name for name in SCENARIOS if name not in ("batch", "train")]
INTERNAL = {6379, 8265, 8080, 10001, 52365}
"""Of Ray; the actors' own ports are chosen as they start."""


@pytest.mark.parametrize("name", SERVICES)
def test_services_lead_to_the_public_port_of_the_coordinator_only(name: str) -> None:
    """The port is the one that the configuration listens on, and no internal one."""
    objects = scenario(name)
    found = of_kind(objects, "Service")
    assert [each["metadata"]["name"] for each in found] == [
        "demo-outrider",
        "demo-outrider-headless",
    ]
    for each in found:
        assert _groups(objects, each["spec"]["selector"]) == ["coordinator"]
        (port,) = each["spec"]["ports"]
        assert port["port"] not in INTERNAL
        named = [
            container
            for pod in pods(objects)
            if pod.group == "coordinator"
            for container in pod.spec["containers"]
            for listed in container["ports"]
            if listed["name"] == port["targetPort"] and listed["containerPort"] == port["port"]
        ]
        assert len(named) == 1
        assert f'"listen": "0.0.0.0:{port["port"]}"' in file_of(objects, "service.json")
    assert found[0]["spec"]["type"] == "ClusterIP"
    assert found[1]["spec"]["clusterIP"] == "None"


def test_port_is_one_value() -> None:
    """Service, container, probes, policy and configuration follow it."""
    objects = render("--set", "service.port=7000,service.headless=false")
    serve = next(pod for pod in pods(objects) if pod.group == "coordinator").container("serve")

    assert only(objects, "Service")["spec"]["ports"][0]["port"] == 7000
    assert serve["ports"] == [
        {"name": "grpc", "containerPort": 7000, "protocol": "TCP"},
        {"name": "service-metrics", "containerPort": 9464, "protocol": "TCP"},
    ]
    assert serve["readinessProbe"]["grpc"]["port"] == serve["startupProbe"]["grpc"]["port"] == 7000
    assert serve["livenessProbe"]["tcpSocket"]["port"] == 7000
    assert '"listen": "0.0.0.0:7000"' in file_of(objects, "service.json")
    assert _open_ports(objects, "demo-outrider-clients") == {7000}


@pytest.mark.parametrize("name", SCENARIOS)
def test_internal_ports_are_reached_from_the_release_only(name: str) -> None:
    """One policy selects every pod of the release and lets in these same pods; the others open single ports."""
    objects = scenario(name)
    everyone = [pod.group for pod in pods(objects)]
    policies = {
        each["metadata"]["name"]: each["spec"] for each in of_kind(objects, "NetworkPolicy")
    }
    internal = policies["demo-outrider"]

    assert _groups(objects, internal["podSelector"]) == everyone
    assert "Ingress" in internal["policyTypes"]
    (peer,) = internal["ingress"][0]["from"]
    assert set(peer) == {"podSelector"}  # Without a namespace: of this one.
    assert _groups(objects, peer["podSelector"]) == everyone
    for each, spec in policies.items():
        for rule in spec["ingress"]:
            if "ports" not in rule:
                assert each == "demo-outrider"
    assert _open_ports(objects, "demo-outrider") <= {8080, 9464}
    assert _open_ports(objects, "demo-outrider-operator") == {8265}
    assert _groups(objects, policies["demo-outrider-operator"]["podSelector"]) == ["head"]
    if name in SERVICES:
        assert _groups(objects, policies["demo-outrider-clients"]["podSelector"]) == ["coordinator"]
        assert _open_ports(objects, "demo-outrider-clients") == {50051}
    else:
        assert "demo-outrider-clients" not in policies


def test_clients_and_monitoring_are_whom_the_values_name() -> None:
    """Nobody named means everybody for the public port, and nobody for metrics."""
    gateway = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "apps"}}}
    (rule,) = _policy(scenario("mtls"), "demo-outrider-clients")["ingress"]
    assert rule["from"] == [gateway]
    (rule,) = _policy(scenario("cpu"), "demo-outrider-clients")["ingress"]
    assert "from" not in rule
    assert len(_policy(scenario("cpu"), "demo-outrider")["ingress"]) == 1
    assert _open_ports(scenario("two-gpu-types"), "demo-outrider") == {8080, 9464}


def test_air_gapped_pods_reach_each_other_and_names_only() -> None:
    """Egress has two rules: the release's pods, and port 53."""
    spec = _policy(scenario("air-gapped"), "demo-outrider")

    assert spec["policyTypes"] == ["Ingress", "Egress"]
    to_pods, to_names = spec["egress"]
    assert list(to_pods["to"][0]) == ["podSelector"]
    assert {port["port"] for port in to_names["ports"]} == {53}
    assert _policy(scenario("cpu"), "demo-outrider")["policyTypes"] == ["Ingress"]


def test_budgets_keep_all_but_one_of_each_group() -> None:
    """Only with `minAvailable` as a number does Kubernetes know how many pods of a RayCluster there should be."""
    objects = scenario("two-gpu-types")
    budgets = {
        each["metadata"]["name"]: each["spec"] for each in of_kind(objects, "PodDisruptionBudget")
    }

    assert {name: spec["minAvailable"] for name, spec in budgets.items()} == {
        "demo-outrider-coordinator": 1,
        "demo-outrider-drafter": 2,
        "demo-outrider-head": 1,
        "demo-outrider-target": 1,
    }
    for name, spec in budgets.items():
        assert set(spec) == {"minAvailable", "selector"}
        assert _groups(objects, spec["selector"]) == [name.removeprefix("demo-outrider-")]
    # A budget of one for a single pod would keep its node from being drained; that is asked for, not given.
    assert of_kind(scenario("cpu"), "PodDisruptionBudget") == []
    assert len(of_kind(scenario("two-drafters"), "PodDisruptionBudget")) == 1
    assert of_kind(scenario("batch"), "PodDisruptionBudget") == []


@pytest.mark.parametrize("name", SERVICES)
def test_probes_ask_what_they_are_for(name: str) -> None:
    """Readiness: does the service serve, by a command where the kubelet cannot ask. Liveness: is the process there, so that a lost target restarts nobody else."""
    coordinator = next(pod for pod in pods(scenario(name)) if pod.group == "coordinator")
    serve = coordinator.container("serve")

    asks = {"exec"} if name == "mtls" else {"grpc"}
    for probe in ("readinessProbe", "startupProbe"):
        assert set(serve[probe]) & {"exec", "grpc"} == asks
    if name == "mtls":
        assert serve["readinessProbe"]["exec"]["command"] == ["outrider", "health"]
    assert "tcpSocket" in serve["livenessProbe"]
    for pod in pods(scenario(name)):
        if pod.is_ray:
            first = pod.spec["containers"][0]
            for probe in (first["readinessProbe"], first["livenessProbe"]):
                assert probe["httpGet"] == {"path": "/api/healthz", "port": 52365}


def test_start_may_take_as_long_as_the_configuration_allows() -> None:
    """`outrider serve` gives up after the placement's and four starts' time; the kubelet must not be faster."""
    serve = next(
        pod
        for pod in pods(render("--set-json", "config.cluster.start_timeout_s=600.5"))
        if pod.group == "coordinator"
    ).container("serve")
    probe = serve["startupProbe"]

    assert probe["periodSeconds"] * probe["failureThreshold"] >= 60 + 4 * 600.5


def test_pods_live_until_the_service_has_drained() -> None:
    """Grace periods exceed the drain; the coordinator's Ray waits for the service, the others for the drain's time."""
    objects = render("--set-json", "config.cluster.drain_s=42.5")
    for pod in pods(objects):
        if not pod.is_ray:
            continue
        command = pod.spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
        assert pod.spec["terminationGracePeriodSeconds"] >= 43 + 20
        if pod.group == "coordinator":
            ready = pod.container("serve")["args"][3]
            assert f"-e {ready} " in command[2]
        else:
            assert command[0] == "sleep"
            assert 43 < int(command[1]) < pod.spec["terminationGracePeriodSeconds"]


def test_route_leads_to_the_service() -> None:
    """TLS of clients ends at the Gateway that it names."""
    spec = only(scenario("two-gpu-types"), "GRPCRoute")["spec"]

    assert spec["rules"] == [{"backendRefs": [{"name": "demo-outrider", "port": 50051}]}]
    assert spec["parentRefs"][0]["name"] == "public"
    assert of_kind(scenario("cpu"), "GRPCRoute") == []


def test_monitor_finds_every_pod_that_has_metrics() -> None:
    """Ray's of every pod, and the service's page at the port that its configuration says. Off unless asked for."""
    objects = scenario("two-gpu-types")
    spec = only(objects, "PodMonitor")["spec"]
    rays, page = (endpoint["port"] for endpoint in spec["podMetricsEndpoints"])

    assert _groups(objects, spec["selector"]) == [pod.group for pod in pods(objects)]
    for pod in pods(objects):
        if pod.is_ray:
            ports = pod.spec["containers"][0]["ports"]
            assert rays in [each["name"] for each in ports]
    serve = next(pod for pod in pods(objects) if pod.group == "coordinator").container("serve")
    (port,) = [each["containerPort"] for each in serve["ports"] if each["name"] == page]
    assert f'"metrics": "0.0.0.0:{port}"' in file_of(objects, "service.json")
    assert of_kind(scenario("cpu"), "PodMonitor") == []


def test_page_of_metrics_can_be_elsewhere_or_away() -> None:
    """Port, policy and monitor follow one value."""
    asked = (
        "--values",
        str(scenario_file("two-gpu-types")),
        "--set",
        "prometheusRule.enabled=false",
    )
    elsewhere = render(*asked, "--set", "service.metricsPort=9999")
    away = render(*asked, "--set", "service.metricsPort=0")

    assert _open_ports(elsewhere, "demo-outrider") == {8080, 9999}
    assert '"metrics": "0.0.0.0:9999"' in file_of(elsewhere, "service.json")
    assert _open_ports(away, "demo-outrider") == {8080}
    assert '"metrics"' not in file_of(away, "service.json")
    assert len(only(away, "PodMonitor")["spec"]["podMetricsEndpoints"]) == 1


def test_two_releases_do_not_find_each_others_pods() -> None:
    """Selectors hold the release's name."""
    mine, other = scenario("cpu"), render(release="else")
    selectors = [
        each["spec"].get("podSelector") or each["spec"]["selector"]
        for each in (*of_kind(mine, "Service"), *of_kind(mine, "NetworkPolicy"))
    ]

    assert selectors
    assert not any(matches(each, pod.labels) for each in selectors for pod in pods(other))


def _groups(objects: tuple[Object, ...], selector: Object) -> list[str]:
    found: list[Pod] = [pod for pod in pods(objects) if matches(selector, pod.labels)]
    return [pod.group for pod in found]


def _policy(objects: tuple[Object, ...], name: str) -> Object:
    spec: Object = next(
        each["spec"]
        for each in of_kind(objects, "NetworkPolicy")
        if each["metadata"]["name"] == name
    )
    return spec


def _open_ports(objects: tuple[Object, ...], name: str) -> set[int]:
    return {
        port["port"] for rule in _policy(objects, name)["ingress"] for port in rule.get("ports", ())
    }
