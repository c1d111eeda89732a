"""The command as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import outrider
from outrider.client.cli.shared.exits import EXIT_CODES_HELP, ExitCode

if TYPE_CHECKING:
    from tests.client.cli.conftest import Run


def test_version(run: Run) -> None:
    """`--version` prints the version."""
    assert run("--version").stdout == f"outrider {outrider.__version__}\n"


def test_help_lists_commands_and_exit_codes(run: Run) -> None:
    """The help names each command and says what the exit codes mean."""
    text = " ".join(run("--help").stdout.split())
    for command in ("demo", "serve", "generate", "chat", "status", "models", "bench", "config"):
        assert command in text
    assert EXIT_CODES_HELP in text
    for code in ExitCode:
        assert f"{int(code)} " in EXIT_CODES_HELP


def test_unknown_command(run: Run) -> None:
    """A command that does not exist is wrong usage."""
    assert run("generrate").exit_code == 2
