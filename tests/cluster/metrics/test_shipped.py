"""The dashboard, the alerts and the page about them, held against the metrics that a service really tells."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.metrics.page import Page, Scraped
from tests.cluster.metrics.queries import NAME, OF_PROMETHEUS, read
from tests.cluster.served.test_together import request

from outrider.actors.metrics.families import PREFIX

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "cluster" / "metrics"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "dashboards" / "outrider.json").read_text())
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]
DOCS = (ROOT / "docs" / "observability.md").read_text()
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]
EXPRESSIONS = [*QUERIES, *((rule["alert"], rule["expr"]) for rule in RULES)]


@pytest.fixture
async def page(scraped: Scraped) -> Page:
    """After a request with drafters and one without."""
    await scraped.together.generate(request(1))
    await scraped.together.generate(request(1, enabled=False))
    return await scraped.page()


@pytest.mark.parametrize("lockstep", [True])
async def test_every_query_asks_for_what_there_is(page: Page) -> None:
    """Names of samples, labels that are selected, and labels that are grouped by."""
    wrong = []
    for title, expression in EXPRESSIONS:
        query = read(expression)
        wrong += [f"{title}: {name}" for name in query.names - page.labels.keys()]
        wrong += [
            f"{title}: {name} has no label {label}"
            for name, label in query.selected
            if label not in page.labels.get(name, set()) | OF_PROMETHEUS
        ]
        labels = {label for name in query.names for label in page.labels.get(name, ())}
        wrong += [f"{title}: {label}" for label in query.grouped - labels - OF_PROMETHEUS]
        assert query.names, f"{title} asks for nothing"
    assert wrong == []


@pytest.mark.parametrize("lockstep", [True])
async def test_every_label_of_a_legend_is_there(page: Page) -> None:
    """`{{drafter}}` in a legend must survive the sum that it names."""
    wrong = []
    for panel in PANELS:
        for target in panel["targets"]:
            wanted = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            query = read(target["expr"])
            labels = {label for name in query.names for label in page.labels.get(name, ())}
            given = query.grouped if re.search(r"\bsum\b", target["expr"]) else labels
            wrong += [f"{panel['title']}: {label}" for label in wanted - given]
    assert wrong == []


@pytest.mark.parametrize("lockstep", [True])
async def test_every_metric_is_on_the_page_of_the_docs(page: Page) -> None:
    """And the page names none that does not exist."""
    told = {
        name if family.type != "counter" else f"{name}_total"
        for name, family in page.families.items()
        if name.startswith((PREFIX, "outrider_"))
    }
    named = set(NAME.findall(DOCS)) - {PREFIX}
    suffixes = ("_bucket", "_sum", "_count")
    of_histograms = {f"{name}{suffix}" for name in told for suffix in suffixes}
    processes = {name for name in named if name.startswith("process_")}
    assert told - named == set()
    assert named - told - of_histograms - processes == set()


def test_every_alert_has_a_runbook() -> None:
    """Its own heading, where its annotation points."""
    headings = {
        line.removeprefix("### ").lower() for line in DOCS.splitlines() if line.startswith("### ")
    }
    for rule in RULES:
        assert rule["annotations"]["runbook"] == f"docs/observability.md#{rule['alert'].lower()}"
        assert rule["alert"].lower() in headings
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["summary"].endswith(".")
    assert len({rule["alert"] for rule in RULES}) == len(RULES) > 10


def test_panels_are_told_apart_and_lie_side_by_side() -> None:
    """Ids and titles are used once, and no panel covers another."""
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)


@pytest.mark.parametrize(
    "expression", ["sum(rate(outrider_up[5m])", "nonsense(outrider_up)", "outrider_up{a~b}", "x"]
)
def test_the_reader_of_queries_is_loud(expression: str) -> None:
    """What it does not understand it does not pass."""
    with pytest.raises(ValueError, match=r"not understood|do not match"):
        read(expression)
