"""`outrider status` and `outrider models`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.client.cli.conftest import Run
    from tests.client.conftest import FakeService


def test_status(run: Run, fake: FakeService) -> None:
    """People get a line and a table."""
    result = run("status", "-a", fake.address)
    assert result.exit_code == 0
    assert "outrider 0.0.fake: serving, accepts requests" in result.stdout
    assert fake.address in result.stdout


def test_status_as_json(run: Run, fake: FakeService) -> None:
    """Programs get every field."""
    value = json.loads(run("status", "-a", fake.address, "--json").stdout)
    assert value["health"] == "serving"
    assert (value["running"], value["waiting"], value["finished"]) == (1, 2, 3)
    assert value["actors"][0]["incarnation"] == 7


def test_models(run: Run, fake: FakeService) -> None:
    """Models, drafters and verifiers are listed."""
    result = run("models", "-a", fake.address)
    assert "demo: 256 tokens, context 512, chat template" in result.stdout
    assert "draft-small" in result.stdout
    value = json.loads(run("models", "-a", fake.address, "--json").stdout)
    assert value["models"][0]["drafters"][0]["method"] == "autoregressive"
    assert value["models"][0]["verifiers"] == ["coupled", "mcsd_with_replacement"]


def test_nobody_answers(run: Run, closed_port: str) -> None:
    """A dead address ends with 3, a hint, and JSON for programs."""
    result = run("status", "-a", closed_port, "--json")
    assert result.exit_code == 3
    assert json.loads(result.stdout)["error"]["kind"] == "Unavailable"
    assert "hint:" in result.stderr
