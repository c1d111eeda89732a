"""What Helm makes of the chart, as plain values."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "outrider"
SCENARIOS = tuple(
    sorted(path.name.removesuffix("-values.yaml") for path in CHART.glob("ci/*-values.yaml"))
)
RELEASE = "demo"
NAME = "demo-outrider"
NAMESPACE = "models"

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, or the template of some."""

    group: str
    """head, coordinator, a group of workers, submitter or test."""

    template: Object
    """`metadata` and `spec`."""

    is_ray: bool
    """Whether it is a node of Ray."""

    group_spec: Object
    """Of KubeRay; empty for others."""

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the pods."""
        labels: dict[str, str] = self.template["metadata"]["labels"]
        return labels

    @property
    def spec(self) -> Object:
        """Its spec."""
        spec: Object = self.template["spec"]
        return spec

    def container(self, name: str) -> Object:
        """A container by name."""
        return next(each for each in self.spec["containers"] if each["name"] == name)


def helm() -> str:
    """The real helm, of the package `helm-binary`."""
    beside = Path(sys.executable).parent / "helm"
    found = str(beside) if beside.exists() else shutil.which("helm")
    if found is None:
        pytest.skip(
            "there is no helm: `helm-binary` has one for Linux on x86-64 only",
            allow_module_level=True,  # Scenarios are rendered while tests are collected.
        )
    return found


def run_helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs helm on the chart."""
    return subprocess.run(
        [helm(), *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def template(*arguments: str, release: str = RELEASE) -> subprocess.CompletedProcess[str]:
    """`helm template` with further arguments."""
    return run_helm("template", release, str(CHART), "--namespace", NAMESPACE, *arguments)


def scenario_file(name: str) -> Path:
    """The values of a scenario."""
    return CHART / "ci" / f"{name}-values.yaml"


@cache
def scenario(name: str) -> tuple[Object, ...]:
    """The objects of a scenario. Not to be changed."""
    return render("--values", str(scenario_file(name)))


def render(*arguments: str, release: str = RELEASE) -> tuple[Object, ...]:
    """The objects that Helm makes.

    Raises:
        AssertionError: It refuses; with what it said.
    """
    made = template(*arguments, release=release)
    assert made.returncode == 0, made.stderr
    return tuple(each for each in yaml.safe_load_all(made.stdout) if each)


def of_kind(objects: Sequence[Object], kind: str) -> list[Object]:
    """The objects of a kind."""
    return [each for each in objects if each["kind"] == kind]


def only(objects: Sequence[Object], kind: str) -> Object:
    """The one object of a kind."""
    (found,) = of_kind(objects, kind)
    return found


def cluster_spec(objects: Sequence[Object]) -> Object:
    """The spec of the Ray cluster, of a service or of a job."""
    for each in objects:
        if each["kind"] == "RayCluster":
            spec: Object = each["spec"]
            return spec
        if each["kind"] == "RayJob":
            spec = each["spec"]["rayClusterSpec"]
            return spec
    raise LookupError("no Ray cluster")


def pods(objects: Sequence[Object]) -> Iterator[Pod]:
    """Every pod that the objects lead to."""
    spec = cluster_spec(objects)
    head = spec["headGroupSpec"]
    yield Pod("head", head["template"], True, head)
    for group in spec["workerGroupSpecs"]:
        yield Pod(group["groupName"], group["template"], True, group)
    for each in objects:
        if each["kind"] == "RayJob":
            yield Pod("submitter", each["spec"]["submitterPodTemplate"], False, {})
        if each["kind"] == "Pod":
            yield Pod("test", {"metadata": each["metadata"], "spec": each["spec"]}, False, {})


def matches(selector: Object, labels: dict[str, str]) -> bool:
    """Whether a selector of labels finds a pod."""
    return all(
        labels.get(key) == value for key, value in selector.get("matchLabels", selector).items()
    )


def file_of(objects: Sequence[Object], name: str) -> str:
    """A file of the release's ConfigMap."""
    maps = of_kind(objects, "ConfigMap")
    text: str = next(each["data"][name] for each in maps if name in each["data"])
    return text
