"""What the scenarios render is what Kubernetes and KubeRay take."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from tests.chart import kuberay, schema
from tests.chart.rendered import (
    CHART,
    NAME,
    NAMESPACE,
    ROOT,
    SCENARIOS,
    Object,
    cluster_spec,
    file_of,
    of_kind,
    only,
    pods,
    render,
    run_helm,
    scenario,
    scenario_file,
)

from outrider.cluster.config.schema import parse_config

SERVING = [name for name in SCENARIOS if name != "train"]


def test_every_scenario_is_there() -> None:
    """The list that docs/kubernetes.md explains."""
    assert SCENARIOS == (
        "air-gapped",
        "autoscaling",
        "batch",
        "cpu",
        "mtls",
        "train",
        "two-drafters",
        "two-gpu-types",
    )


@pytest.mark.parametrize("name", SCENARIOS)
def test_lint_finds_nothing(name: str) -> None:
    """Strictly: warnings count."""
    done = run_helm("lint", "--strict", str(CHART), "--values", str(scenario_file(name)))

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", SCENARIOS)
def test_objects_fit_their_schemas(name: str) -> None:
    """Every object, core and custom."""
    objects = scenario(name)

    assert [(each["kind"], said) for each in objects for said in schema.problems(each)] == []


@pytest.mark.parametrize("mode", ["service", "batch", "train"])
def test_names_that_yaml_takes_for_something_else_stay_names(mode: str, tmp_path: Path) -> None:
    """Numbers and truths, and paths with what ends a value."""
    odd = tmp_path / "odd.yaml"
    resources = {"cpu": "2", "memory": "4Gi"}
    workers = {
        "replicas": 2,
        "actors": 2,
        "resources": {"requests": resources, "limits": resources},
    }
    security = {
        "public": {"tlsSecret": "4", "tokenSecret": "5"},
        "internal": {"tlsSecret": "6", "name": "7"},
    }
    values = {
        "mode": mode,
        "nameOverride": "1",
        "fullnameOverride": "on",
        "image": {"pullSecrets": ["2"]},
        "ray": {"auth": {"existingSecret": "3"}, "tls": {"enabled": True}},
        "security": security if mode != "train" else {},
        "models": {"existingClaim": "8", "mountPath": "/m, n #o", "hubTokenSecret": "9"},
        "data": {"existingClaim": "10", "mountPath": "/d, e #f"},
        "secretMounts": [{"name": "11", "mountPath": "/s, t #u"}],
        "serviceAccount": {"name": "12"},
        "podMonitor": {"enabled": True},
        "workers": {"on": workers},
        "batch": {"input": "in", "output": "out"},
        "train": {"args": ["demo"], "group": "on"},
    }
    odd.write_text(yaml.safe_dump(values))
    objects = render("--values", str(odd), release="yes")

    assert [(each["kind"], said) for each in objects for said in schema.problems(each)] == []
    names = [each["metadata"]["name"] for each in objects]
    labels = [value for each in objects for value in each["metadata"]["labels"].values()]
    assert {type(text) for text in (*names, *labels)} == {str}
    assert {"/m, n #o", "/s, t #u"} <= mounted(objects)


def mounted(objects: Sequence[Object]) -> set[str]:
    """Where the pods of Ray mount volumes."""
    return {
        mount["mountPath"]
        for pod in pods(objects)
        for container in pod.spec["containers"]
        for mount in container.get("volumeMounts", ())
    }


def test_schemas_refuse_what_is_wrong() -> None:
    """Each of the schemas used here finds a mistyped key."""
    by_kind = {each["kind"]: each for name in SCENARIOS for each in scenario(name)}
    for kind, rendered in by_kind.items():
        if kind in ("ConfigMap", "ServiceAccount"):
            continue
        broken = copy.deepcopy(rendered)
        broken["spec"]["tpyo"] = 1
        assert schema.problems(broken), kind
    deep = copy.deepcopy(by_kind["RayCluster"])
    deep["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["imagePulPolicy"] = "Always"
    assert schema.problems(deep)


@pytest.mark.parametrize("name", SERVING)
def test_rendered_configuration_is_one(name: str) -> None:
    """`outrider serve` takes it, numbers unchanged: YAML written by Helm would have 1e+06 for a million."""
    config = parse_config(json.loads(file_of(scenario(name), "service.json")), source=name)
    values = yaml.safe_load(scenario_file(name).read_text()).get("config", {})

    assert config.cluster.address == "auto"
    assert config.cluster.auth == "token"
    for kind in ("targets", "drafters"):
        for given, actor in zip(values.get(kind, ()), getattr(config, kind), strict=False):
            assert given.items() <= actor.model_dump(mode="json").items()


@pytest.mark.parametrize("name", SERVING)
def test_every_actor_finds_its_resources_in_a_pod(name: str) -> None:
    """As Ray counts them, of what KubeRay tells it."""
    objects = scenario(name)
    config = parse_config(json.loads(file_of(objects, "service.json")), source=name)
    offers = {}
    for pod in pods(objects):
        if pod.is_ray:
            flags = kuberay.start_parameters(pod, "head")
            custom = json.loads(flags.get("resources", "'{}'").strip("'"))
            offers[pod.group] = {
                "CPU": float(flags["num-cpus"]),
                "GPU": float(flags.get("num-gpus", 0)),
                **custom,
            }
    for actor in (*config.targets, *config.drafters):
        wanted = {"CPU": actor.num_cpus, "GPU": actor.gpus, **actor.resources}
        fitting = [
            group
            for group, offer in offers.items()
            if all(offer.get(kind, 0.0) >= amount for kind, amount in wanted.items())
        ]
        assert fitting, (actor.name, wanted, offers)
        assert not {"head", "coordinator"} & set(fitting)


def test_ray_needs_no_flag_that_kuberay_refuses() -> None:
    """Resources stand in one place, and the version that token authentication needs is told."""
    for name in SCENARIOS:
        spec = cluster_spec(scenario(name))
        assert spec["rayVersion"] == "2.60.0"
        for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
            assert not {"num-cpus", "num-gpus", "memory", "resources", "labels"} & set(
                group["rayStartParams"]
            )
        for group in spec["workerGroupSpecs"]:
            assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]


def test_changed_configuration_replaces_pods() -> None:
    """The checksum in the pod template is that of the configuration, and KubeRay replaces pods whose template changes."""
    before = render()
    same = render("--set", "service.annotations.a=b")
    after = render("--set", "config.service.max_waiting=7")
    checksums = [
        {
            pod.group: pod.template["metadata"]["annotations"]["checksum/config"]
            for pod in pods(objects)
            if pod.is_ray
        }
        for objects in (before, same, after)
    ]

    assert checksums[0] == checksums[1]
    assert all(checksums[0][group] != checksums[2][group] for group in checksums[0])
    assert cluster_spec(before)["upgradeStrategy"] == {"type": "Recreate"}


def test_group_of_ones_own_stands_alone() -> None:
    """The default group does not stay beside it."""
    assert [pod.group for pod in pods(render()) if pod.is_ray] == ["head", "coordinator", "models"]
    assert [pod.group for pod in pods(scenario("two-gpu-types")) if pod.is_ray] == [
        "head",
        "coordinator",
        "drafter",
        "target",
    ]


def test_autoscaling_groups() -> None:
    """Bounds as given; the autoscaler of version 1, since version 2 would forbid restarts of `serve`."""
    spec = cluster_spec(scenario("autoscaling"))
    bounds = {
        group["groupName"]: (group["minReplicas"], group["replicas"], group["maxReplicas"])
        for group in spec["workerGroupSpecs"]
    }

    assert spec["enableInTreeAutoscaling"] is True
    assert spec["autoscalerOptions"]["version"] == "v1"
    assert bounds == {"coordinator": (1, 1, 1), "drafter": (1, 1, 4), "target": (0, 0, 4)}


def test_gpu_types_are_selected_and_spread() -> None:
    """Each group asks for its own GPUs, and its pods are spread among themselves."""
    groups = {pod.group: pod for pod in pods(scenario("two-gpu-types"))}

    assert groups["target"].spec["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-H200"}
    assert groups["drafter"].spec["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-L4"}
    for group in ("target", "drafter"):
        (spread,) = groups[group].spec["topologySpreadConstraints"]
        assert spread["labelSelector"]["matchLabels"].items() <= groups[group].labels.items()
        assert spread["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == group
        assert groups[group].spec["tolerations"]


def test_offline_pods_download_nothing() -> None:
    """The hub's library is told so everywhere, and models come from the claim, read-only."""
    for pod in pods(scenario("air-gapped")):
        for container in pod.spec["containers"] if pod.is_ray else ():
            env = {each["name"]: each.get("value") for each in container["env"]}
            assert env["HF_HUB_OFFLINE"] == env["TRANSFORMERS_OFFLINE"] == "1"
            assert {"name": "models", "mountPath": "/models", "readOnly": True} in container[
                "volumeMounts"
            ]


