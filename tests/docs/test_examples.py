"""Examples of all pages that can be judged without running them: files are read by what reads them, commands name what there is, records are read by
the batch, links are followed. Commands and programs of the operators' pages are run by `test_run.py`."""

from __future__ import annotations

import json
import re
import shlex

import pytest
import yaml
from tests.docs.examples import PAGES, ROOT, Example, examples
from typer.testing import CliRunner

from outrider.client.batch.record import BatchRecord, parse
from outrider.client.cli.app import app
from outrider.cluster.config.schema import Config, parse_config
from outrider.cluster.plan.plan_request import PlanRequest
from outrider.cluster.simulate.scenario import Scenario

LINKED = sorted(
    {*PAGES, *(page.relative_to(ROOT).as_posix() for page in ROOT.glob("docs/**/*.md"))}
)

YAML = [each for page in LINKED for each in examples("yaml", page=page)]

_OUTRIDER = re.compile(r"^ *(?:\$ )?(outrider [a-z][^#\n]*)", re.MULTILINE)
"""A line that calls the program, up to its comment."""

_SYNOPSIS = re.compile(r"\[([^\]|]*)[^\]]*\]|\|\S+")
"""What may be left out, or one of several; the first of them stays."""

COMMANDS = sorted(
    {
        (page, line.strip().removesuffix("\\"))
        for page in LINKED
        for line in _OUTRIDER.findall((ROOT / page).read_text(encoding="utf-8"))
        if not page.startswith(("docs/journal", "docs/adr")) and "METHOD" not in line
    }
)


@pytest.mark.parametrize("example", YAML, ids=[each.name for each in YAML])
def test_configurations_are_accepted(example: Example) -> None:
    """By the service, the planner or the simulation, but for the chart's values (tests/chart/test_docs.py), Prometheus' file and Kubernetes' objects."""
    documents = list(yaml.safe_load_all(example.text))
    for document in documents:
        if "apiVersion" in document:
            assert {"kind", "metadata", "spec"} <= set(document)
        elif "scrape_configs" in document:
            for file in document["rule_files"]:
                assert (ROOT / "cluster" / "metrics" / file).exists()
        elif "traffic" in document:
            PlanRequest.model_validate(document)
        elif "load" in document:
            Scenario.model_validate({"name": "shown", **document})
        elif example.page == "docs/kubernetes.md":
            continue
        else:
            assert set(document) <= set(Config.model_fields)
            parse_config(document, source=example.name)


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_commands_name_what_there_is(page: str, line: str) -> None:
    """Commands and options: what is unknown is refused before the help is shown. Nothing is run."""
    words = shlex.split(_SYNOPSIS.sub(r"\1", line))
    ends = (at for at, word in enumerate(words) if word in {"&", "&&", "|", ">", ";"})
    done = CliRunner().invoke(app, [*words[1 : next(ends, None)], "--help"])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("page", LINKED)
def test_links_lead_somewhere(page: str) -> None:
    """Files, and headings in them; of every page, not of those for operators alone."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!http)([^)\s]+)\)", text):
        path, _, heading = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        assert file.exists(), target
        if heading and file.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            known = {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}
            assert heading in known, target


def test_every_page_has_its_reader() -> None:
    """The index lists each page once."""
    listed = re.findall(
        r"^\| \[(.+?)\]", (ROOT / "docs" / "README.md").read_text("utf-8"), re.MULTILINE
    )
    pages = [page.name for page in (ROOT / "docs").glob("*.md") if page.name != "README.md"]

    assert sorted(listed) == sorted([*pages, "adr"])


def test_records_of_a_batch_are_read() -> None:
    """The lines of docs/batch.md that are input; the others are JSON."""
    records = 0
    for example in examples("json", "jsonl", page="docs/batch.md"):
        for line in example.text.splitlines():
            if "body" in json.loads(line):
                assert isinstance(parse(1, line.encode()), BatchRecord)
                records += 1
    assert records >= 2
