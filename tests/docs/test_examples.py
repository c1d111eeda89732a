"""Examples of the operators' pages that are no commands: configurations are read by the service, records by the batch; links of all pages
are followed. Commands and programs are run by `test_run.py`."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from tests.docs.examples import PAGES, ROOT, Example, examples

from outrider.client.batch.record import BatchRecord, parse
from outrider.cluster.config.schema import Config, parse_config

YAML = examples("yaml")

LINKED = sorted(
    {*PAGES, *(page.relative_to(ROOT).as_posix() for page in ROOT.glob("docs/**/*.md"))}
)


@pytest.mark.parametrize("example", YAML, ids=[each.name for each in YAML])
def test_configurations_are_accepted(example: Example) -> None:
    """By the service, but for the chart's values (tests/chart/test_docs.py), Prometheus' file and Kubernetes' objects."""
    documents = list(yaml.safe_load_all(example.text))
    for document in documents:
        if "apiVersion" in document:
            assert {"kind", "metadata", "spec"} <= set(document)
        elif "scrape_configs" in document:
            for file in document["rule_files"]:
                assert (ROOT / "cluster" / "metrics" / file).exists()
        elif example.page == "docs/kubernetes.md":
            continue
        else:
            assert set(document) <= set(Config.model_fields)
            parse_config(document, source=example.name)


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