@pytest.mark.parametrize("name", ["batch", "train"])
def test_job_runs_where_its_files_are(name: str) -> None:
    """The entrypoint is placed by a resource that one group offers, and that group mounts the script and the data."""
    objects = scenario(name)
    spec = only(objects, "RayJob")["spec"]
    (group,) = json.loads(spec["entrypointResources"])
    mounts = {
        pod.group: {each["name"] for each in pod.spec["containers"][0]["volumeMounts"]}
        for pod in pods(objects)
    }

    assert spec["entrypoint"] == "bash /etc/outrider/job.sh"
    assert "job.sh" in only(objects, "ConfigMap")["data"]
    assert {"config", "data", "run"} <= mounts[group]
    assert all("data" not in mounts[other] for other in mounts if other != group)
    assert spec["shutdownAfterJobFinishes"] is True
    assert spec["activeDeadlineSeconds"] > 0
    assert "upgradeStrategy" not in spec["rayClusterSpec"]  # KubeRay refuses it in a job.


def test_training_has_the_gpu_of_its_group() -> None:
    """Ray would hide it from an entrypoint that does not ask."""
    assert only(scenario("train"), "RayJob")["spec"]["entrypointNumGpus"] == 1


def test_names_of_other_objects_are_kept_within_bounds() -> None:
    """KubeRay appends to them."""
    name = only(render(), "RayCluster")["metadata"]["name"]

    assert name == NAME
    assert len(f"{NAME}-head-svc") <= 63
    assert kuberay.head_service(NAME, NAMESPACE).startswith("demo-outrider-head-svc.models.svc")


def test_dashboards_are_json_with_the_label_that_grafana_looks_for() -> None:
    """One ConfigMap a file."""
    found = [
        each
        for each in of_kind(scenario("two-gpu-types"), "ConfigMap")
        if each["metadata"]["labels"].get("grafana_dashboard") == "1"
    ]

    assert len(found) == len(list(CHART.glob("dashboards/*.json"))) > 1
    for each in found:
        for text in each["data"].values():
            assert json.loads(text)["panels"]


def test_alerts_are_those_of_the_service() -> None:
    """As Prometheus has them from a file. Off unless asked for."""
    (group,) = only(scenario("two-gpu-types"), "PrometheusRule")["spec"]["groups"]
    shipped = yaml.safe_load((ROOT / "cluster" / "metrics" / "alerts.yaml").read_text())

    assert [group] == shipped["groups"]
    assert "{{ $labels.actor }}" in group["rules"][1]["annotations"]["summary"]
    assert of_kind(scenario("cpu"), "PrometheusRule") == []
