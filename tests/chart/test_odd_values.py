"""Values that are odd and right are rendered as Kubernetes takes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.chart import schema
from tests.chart.rendered import pods, render, scenario_file

CPU = str(scenario_file("cpu"))


@pytest.mark.parametrize(
    "repository", ["localhost:5000/outrider", "Registry.example.com/a/b--c_d.e", "outrider"]
)
@pytest.mark.parametrize("tag", ["", "0.1.0", f"v1_2.x@sha256:{'5e' * 32}"])
def test_image_is_repository_and_tag(repository: str, tag: str) -> None:
    """The tag may have a digest, by which nodes pull the same image for ever."""
    objects = render(
        "--values", CPU, "--set-string", f"image.repository={repository},image.tag={tag}"
    )
    images = {container["image"] for pod in pods(objects) for container in pod.spec["containers"]}

    assert images == {f"{repository}:{tag or '0.1.0'}"}


def test_variables_of_a_group_stand_in_place_of_the_charts(tmp_path: Path) -> None:
    """Kubernetes refuses a name that stands there twice."""
    mine = {"HF_HOME": "/models/hub", "RAY_worker_niceness": "3", "OUTRIDER_ADDRESS": "b:1"}
    own = {"env": [{"name": name, "value": value} for name, value in mine.items()]}
    values = tmp_path / "values.json"
    values.write_text(json.dumps({"coordinator": own, "workers": {"models": own}}))

    found = [pod for pod in pods(render("--values", CPU, "--values", str(values))) if pod.is_ray]
    for group, container in ((pod.group, each) for pod in found for each in pod.spec["containers"]):
        names = [variable["name"] for variable in container["env"]]
        said = {variable["name"]: variable.get("value") for variable in container["env"]}
        assert len(names) == len(said)
        assert (said | mine == said) is (group != "head")
        assert said["PYTHONUNBUFFERED"] == "1"


def test_amounts_are_rendered_as_kubernetes_takes_them(tmp_path: Path) -> None:
    """In a custom resource no number with a fraction; of devices as many requested as the limit says, however it is written."""
    resources = {
        "requests": {"cpu": 0.25, "memory": 2**31, "nvidia.com/gpu": "1"},
        "limits": {
            "cpu": "1500m",
            "memory": "2.5Gi",
            "nvidia.com/gpu": 1,
            "ephemeral-storage": 1e9,
        },
    }
    own = {"resources": resources}
    values = tmp_path / "values.json"
    values.write_text(json.dumps({"head": own, "coordinator": {"serve": own}}))

    objects = render("--values", CPU, "--values", str(values))
    assert [said for each in objects for said in schema.problems(each)] == []
    head = next(pods(objects)).spec["containers"][0]["resources"]
    assert float(head["requests"]["memory"]) == 2**31


def test_what_kubernetes_has_for_pods_and_peers_may_be_said(tmp_path: Path) -> None:
    """Every key that the values' schema names is one of Kubernetes' own."""
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
    own = {
        "labels": {"example.com/team": "a_b.c", "empty": ""},
        "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H200"},
        "priorityClassName": "system-node-critical",
        "tolerations": [
            {"operator": "Exists"},
            {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
            {"key": "example.com/x", "operator": "Exists", "tolerationSeconds": 30},
        ],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "preference": terms[0]}
                ],
            },
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "host"}]
            },
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "minDomains": 2,
                "matchLabelKeys": ["a"],
                "nodeTaintsPolicy": "Honor",
                "labelSelector": {"matchLabels": {"a": "b"}},
                "nodeAffinityPolicy": "Ignore",
            }
        ],
        "env": [
            {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
    }
    peers = [
        {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}},
        {"ipBlock": {"cidr": "fd00::/8"}},
        {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "x"}}},
    ]
    rules = [{"to": peers, "ports": [{"port": 443, "endPort": 444, "protocol": "TCP"}]}]
    egress = {"enabled": True, "rules": [*rules, {"ports": [{"port": "https"}]}]}
    values = tmp_path / "values.json"
    values.write_text(
        json.dumps({"head": own, "networkPolicy": {"clients": peers, "egress": egress}})
    )

    objects = render("--values", CPU, "--values", str(values))
    assert [said for each in objects for said in schema.problems(each)] == []
