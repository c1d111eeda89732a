"""How a command of the command line fails on the serving side, and what it exits with then."""

from __future__ import annotations

from collections.abc import Callable

FAILED = 1
"""Exit code: the service could not be started, or has failed."""

USAGE = 2
"""Exit code: the command line, a file or the configuration is wrong; nothing was started."""

UNAVAILABLE = 3
"""Exit code: nobody answers."""

DEADLINE = 4
"""Exit code: a bound on a wait has passed."""

Report = Callable[[str], None]
"""Takes one line for the user."""


class CommandFailed(Exception):
    """A command failed for a reason that the user can read and fix."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message, exit_code)
        self.message = message
        self.exit_code = exit_code

    def __str__(self) -> str:
        return self.message
