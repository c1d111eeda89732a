"""Generated files are current, and say what they are generated from."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import jsonschema
import pytest
import yaml
from tests.chart.rendered import CHART, ROOT, SCENARIOS, scenario_file

import outrider
from helm import generate
from outrider.cluster.config.schema import Config


def test_schema_and_table_are_current() -> None:
    """After a change of values or configuration: `python -m helm.generate`."""
    assert generate.outdated(write=False) == []


def test_stale_files_are_noticed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A value more in the table, and `--check` names the file."""
    documented = list(generate.documented())
    monkeypatch.setattr(generate, "documented", lambda: [*documented, ("new", "`1`", "New.")])

    assert generate.main(["--check"]) == 1
    assert capsys.readouterr().out == "outrider/README.md is not current\n"


def test_every_object_of_ours_is_closed() -> None:
    """Open are only objects that are Kubernetes' own, and those of free keys, whose values have a schema."""
    schema = generate.values_schema()
    open_ones = sorted(_open(schema, ""))

    assert open_ones == [
        "env.items.valueFrom.configMapKeyRef",
        "env.items.valueFrom.fieldRef",
        "env.items.valueFrom.resourceFieldRef",
        "env.items.valueFrom.secretKeyRef",
        "global",
    ]


def test_schema_follows_the_configuration() -> None:
    """Each key of the configuration is there, but for those that the chart sets."""
    definitions = generate.values_schema()["definitions"]
    taken = {key for keys in generate.SET_BY_CHART.values() for key in keys}

    assert set(definitions["Config"]["properties"]) == set(Config.model_fields) - {"security"}
    for section in ("ServiceConfig", "ClusterConfig"):
        own = Config.model_fields[section.removesuffix("Config").lower()].annotation
        assert set(own.model_fields) - taken == set(definitions[section]["properties"])  # type: ignore[union-attr]


def test_every_value_is_explained_and_every_default_is_allowed() -> None:
    """No leaf of values.yaml without a comment on it or on a key above it."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    explained = {path for path, _, _ in generate.documented()}
    jsonschema.validate(defaults, generate.values_schema(), jsonschema.Draft7Validator)

    assert len(explained) > 50
    for path in _leaves(defaults, ""):
        parts = path.split(".")
        assert any(".".join(parts[:size]) in explained for size in range(1, len(parts) + 1)), path
    properties = generate.values_schema()["properties"]
    assert set(defaults) | {"global"} == set(properties)


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenarios_are_explained(name: str) -> None:
    """Each begins with what it is for, and docs/kubernetes.md names it."""
    assert scenario_file(name).read_text().startswith("# ")
    assert f"ci/{name}-values.yaml" in (ROOT / "docs" / "kubernetes.md").read_text()


def test_versions_agree() -> None:
    """Chart, package and Ray."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (ray,) = [each for each in project["optional-dependencies"]["serve"] if each.startswith("ray")]

    assert chart["appVersion"] == project["version"] == outrider.__version__
    lowest = re.search(r">=(\d+\.\d+)", ray)
    assert lowest is not None
    assert values["ray"]["version"].startswith(f"{lowest[1]}.")


def test_schema_file_is_draft_7() -> None:
    """Helm's validator knows no later one."""
    schema = json.loads(generate.SCHEMA.read_text())

    jsonschema.Draft7Validator.check_schema(schema)
    assert "$defs" not in json.dumps(schema)


def _open(schema: Any, path: str) -> set[str]:
    """Objects without `additionalProperties`, by the last named parts of their paths."""
    found: set[str] = set()
    if isinstance(schema, list):
        return {each for item in schema for each in _open(item, path)}
    if not isinstance(schema, dict):
        return found
    if schema.get("type") == "object" and "additionalProperties" not in schema:
        found.add(path)
    for key, value in schema.items():
        if key in ("properties", "definitions"):
            for name, inner in value.items():
                begins = name in ("affinity", "env", "tolerations", "topologySpreadConstraints")
                found |= _open(
                    inner,
                    name if begins or path == "" or key == "definitions" else f"{path}.{name}",
                )
        elif key in ("items", "additionalProperties", "anyOf"):
            found |= _open(value, f"{path}.items" if key == "items" else path)
    return found


def _leaves(value: Any, path: str) -> list[str]:
    if isinstance(value, dict) and value:
        return [
            each
            for key, inner in value.items()
            for each in _leaves(inner, f"{path}.{key}".strip("."))
        ]
    return [path]
