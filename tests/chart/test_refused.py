"""Wrong values are refused before anything is rendered, with words that say what and where."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.chart.rendered import run_helm, scenario_file, template

CPU = str(scenario_file("cpu"))
AUTOSCALING = str(scenario_file("autoscaling"))
GPU = str(scenario_file("two-drafters"))

DIGEST = f"sha256:{'5' * 64}"

REFUSED = [
    ("worker={}", "Additional property worker is not allowed"),
    ("image.tga=1", "image: Additional property tga is not allowed"),
    ("image.tag=latest", "image.tag"),
    (f"image.tag=latest@{DIGEST}", "image.tag"),
    ("image.tag=0.1.0@sha256:12", "image.tag"),
    (f"image.repository=registry.example.com/outrider@{DIGEST}", "image.repository"),
    ("image.repository=registry.example.com/outrider:0.1.0", "image.repository"),
    ("image.repository=Outrider", "image.repository"),
    ("image.repository=registry.example.com/outrider/", "image.repository"),
    ("mode=serve", "mode must be one of the following"),
    ("logLevel=verbose", "logLevel must be one of the following"),
    ("service.port=0", "service.port: Must be greater than or equal to 1"),
    ("service.port=70000", "service.port: Must be less than or equal to 65535"),
    ("service.type=ExternalName", "service.type must be one of the following"),
    ("podSecurity.runAsUser=0", "podSecurity.runAsUser: Must be greater than or equal to 1"),
    (
        "config.service.listen=0.0.0.0:1",
        "config.service: Additional property listen is not allowed",
    ),
    (
        "config.service.coordinators=3",
        "config.service: Additional property coordinators is not allowed",
    ),
    ("service.port=8080", "service.port is 8080, where Ray listens in the same pod"),
    ("nameOverride=a b", "nameOverride: Does not match pattern"),
    (
        r"workers.models.labels.app\.kubernetes\.io/component=x",
        'Property name of "app.kubernetes.io/component"',
    ),
    (
        "config.targets[0].num_cpus=2",
        "the actors of workers.models need 3 CPUs together, and its pods have 2",
    ),
    ("config.cluster.auth=disabled", "config.cluster: Additional property auth is not allowed"),
    ("config.cluster.adress=auto", "config.cluster: Additional property adress is not allowed"),
    ("config.cluster.lease_s=0", "config.cluster.lease_s: Must be greater than or equal to 1"),
    ("config.cluster.placement=NEAR", "config.cluster.placement must be one of the following"),
    ("config.targets[0].dtype=int8", "config.targets.0.dtype must be one of the following"),
    (
        "config.targets[0].min_replicas=3,config.targets[0].max_replicas=2",
        "config.targets[0]: min_replicas, replicas and max_replicas must rise in this order",
    ),
    (
        "config.targets[0].replicas=2,config.targets[0].max_replicas=1",
        "config.targets[0]: min_replicas, replicas and max_replicas must rise in this order",
    ),
    ("config.targets[0].num_slots=0", "config.targets.0.num_slots: Must be greater than"),
    (
        "config.speculation.max_nodes=many",
        "config.speculation.max_nodes: Invalid type. Expected: integer",
    ),
    ("workers.Models.replicas=1", 'Property name of "Models" does not match'),
    ("workers.head.replicas=1", 'Property name of "head" does not match'),
    ("workers.models.replicas=-1", "workers.models.replicas: Must be greater than or equal to 0"),
    ("workers.models.replica=1", "workers.models: Additional property replica is not allowed"),
    ("workers.models.resources.limits=null", "workers.models.resources.limits: Invalid type"),
    ("head.resources.limits.memory=4GB", "head.resources.limits.memory"),
    ("head.resources.requests.memory=5Gi", "head.resources requests 5Gi of memory, and limits it"),
    (
        "workers.models.resources.requests.cpu=2500m",
        "workers.models.resources requests 2500m of cpu, and limits it to 2",
    ),
    (
        "coordinator.serve.resources.requests.memory=1100000k",
        "coordinator.serve.resources requests 1100000k of memory, and limits it to 1Gi",
    ),
    ("job.resources.requests.cpu=3,mode=train,train.args={demo}", "job.resources requests 3 of"),
    (
        r"workers.models.resources.limits.nvidia\.com/gpu=0.5",
        "workers.models.resources limits nvidia.com/gpu to 0.5, which is no whole number",
    ),
    (
        r"workers.models.resources.requests.nvidia\.com/gpu=1",
        "workers.models.resources requests 1 of nvidia.com/gpu, and limits it to nothing",
    ),
    (
        r"head.resources.requests.amd\.com/gpu=1,head.resources.limits.amd\.com/gpu=2",
        "head.resources requests 1 of amd.com/gpu, and limits it to 2: both must be the same",
    ),
    ("workers.models.resources.limits.gpu=1", 'Property name of "gpu" does not match'),
    ("head.resources.limits.ephemeral-storge=1Gi", '"ephemeral-storge" does not match'),
    ("ray.autoscaling.resources.requests.cpu=1", "ray.autoscaling.resources requests 1 of cpu"),
    ("coordinator.replicas=2", "coordinator: Additional property replicas is not allowed"),
    ("ray.version=2.60", "ray.version: Does not match pattern"),
    ("head=null", "head is required"),
    ("coordinator.serve=null", "coordinator: serve is required"),
    ("networkPolicy.egress.enabled=null", "networkPolicy.egress: enabled is required"),
    ("batch.args=null", "batch: args is required"),
    ("config.service.metrics=0.0.0.0:1", "config.service: Additional property metrics is not"),
    ("service.metricsPort=8080", "service.metricsPort is 8080, where Ray listens"),
    ("service.metricsPort=50051", "service.port and service.metricsPort are both 50051"),
    (
        "prometheusRule.enabled=true,service.metricsPort=0",
        "prometheusRule.enabled is true, and there is no page of metrics",
    ),
    ("ray.auth.mode=disabled", "ray.auth: Additional property mode is not allowed"),
    ("models.mountPath=models", "models.mountPath: Does not match pattern"),
    ("secretMounts[0].name=ca", "secretMounts.0: mountPath is required"),
    (
        "models.existingClaim=a,models.mountPath=/tmp/",
        "models.mountPath is /tmp/, where the chart mounts something, too",
    ),
    (
        "models.existingClaim=a,data.existingClaim=b,data.mountPath=/models,mode=train,train.args={demo}",
        "data.mountPath is /models, where models.mountPath mounts something, too",
    ),
    (
        "secretMounts[0].name=a,secretMounts[0].mountPath=/s,secretMounts[1].name=b,secretMounts[1].mountPath=/s",
        "secretMounts[1].mountPath is /s, where secretMounts[0].mountPath mounts something, too",
    ),
    ("head.env[0].name=RAY_AUTH_MODE", "head.env.0.name: Must not validate the schema"),
    (
        "workers.models.env[0].name=A,workers.models.env[1].name=A",
        "workers.models.env names A twice",
    ),
    (
        "workers.models.env[0].name=A,workers.models.env[0].valueFrom.secretkeyRef.name=a",
        "workers.models.env.0.valueFrom: Additional property secretkeyRef is not allowed",
    ),
    (
        "workers.models.env[0].name=A,workers.models.env[0].value=x,workers.models.env[0].valueFrom.secretKeyRef.name=a",
        "workers.models.env.0: Must not validate the schema (not)",
    ),
    (
        "workers.models.tolerations[0].ky=gpu",
        "workers.models.tolerations.0: Additional property ky is not allowed",
    ),
    ("head.tolerations[0].effect=NoSchedul", "head.tolerations.0.effect must be one of"),
    (
        "head.tolerations[0].operator=Exists,head.tolerations[0].value=x",
        "head.tolerations.0: Must not validate the schema (not)",
    ),
    (
        "coordinator.affinity.nodeAfinity.x=1",
        "coordinator.affinity: Additional property nodeAfinity is not allowed",
    ),
    (
        "head.affinity.podAntiAffinity.requiredDuringScheduling[0].topologyKey=x",
        "podAntiAffinity: Additional property requiredDuringScheduling is not allowed",
    ),
    (
        "head.topologySpreadConstraints[0].maxSkews=1",
        "head.topologySpreadConstraints.0: Additional property maxSkews is not allowed",
    ),
    ("head.labels.team=a b", "head.labels.team: Does not match pattern"),
    (f"head.labels.team={'a' * 64}", "head.labels.team: Does not match pattern"),
    ("head.labels.a b=x", 'Property name of "a b" does not match'),
    ("head.nodeSelector.zone=a/b", "head.nodeSelector.zone: Does not match pattern"),
    ("podMonitor.labels.release=a b", "podMonitor.labels.release: Does not match pattern"),
    ("head.priorityClassName=High One", "head.priorityClassName: Does not match pattern"),
    ("image.pullSecrets={a,a}", "image.pullSecrets: array items[0,1] must be unique"),
    ("serviceAccount.name=a..b", "serviceAccount.name: Does not match pattern"),
    ("security.internal.name=a b", "security.internal.name: Does not match pattern"),
    ("grpcRoute.hostnames={Decode.example.com}", "grpcRoute.hostnames.0: Does not match pattern"),
    (
        "networkPolicy.clients[0].podSelector.matchLabel.app=x",
        "networkPolicy.clients.0.podSelector: Additional property matchLabel is not allowed",
    ),
    ("networkPolicy.clients[0].ipBlock.cidr=nowhere", "clients.0.ipBlock.cidr: Does not match"),
    (
        "networkPolicy.clients[0].ipBlock.cidr=10.0.0.0/8,networkPolicy.clients[0].podSelector.matchLabels.app=x",
        "networkPolicy.clients.0: Must validate at least one schema (anyOf)",
    ),
    (
        "networkPolicy.egress.rules[0].ports[0].protocol=tcp",
        "networkPolicy.egress.rules.0.ports.0.protocol must be one of",
    ),
    ("networkPolicy.clients[0].namespace=x", "Additional property namespace is not allowed"),
    ("fullnameOverride=-x", 'the name "-x" is not one of at most 40 lower-case letters'),
    (
        "config.targets[0].resources.modles=1",
        'config.targets[0].resources names "modles", and no group of workers is called so; there are: models',
    ),
    (
        "config.drafters[0].replicas=2",
        'the actors of the configuration ask for 3 of "models" together, and workers.models has room for 2',
    ),
    (
        "config.targets[0].num_cpus=4",
        "config.targets[0] needs 4 CPUs, and a pod of workers.models has 2",
    ),
    (
        "config.targets[0].device=cuda",
        "config.targets[0] needs 1 GPUs, and a pod of workers.models has 0",
    ),
    (
        "config.drafters[0].num_gpus=1",
        "config.drafters[0] needs 1 GPUs, and a pod of workers.models has 0",
    ),
    (
        "config.targets[0].resources.models=3",
        'config.targets[0].resources asks for 3 of "models", and a pod of workers.models offers 2',
    ),
    (
        "workers.models.maxReplicas=3",
        "workers.models has minReplicas or maxReplicas, and ray.autoscaling.enabled is false",
    ),
    ("grpcRoute.enabled=true", "grpcRoute.parentRefs is empty"),
    ("security.public.clientCertificates=true", "security.public.tlsSecret names no secret"),
    ("security.internal.tlsSecret=x,mode=train,train.args={demo}", "mode train serves nobody"),
    ("security.public.tlsSecrets=x", "tlsSecrets"),
    ("config.security.public.tokens=/x", "security"),
    ("mode=batch", "batch.input is missing: mode is batch"),
    ("mode=train", "train.args is missing: mode is train"),
    (
        "mode=train,train.args={demo},train.group=gpu",
        'train.group is "gpu", and no group of workers is called so',
    ),
    (
        "mode=train,train.args={demo},grpcRoute.enabled=true,grpcRoute.parentRefs[0].name=x",
        "mode train has no Service for clients",
    ),
    (
        "models.offline=true,models.hubTokenSecret=x",
        "models.hubTokenSecret is set, and models.offline forbids downloads",
    ),
]


@pytest.mark.parametrize(("value", "said"), REFUSED, ids=[value for value, _ in REFUSED])
def test_wrong_value_is_refused(value: str, said: str) -> None:
    """Over the scenario `cpu`, which is right."""
    made = template("--values", CPU, "--set", value)

    assert made.returncode != 0, f"{value} was rendered"
    assert said in made.stderr, made.stderr
    assert made.stdout == ""


def test_the_other_values_are_right() -> None:
    """Else the refusals above would show nothing."""
    assert template("--values", CPU).returncode == 0


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            "workers.drafter.replicas=5",
            "workers.drafter.replicas is 5, and not between minReplicas 1 and maxReplicas 4",
        ),
        (
            "workers.target.minReplicas=2",
            "workers.target.replicas is 0, and not between minReplicas 2 and maxReplicas 4",
        ),
        (
            "workers.target.maxReplicas=1",
            'the actors of the configuration ask for 4 of "target" together',
        ),
        (
            "config.drafters[0].max_replicas=9",
            'the actors of the configuration ask for 9 of "drafter" together, and workers.drafter has room for 8',
        ),
        (
            "ray.autoscaling.idleTimeoutSeconds=0",
            "ray.autoscaling.idleTimeoutSeconds: Must be greater than",
        ),
        (
            "networkPolicy.egress.enabled=true",
            "networkPolicy.egress.rules is empty: the autoscaler must reach the Kubernetes API",
        ),
    ],
)
def test_wrong_bounds_of_autoscaling_are_refused(value: str, said: str) -> None:
    """Over the scenario `autoscaling`."""
    made = template("--values", AUTOSCALING, "--set", value)

    assert made.returncode != 0
    assert said in made.stderr, made.stderr


def test_gpus_that_a_pod_lacks_are_missed() -> None:
    """A group that lost its GPU is named."""
    made = template("--values", GPU, "--set", r"workers.target.resources.limits.nvidia\.com/gpu=0")

    assert made.returncode != 0
    assert "config.targets[0] needs 1 GPUs, and a pod of workers.target has 0" in made.stderr


def test_gpus_of_all_actors_of_a_group_are_counted() -> None:
    """Ray would wait for one that there is not."""
    made = template(
        *("--values", GPU, "--set", "workers.target.actors=2"),
        *("--set", "config.targets[1].model=/m,config.targets[1].device=cuda"),
        *("--set", "config.targets[1].resources.target=1,config.targets[1].num_cpus=1"),
        *("--set", "config.targets[0].num_cpus=1"),
    )

    assert made.returncode != 0
    assert "workers.target need 2 GPUs together, and its pods have 1" in made.stderr


def test_lint_refuses_too(tmp_path: Path) -> None:
    """`helm lint` is what a pipeline runs first."""
    (tmp_path / "values.yaml").write_text("ray: {vresion: 2.60.0}\n")
    chart = scenario_file("cpu").parents[1]
    done = run_helm("lint", "--strict", str(chart), "--values", str(tmp_path / "values.yaml"))

    assert done.returncode != 0
    assert "Additional property vresion is not allowed" in done.stdout + done.stderr
