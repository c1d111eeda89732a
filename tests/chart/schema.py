"""Whether Kubernetes would take an object: core kinds by their own schemas, custom ones by `schemas/`."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate  # type: ignore[import-untyped]  # no stubs

SCHEMAS = Path(__file__).parent / "schemas"

KUBERNETES = ("1.27", "1.36")
"""The oldest version that the chart allows, and a new one."""

CUSTOM = {
    "RayCluster": "ray.io/v1",
    "RayJob": "ray.io/v1",
    "GRPCRoute": "gateway.networking.k8s.io/v1",
    "PodMonitor": "monitoring.coreos.com/v1",
    "PrometheusRule": "monitoring.coreos.com/v1",
}


def problems(rendered: dict[str, Any]) -> list[str]:
    """What is wrong with an object; nothing if it is allowed."""
    kind = rendered["kind"]
    if kind not in CUSTOM:
        return [said for version in KUBERNETES for said in _core(rendered, version)]
    assert rendered["apiVersion"] == CUSTOM[kind]
    found = jsonschema.Draft7Validator(_custom(kind)).iter_errors(rendered["spec"])
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in found]


def _core(rendered: dict[str, Any], version: str) -> list[str]:
    try:
        kubernetes_validate.validate(rendered, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{version}: {'.'.join(map(str, error.path))}: {error.message}"]
    return []


@cache
def _custom(kind: str) -> dict[str, Any]:
    plain = SCHEMAS / f"{kind}.json"
    if plain.exists():
        schema: dict[str, Any] = json.loads(plain.read_text())
        return schema
    whole = json.loads(gzip.decompress((SCHEMAS / f"{kind}.v1.openapi.json.gz").read_bytes()))
    closed: dict[str, Any] = _closed(whole["properties"]["spec"])
    return closed


def _closed(schema: Any) -> Any:
    """As Kubernetes reads it: what is not named is not allowed, and some numbers may be strings."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    if schema.get("x-kubernetes-int-or-string") is True:
        closed.pop("type", None)
        closed["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    is_object = isinstance(schema.get("properties"), dict) and schema.get("type") == "object"
    if is_object and not schema.get("x-kubernetes-preserve-unknown-fields"):
        closed.setdefault("additionalProperties", False)
    return closed
