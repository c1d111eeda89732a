"""How a command ends: one exit code a cause, and never a traceback for an expected error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import typer

from outrider.client.connection.errors import (
    DeadlineExceeded,
    InvalidRequest,
    NotFound,
    OutriderError,
    Overloaded,
    Unavailable,
)


class ExitCode(IntEnum):
    """What a script can tell apart."""

    OK = 0
    """Done."""

    FAILURE = 1
    """The service failed or refused, or the command could not do its work."""

    INVALID = 2
    """The command line or the request is wrong; trying again cannot help."""

    UNAVAILABLE = 3
    """Nobody answers, or the service is full: trying again later may help."""

    DEADLINE = 4
    """The timeout passed."""

    INTERRUPTED = 130
    """Ctrl-C. (SIGTERM: 143, as of any process that it ends.)"""


EXIT_CODES_HELP = (
    "Exit codes: 0 done; 1 failure; 2 wrong usage or input; 3 service unavailable or full; 4 timeout passed; "
    "130 interrupted (Ctrl-C), 143 terminated (SIGTERM); `serve` and `status --watch`, which Ctrl-C ends as it should, 0."
)


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


def error_as_dict(error: OutriderError) -> dict[str, object]:
    """What `--json` shows of an error."""
    return {
        "kind": type(error).__name__,
        "message": error.message,
        "code": error.code.name if error.code is not None else None,
        "field": error.field,
        "request_id": error.request_id,
        "retry_after_s": error.retry_after_s,
    }


def report(error: OutriderError, *, as_json: bool) -> ExitCode:
    """Tells of an error: a line on stderr, and with `as_json` an object on stdout too. Returns its exit code."""
    if as_json:
        print(json.dumps({"error": error_as_dict(error)}), flush=True)
    line = error.message
    if error.field is not None and error.field not in line:
        line = f"{error.field}: {line}"
    if error.retry_after_s is not None:
        line += f" (try again in {error.retry_after_s:g} s)"
    print(f"error: {line}", file=sys.stderr)
    if isinstance(error, Unavailable):
        print(
            "hint: `outrider serve` starts a service; --address or OUTRIDER_ADDRESS says where one is",
            file=sys.stderr,
        )
    return exit_code(error)


def usage_error(message: str) -> typer.Exit:
    """Tells of a wrong command line; raise what it returns."""
    print(f"error: {message}", file=sys.stderr)
    return typer.Exit(ExitCode.INVALID)


@contextmanager
def expected_errors(*, as_json: bool = False) -> Iterator[None]:
    """Ends the command with the exit code of what its body raises."""
    try:
        yield
    except OutriderError as error:
        raise typer.Exit(report(error, as_json=as_json)) from None
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        raise typer.Exit(ExitCode.INTERRUPTED) from None
