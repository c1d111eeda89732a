"""A picture of the Grafana dashboard for the docs: its panels' queries, evaluated by Prometheus over a service at work.

    python -m bench.report.dashboard_picture --prometheus /usr/bin/prometheus --out docs/dashboard.svg

Grafana itself has no part in it: places, titles and queries are the dashboard's, the drawing is `bench.report.svg`'s.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.report.svg import HEIGHT, NAMESPACE, WIDTH, Axis, Series, plot
from bench.running.child import ROOT
from outrider.client import Client, SamplingOptions, SpeculationOptions
from outrider.cluster.config.schema import parse_config
from outrider.cluster.start.launch import start_service

DASHBOARD = ROOT / "cluster" / "metrics" / "dashboards" / "outrider.json"
SCRAPE_S = 2
STEP_S = 3 * SCRAPE_S
"""Between points."""

RATE = f"{8 * SCRAPE_S}s"
"""Grafana's `$__rate_interval` is four scrapes or more."""

SETTLE_S = 4.0 * SCRAPE_S
ANSWER_S = 20.0
COLUMNS = 24
"""Of Grafana's grid."""

ROW_HEIGHT = 44
MAX_LINES = 6
CONFIG = {
    "service": {"listen": "127.0.0.1:0", "metrics": "127.0.0.1:0"},
    "targets": [{"model": "demo:target", "num_slots": 4}],
    "drafters": [{"model": "demo:draft"}, {"method": "prompt_lookup"}],
}

Panel = dict[str, Any]
Lines = dict[str, list[tuple[float, float]]]


def picture(panels: list[Panel], lines: dict[int, Lines]) -> str:
    """The dashboard as SVG.

    Args:
        panels: Of the dashboard.
        lines: Of each panel, by its id: points (minutes, value) by the legend.
    """
    parts = []
    heights = [0]
    for panel in panels:
        at = panel["gridPos"]
        x = at["x"] * 4 * WIDTH / COLUMNS
        if panel["type"] == "row":
            heights.append(heights[-1] + ROW_HEIGHT)
            parts.append(
                f'<text x="16" y="{heights[-1] - 14}" font-size="24" font-weight="bold">'
                f"{panel['title']}</text>"
            )
            continue
        if at["x"] == 0:
            heights.append(heights[-1] + HEIGHT)
        top = heights[-1] - HEIGHT
        drawn = [Series(name=name, points=points) for name, points in lines[panel["id"]].items()]
        if not drawn:
            parts.append(
                f'<text x="{x + 60:.0f}" y="{top + 24}" font-size="14">{panel["title"]}</text>'
                f'<text x="{x + 150:.0f}" y="{top + 160}" font-size="14" fill="#777">nothing yet</text>'
            )
            continue
        unit = panel["fieldConfig"]["defaults"].get("unit", "short")
        shown = plot(
            panel["title"], drawn[:MAX_LINES], x=Axis(label="minutes"), y=Axis(label=unit, least=0)
        )
        place = f'x="{x:.0f}" y="{top}" width="{WIDTH}" height="{HEIGHT}"'
        parts.append(shown.replace("<svg ", f"<svg {place} ", 1))
    size = f'width="{4 * WIDTH}" height="{heights[-1]}" viewBox="0 0 {4 * WIDTH} {heights[-1]}"'
    ground = '<rect width="100%" height="100%" fill="#fff"/>'
    return (
        f'<svg xmlns="{NAMESPACE}" {size} font-family="sans-serif">{ground}{"".join(parts)}</svg>\n'
    )


def evaluated(url: str, panel: Panel, began_s: float, ended_s: float) -> Lines:
    """What Prometheus answers to a panel's queries."""
    found: Lines = {}
    for target in panel.get("targets", ()):
        query = target["expr"].replace("$service", ".*").replace("$__rate_interval", RATE)
        asked = urllib.parse.urlencode(
            {"query": query, "start": began_s, "end": ended_s, "step": STEP_S}
        )
        with urllib.request.urlopen(
            f"{url}/api/v1/query_range?{asked}", timeout=ANSWER_S
        ) as answer:
            results = json.load(answer)["data"]["result"]
        for result in results:
            name = target["legendFormat"]
            for label, value in result["metric"].items():
                name = name.replace("{{" + label + "}}", value)
            points = [
                ((at - began_s) / 60.0, float(value))
                for at, value in result["values"]
                if value not in ("NaN", "+Inf")
            ]
            if points:
                found[name] = points
    return found


@contextmanager
def prometheus(program: str, target: str, folder: Path) -> Iterator[str]:
    """Prometheus over one page of metrics; its URL."""
    config = {
        "global": {"scrape_interval": f"{SCRAPE_S}s"},
        "scrape_configs": [{"job_name": "outrider", "static_configs": [{"targets": [target]}]}],
    }
    (folder / "prometheus.json").write_text(json.dumps(config))
    listen = f"127.0.0.1:{_free_port()}"
    process = subprocess.Popen(
        [
            program,
            f"--config.file={folder / 'prometheus.json'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={listen}",
            "--log.level=error",
        ]
    )
    try:
        yield f"http://{listen}"
    finally:
        process.terminate()
        process.wait(ANSWER_S)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _work(address: str, until_s: float) -> None:
    """Requests in waves: few, then more than there are slots, then some without speculation."""

    def one(number: int) -> None:
        with Client(address, timeout_s=120.0) as client:
            while time.time() < until_s:
                client.generate(
                    f"The history of number {number} begins",
                    sampling=SamplingOptions(max_tokens=80, temperature=0.8 * (number % 2)),
                    speculation=SpeculationOptions(enabled=number % 5 != 4),
                )

    began_s = time.time()
    with ThreadPoolExecutor(6) as pool:
        running = []
        for number in range(6):
            running.append(pool.submit(one, number))
            time.sleep((until_s - began_s) / 8)
        for each in running:
            each.result()


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prometheus", required=True, help="the program")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "dashboard.svg")
    parser.add_argument("--seconds", type=float, default=120.0)
    asked = parser.parse_args()
    panels: list[Panel] = json.loads(DASHBOARD.read_text())["panels"]
    config = parse_config(CONFIG, source="the picture")
    with (
        tempfile.TemporaryDirectory() as folder,
        start_service(config) as service,
        prometheus(asked.prometheus, service.metrics_address, Path(folder)) as url,
    ):
        began_s = time.time()
        _work(service.address, began_s + asked.seconds)
        time.sleep(SETTLE_S)
        ended_s = time.time()
        lines = {panel["id"]: evaluated(url, panel, began_s, ended_s) for panel in panels}
    asked.out.write_text(picture(panels, lines), encoding="utf-8")
    empty = [
        panel["title"] for panel in panels if panel["type"] != "row" and not lines[panel["id"]]
    ]
    print(
        f"{asked.out}: {len(panels)} panels and rows; without a value: {', '.join(empty) or 'none'}"
    )


if __name__ == "__main__":
    main()
