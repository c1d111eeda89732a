"""What no pod of the release may do, in every scenario."""

from __future__ import annotations

import json
from pathlib import PurePosixPath

import pytest
from tests.chart.rendered import (
    NAME,
    NAMESPACE,
    SCENARIOS,
    Object,
    cluster_spec,
    file_of,
    of_kind,
    pods,
    render,
    scenario,
)

EACH_SCENARIO = pytest.mark.parametrize("name", SCENARIOS)

WRITABLE = {"/tmp", "/dev/shm", "/cache", "/run/outrider", "/data"}
"""Where something may be written."""


@EACH_SCENARIO
def test_no_container_is_root_or_can_become_it(name: str) -> None:
    """As the restricted pod security standard has it."""
    for pod in pods(scenario(name)):
        assert pod.spec["securityContext"]["runAsNonRoot"] is True
        assert pod.spec["securityContext"]["runAsUser"] >= 1
        assert pod.spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod.spec)
        for container in pod.spec["containers"]:
            context = container["securityContext"]
            assert context["runAsNonRoot"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert "privileged" not in context


@EACH_SCENARIO
def test_root_is_read_only_and_little_else_is_not(name: str) -> None:
    """Writable are emptyDirs and, for jobs, their data; nothing of the host is mounted."""
    for pod in pods(scenario(name)):
        volumes = {each["name"]: each for each in pod.spec.get("volumes", ())}
        assert not any("hostPath" in each for each in volumes.values())
        for container in pod.spec["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            for mount in container.get("volumeMounts", ()):
                assert mount["name"] in volumes
                if not mount.get("readOnly", False):
                    assert mount["mountPath"] in WRITABLE
                    assert {"emptyDir", "persistentVolumeClaim"} & set(volumes[mount["name"]])


@EACH_SCENARIO
def test_every_container_states_its_resources(name: str) -> None:
    """Requests and limits of processor and memory; the shared memory of Ray has a bound."""
    for pod in pods(scenario(name)):
        for container in pod.spec["containers"]:
            for kind in ("requests", "limits"):
                assert {"cpu", "memory"} <= set(container["resources"][kind]), (pod.group, kind)
        for volume in pod.spec.get("volumes", ()):
            if volume.get("emptyDir", {}).get("medium") == "Memory":
                assert volume["emptyDir"]["sizeLimit"]


@EACH_SCENARIO
def test_service_account_token_is_mounted_for_the_autoscaler_only(name: str) -> None:
    """Nobody else talks to Kubernetes."""
    for pod in pods(scenario(name)):
        needs_it = pod.group == "head" and pod.template in [
            cluster_spec(scenario("autoscaling"))["headGroupSpec"]["template"]
        ]

        assert pod.spec["automountServiceAccountToken"] is needs_it


@EACH_SCENARIO
def test_images_are_pinned(name: str) -> None:
    """A tag, and one for all containers of a pod."""
    for pod in pods(scenario(name)):
        images = {container["image"] for container in pod.spec["containers"]}

        assert len(images) == 1
        tag = images.pop().rpartition(":")[2]
        assert tag == "0.1.0"


@EACH_SCENARIO
def test_every_container_of_ray_asks_for_a_token(name: str) -> None:
    """Mode `token` is told explicitly; the token is a secret's, by reference, and KubeRay knows the mode too."""
    spec = cluster_spec(scenario(name))
    assert spec["authOptions"]["mode"] == "token"
    for pod in pods(scenario(name)):
        if pod.group == "test":
            continue
        for container in pod.spec["containers"]:
            env = {each["name"]: each for each in container["env"]}
            assert env["RAY_AUTH_MODE"]["value"] == "token"
            if "RAY_AUTH_TOKEN" in env:
                assert env["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"]["key"] == "auth_token"


def test_token_is_the_existing_secret_or_the_one_that_kuberay_makes() -> None:
    """KubeRay names it after the cluster, whose name a job's cluster does not have yet: there KubeRay fills it in."""
    assert _token_secrets(scenario("mtls")) == {"ray-token"}
    assert cluster_spec(scenario("mtls"))["authOptions"]["secretName"] == "ray-token"
    assert _token_secrets(scenario("cpu")) == {NAME}
    assert "secretName" not in cluster_spec(scenario("cpu"))["authOptions"]
    assert _token_secrets(scenario("batch")) == set()
    assert _token_secrets(
        render("--set", "mode=train,train.args={demo},ray.auth.existingSecret=mine")
    ) == {"mine"}


def test_no_secret_is_rendered() -> None:
    """Secrets are named, never made or filled by the chart."""
    for name in SCENARIOS:
        assert of_kind(scenario(name), "Secret") == []


def test_mutual_tls_reaches_the_driver_beside_ray() -> None:
    """KubeRay equips Ray's own containers; `serve` is a driver and needs the same certificate. Ray's must not name it themselves."""
    objects = scenario("mtls")
    coordinator = next(pod for pod in pods(objects) if pod.group == "coordinator")
    env = {each["name"]: each.get("value") for each in coordinator.container("serve")["env"]}

    assert cluster_spec(objects)["tlsOptions"] == {"enabled": True}
    assert env["RAY_USE_TLS"] == "1"
    assert env["RAY_TLS_CA_CERT"] == "/etc/ray/tls/ca.crt"
    mounts = coordinator.container("serve")["volumeMounts"]
    assert {"name": "ray-tls", "mountPath": "/etc/ray/tls", "readOnly": True} in mounts
    volume = next(each for each in coordinator.spec["volumes"] if each["name"] == "ray-tls")
    assert volume["secret"]["secretName"] == f"ray-worker-secret-{NAME}"
    for pod in pods(objects):
        if pod.is_ray:
            first = pod.spec["containers"][0]
            assert not any(
                each["name"].startswith(("RAY_USE_TLS", "RAY_TLS")) for each in first["env"]
            )
            assert not any(each["name"] == "ray-tls" for each in first["volumeMounts"])


def test_secret_mounts_are_read_only_in_every_pod_of_ray() -> None:
    """By the names of existing secrets."""
    for pod in pods(scenario("mtls")):
        if pod.is_ray:
            mounts = pod.spec["containers"][0]["volumeMounts"]
            assert {"name": "secret-0", "mountPath": "/etc/outrider-ca", "readOnly": True} in mounts


def _token_secrets(objects: tuple[Object, ...]) -> set[str]:
    return {
        each["valueFrom"]["secretKeyRef"]["name"]
        for pod in pods(objects)
        for container in pod.spec["containers"]
        for each in container.get("env", ())
        if each["name"] == "RAY_AUTH_TOKEN"
    }


def test_certificates_and_tokens_are_where_the_configuration_says() -> None:
    """Every file that it names is a key of an existing secret, mounted for those who read it and for nobody else."""
    objects = scenario("mtls")
    security = json.loads(file_of(objects, "service.json"))["security"]
    named = {
        kind: {path for path in section.values() if path.startswith("/")}
        for kind, section in security.items()
    }
    readers = {
        "public": {"coordinator/ray-worker", "coordinator/serve", "test/status"},
        "internal": {"coordinator/ray-worker", "coordinator/serve", "models/ray-worker"},
    }
    assert set(security) == set(readers)
    for kind, paths in named.items():
        folders = {str(PurePosixPath(path).parent) for path in paths}
        found = set()
        for pod in pods(objects):
            for container in pod.spec["containers"]:
                mounts = {each["mountPath"] for each in container.get("volumeMounts", ())}
                if folders & mounts:
                    assert folders <= mounts
                    found.add(f"{pod.group}/{container['name']}")
        assert found == readers[kind]
    for pod in pods(scenario("cpu")):
        assert not any("secret" in each for each in pod.spec.get("volumes", ()))


def test_commands_in_pods_reach_the_service_with_its_own_certificate() -> None:
    """Probes, `kubectl exec` and `helm test`: by variables that the command line reads."""
    objects = scenario("mtls")
    for group, container in (("coordinator", "serve"), ("test", "status")):
        pod = next(pod for pod in pods(objects) if pod.group == group)
        env = {each["name"]: each.get("value") for each in pod.container(container)["env"]}
        assert env["OUTRIDER_TLS_NAME"] == f"{NAME}.{NAMESPACE}.svc"
        assert env["OUTRIDER_TLS_CA"] == env["OUTRIDER_TLS_CERT"]
        assert env["OUTRIDER_TOKEN_FILE"] == "/etc/outrider-tls/tokens/tokens"
    service = next(each for each in of_kind(objects, "Service"))
    assert "appProtocol" not in service["spec"]["ports"][0]
