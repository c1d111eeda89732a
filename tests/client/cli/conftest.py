"""Runs the command line in this process."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from typer.testing import CliRunner, Result

from outrider.client.cli.app import app

Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `outrider` with these arguments, away from the caller's own settings."""
    monkeypatch.delenv("OUTRIDER_ADDRESS", raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    runner = CliRunner()

    def invoke(*arguments: str, stdin: str | bytes = "") -> Result:
        return runner.invoke(app, list(arguments), input=stdin, prog_name="outrider")

    return invoke
