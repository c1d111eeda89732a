"""What KubeRay 1.7.0 makes of a rendered group before Kubernetes sees it: the command and the variables of Ray's container.

As `ray-operator/controllers/ray/common/pod.go` does; told here so that tests can run what would run.
"""

from __future__ import annotations

import json
import math

from tests.chart.rendered import Pod

GCS_PORT = 6379

SUFFIXES = {
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "m": 1e-3,
}


def amount(quantity: str | float) -> float:
    """A quantity in words of Kubernetes, such as `500m` or `4Gi`."""
    text = str(quantity)
    for suffix, factor in SUFFIXES.items():
        if text.endswith(suffix):
            return float(text.removesuffix(suffix)) * factor
    return float(text)


def head_service(cluster: str, namespace: str) -> str:
    """The name that workers find the head by."""
    return f"{cluster}-head-svc.{namespace}.svc.cluster.local"


def start_parameters(pod: Pod, head: str) -> dict[str, str]:
    """All flags of `ray start`: those of the chart, and those that KubeRay adds."""
    group = pod.group_spec
    flags: dict[str, str] = dict(group["rayStartParams"])
    limits = pod.spec["containers"][0]["resources"]["limits"]
    custom: dict[str, float] = {}
    for name, quantity in group.get("resources", {}).items():
        if name.lower() == "cpu":
            flags["num-cpus"] = str(math.ceil(amount(quantity)))
        else:
            custom[name] = amount(quantity)
    if custom:
        flags["resources"] = f"'{json.dumps(custom)}'"
    if pod.group != "head":
        flags.setdefault("address", f"{head}:{GCS_PORT}")
    flags.setdefault("metrics-export-port", "8080")
    flags["block"] = "true"
    flags.setdefault("dashboard-agent-listen-port", "52365")
    flags.setdefault("num-cpus", str(math.ceil(amount(limits["cpu"]))))
    flags.setdefault("memory", str(int(amount(limits["memory"]))))
    gpus = [quantity for name, quantity in limits.items() if name.endswith("gpu")]
    if gpus:
        flags.setdefault("num-gpus", str(int(amount(gpus[0]))))
    return flags


def ray_command(pod: Pod, head: str) -> list[str]:
    """Command and arguments of Ray's container."""
    words = ["ray", "start", *(["--head"] if pod.group == "head" else [])]
    for name, value in sorted(start_parameters(pod, head).items()):
        if value == "true":
            words.append(f"--{name}")
        elif value != "false":
            words.append(f"--{name}={value}")
    script = f"ulimit -n ${{RAY_START_ULIMIT_OPEN_FILES:-65536}}; {' '.join(words)}"
    return ["/bin/bash", "-c", "--", script]


def ray_variables(pod: Pod, head: str) -> dict[str, str]:
    """Variables that KubeRay adds to Ray's container. Those of the chart come first."""
    host = "127.0.0.1" if pod.group == "head" else head
    return {
        "RAY_ADDRESS": f"{host}:{GCS_PORT}",
        "RAY_PORT": str(GCS_PORT),
        "RAY_NODE_TYPE_NAME": "headgroup" if pod.group == "head" else pod.group,
        "RAY_USAGE_STATS_KUBERAY_IN_USE": "1",
        "RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE": "1",
    }
