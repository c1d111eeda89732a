"""Writes what follows from other files: the chart's `values.schema.json`, the table of values in its README, dashboard and alerts.

The schema is `values-schema.yaml` with the configuration's own schema in place of `config`; the table is the comments of
`values.yaml`; dashboard and alerts are the service's own, since a chart has nothing from outside its folder. Usage: `python -m helm.generate [--check]`; with `--check` it writes nothing and fails if a file is not current.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from outrider.cluster.config.schema import schema

HERE = Path(__file__).resolve().parent
CHART = HERE / "outrider"
METRICS = HERE.parent / "cluster" / "metrics"
SCHEMA = CHART / "values.schema.json"
README = CHART / "README.md"

BEGIN = "<!-- values:begin -->"
END = "<!-- values:end -->"

COPIES = {
    CHART / "dashboards" / "outrider.json": METRICS / "dashboards" / "outrider.json",
    CHART / "alerts.yaml": METRICS / "alerts.yaml",
}

SET_BY_CHART = {
    "Config": ("security",),
    "ServiceConfig": ("listen", "advertise", "metrics", "coordinators"),
    "ClusterConfig": ("address", "auth", "internal_host", "local_resources", "local_dashboard"),
}
"""Keys of the configuration that are not the user's here, by section."""

COMMENT = "# -- "


def values_schema() -> dict[str, Any]:
    """The schema of the chart's values: closed, draft 7."""
    values: dict[str, Any] = yaml.safe_load((HERE / "values-schema.yaml").read_text())
    config = _draft_7(schema())
    sections = config.pop("definitions")
    config.pop("$schema")
    sections["Config"] = config
    for section, keys in SET_BY_CHART.items():
        for key in keys:
            del sections[section]["properties"][key]
    for section in ("Security", "Public", "Internal"):
        del sections[section]
    _require(values, yaml.safe_load((CHART / "values.yaml").read_text()))
    values["definitions"] |= sections
    return values


def _require(section: dict[str, Any], defaults: dict[str, Any]) -> None:
    """Marks what has a default as required: it is missing only where it was set to null, which templates could not read."""
    section["required"] = sorted({*section.get("required", ()), *defaults})
    for key, default in defaults.items():
        said = section["properties"][key]
        if isinstance(default, dict) and "properties" in said:
            _require(said, default)


def readme(text: str) -> str:
    """The README with the table of values as `values.yaml` has them now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    rows = [f"| `{path}` | {shown} | {said} |" for path, shown, said in documented()]
    table = "\n".join(["| value | default | what it is |", "|---|---|---|", *rows])
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def documented() -> Iterator[tuple[str, str, str]]:
    """Path, default and comment of each value that has a comment, in the file's order."""
    text = (CHART / "values.yaml").read_text()
    defaults = yaml.safe_load(text)
    path: list[str] = []
    said = ""
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith(COMMENT):
            said = stripped.removeprefix(COMMENT)
            continue
        key, colon, _ = stripped.partition(":")
        if not colon or stripped.startswith(("#", "-")):
            said = ""
            continue
        depth = (len(line) - len(line.lstrip())) // 2
        path[depth:] = [key]
        if said:
            yield ".".join(path), _default(defaults, path), said
        said = ""


def _default(defaults: Any, path: list[str]) -> str:
    for key in path:
        defaults = defaults[key]
    shown = json.dumps(defaults)
    return f"`{shown}`" if len(shown) <= 60 else "see values.yaml"


def _draft_7(value: Any) -> Any:
    """A schema of draft 2020-12 as far as pydantic uses it, for Helm's validator."""
    if isinstance(value, list):
        return [_draft_7(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        # Draft 7 ignores whatever stands beside a reference.
        return {"$ref": value["$ref"].replace("#/$defs/", "#/definitions/")}
    said: dict[str, Any] = {}
    for key, inner in value.items():
        if key in ("properties", "patternProperties", "$defs"):
            named = {name: _draft_7(each) for name, each in inner.items()}
            said["definitions" if key == "$defs" else key] = named
        elif key not in ("default", "title"):
            said[key] = _draft_7(inner)
    if "patternProperties" in said:
        said.setdefault("additionalProperties", False)
    return said


def outdated(*, write: bool) -> list[Path]:
    """The generated files that are not current; brought up to date if `write`."""
    wanted = {
        SCHEMA: json.dumps(values_schema(), indent=1, sort_keys=True) + "\n",
        README: readme(README.read_text()),
    } | {copy: source.read_text() for copy, source in COPIES.items()}
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    if write:
        for path in stale:
            path.write_text(wanted[path])
    return stale


def main(arguments: list[str]) -> int:
    """Runs the command."""
    is_check = arguments == ["--check"]
    if arguments and not is_check:
        print("usage: python -m helm.generate [--check]", file=sys.stderr)
        return 2
    stale = outdated(write=not is_check)
    for path in stale:
        print(f"{path.relative_to(HERE)} {'is not current' if is_check else 'written'}")
    return 1 if stale and is_check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
