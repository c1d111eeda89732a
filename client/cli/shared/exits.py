"""How a command fails: one exit code a cause, a line for people, with --json an object for programs, and never a traceback.

Whatever a command raises becomes a `CommandFailure` here; `root_command` is the one place that asks for it.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path

import outrider
from outrider.client.connection.errors import (
    DeadlineExceeded,
    InvalidRequest,
    NotFound,
    OutriderError,
    Overloaded,
    Unavailable,
)

TRACEBACK = "OUTRIDER_TRACEBACK"
"""Environment variable that shows where a fault of Outrider's own lies."""


class ExitCode(IntEnum):
    """What a script can tell apart."""

    OK = 0
    """Done."""

    FAILURE = 1
    """The service failed or refused, or the command could not do its work."""

    INVALID = 2
    """The command line, a file or the request is wrong; trying again cannot help."""

    UNAVAILABLE = 3
    """Nobody answers, or the service is full: trying again later may help."""

    DEADLINE = 4
    """The timeout passed."""

    INTERRUPTED = 130
    """Ctrl-C. (SIGTERM: 143, as of any process that it ends.)"""


EXIT_CODES_HELP = (
    "Exit codes: 0 done; 1 failure; 2 wrong usage or input; 3 service unavailable or full; 4 timeout passed; "
    "130 interrupted (Ctrl-C), 143 terminated (SIGTERM); 0 for Ctrl-C at `serve`, `apply --watch` and `status --watch`, which it is meant to end."
)

KIND_BY_CODE: Mapping[int, str] = {
    ExitCode.INVALID: "Usage",
    ExitCode.UNAVAILABLE: "Unavailable",
    ExitCode.DEADLINE: "DeadlineExceeded",
    ExitCode.INTERRUPTED: "Interrupted",
}
"""What `--json` calls a failure that is not one of the client's errors; others are a "Failure"."""


class CommandFailure(Exception):
    """A command did not do its work, and the user can read why."""

    def __init__(
        self, message: str, code: int = ExitCode.FAILURE, *, cause: OutriderError | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.cause = cause
        """The client's error that it was."""


def usage_error(message: str) -> CommandFailure:
    """A wrong command line; raise what it returns."""
    return CommandFailure(message, ExitCode.INVALID)


def exit_code(error: OutriderError) -> ExitCode:
    """The exit code of an error's cause."""
    match error:
        case InvalidRequest() | NotFound():
            return ExitCode.INVALID
        case Unavailable() | Overloaded():
            return ExitCode.UNAVAILABLE
        case DeadlineExceeded():
            return ExitCode.DEADLINE
        case _:
            return ExitCode.FAILURE


def failure_of(error: BaseException) -> CommandFailure:
    """What an error means for the command that raised it."""
    match error:
        case CommandFailure():
            return error
        case OutriderError():
            return CommandFailure(_line(error), exit_code(error), cause=error)
        case KeyboardInterrupt():
            return CommandFailure("interrupted", ExitCode.INTERRUPTED)
        case ImportError():
            return CommandFailure(_missing(error))
        case OSError(strerror=str(reason)):
            return CommandFailure(f"{error.filename}: {reason}" if error.filename else reason)
    code, message = getattr(error, "exit_code", None), getattr(error, "message", None)
    if isinstance(code, int) and isinstance(message, str):  # the serving side's, or the parser's
        return CommandFailure(message, code)
    return _fault(error)


def tell(failure: CommandFailure, *, as_json: bool, is_told: bool = False) -> None:
    """Tells of a failure: a line on stderr, and with `as_json` an object on stdout.

    Args:
        failure: What happened.
        as_json: Whether programs want to know.
        is_told: Whether people know already.
    """
    if not is_told:
        print(f"error: {failure.message}", file=sys.stderr)
        if isinstance(failure.cause, Unavailable):
            print(
                "hint: `outrider serve` starts a service; --address or OUTRIDER_ADDRESS says where one is",
                file=sys.stderr,
            )
    if as_json:
        print(json.dumps({"error": failure_as_dict(failure)}), flush=True)


def failure_as_dict(failure: CommandFailure) -> dict[str, object]:
    """What `--json` shows of a failure."""
    cause = failure.cause
    return {
        "kind": type(cause).__name__ if cause else KIND_BY_CODE.get(failure.code, "Failure"),
        "message": cause.message if cause else failure.message,
        "exit_code": failure.code,
        "code": cause.code.name if cause and cause.code is not None else None,
        "field": cause.field if cause else None,
        "request_id": cause.request_id if cause else None,
        "retry_after_s": cause.retry_after_s if cause else None,
    }


def _line(error: OutriderError) -> str:
    """An error of the client on one line."""
    line = error.message
    if error.field is not None and error.field not in line:
        line = f"{error.field}: {line}"
    if error.retry_after_s is not None:
        line += f" (try again in {error.retry_after_s:g} s)"
    return line


def _missing(error: ImportError) -> str:
    """Why the serving side cannot be imported, if a user can fix it: a package is missing, or a plug-in is wrong."""
    missing = (error.name or "").split(".")[0]
    if isinstance(error, ModuleNotFoundError) and missing != "outrider":
        file = traceback.extract_tb(error.__traceback__)[-1].filename
        if Path(outrider.__file__).parent not in Path(file).parents:
            return f"{error.name} is missing, which {file} imports; if that is none of your plug-ins: pip install 'outrider[serve]'"
        return f"this needs the serving packages ({error.name} is missing): pip install 'outrider[serve]'"
    if type(error).__module__.split(".")[0] == "outrider":
        return str(error)
    return _fault(error).message


def _fault(error: BaseException) -> CommandFailure:
    """Of something that nobody has foreseen."""
    if os.environ.get(TRACEBACK):
        traceback.print_exception(error)
    return CommandFailure(
        f"a fault of Outrider's own, please report it: {type(error).__name__}: {error} "
        f"({TRACEBACK}=1 shows where)"
    )
