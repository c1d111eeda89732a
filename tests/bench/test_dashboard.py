"""The picture of the dashboard: drawn from answers of Prometheus, and the one in the docs is of the dashboard that there is."""

from __future__ import annotations

import json
from xml.etree import ElementTree

from tests.docs.examples import ROOT

from bench.report.dashboard_picture import DASHBOARD, Lines, Panel, picture

PANELS: list[Panel] = json.loads(DASHBOARD.read_text())["panels"]


def texts(svg: str) -> set[str]:
    """What can be read in a picture."""
    return {
        each.text or "" for each in ElementTree.fromstring(svg).iter() if each.tag.endswith("text")
    }


def test_every_panel_is_drawn_with_its_lines() -> None:
    """Also one that has no value yet."""
    filled = next(panel["id"] for panel in PANELS if panel["type"] != "row")
    lines: dict[int, Lines] = {panel["id"]: {} for panel in PANELS}
    lines |= {filled: {"a line": [(0.0, 1.0), (1.0, 2.0)]}}
    shown = texts(picture(PANELS, lines))
    assert {panel["title"] for panel in PANELS} <= shown
    assert {"a line", "nothing yet"} <= shown


def test_the_picture_in_the_docs_has_every_panel() -> None:
    """Else `python -m bench.report.dashboard_picture` is to be run again."""
    shown = texts((ROOT / "docs" / "dashboard.svg").read_text())
    assert {panel["title"] for panel in PANELS} <= shown
