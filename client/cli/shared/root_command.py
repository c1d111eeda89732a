"""The command `outrider` itself: whatever a command raises ends here, as its exit code and a line."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import typer
from typer.core import TyperGroup

from outrider.client.cli.shared.exits import failure_of, tell


class RootCommand(TyperGroup):
    """The group of all commands."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """See `TyperGroup`."""
        _make_streams_safe()
        return super().main(*args, **kwargs)

    # Click is typer's own in some versions, and has no name here that fits all.
    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """See `TyperGroup`; here `--help` and `--version` print."""
        with ending(as_json=False):
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """See `TyperGroup`. Raises only what typer ends the process with."""
        arguments = [*ctx._protected_args, *ctx.args]
        options = arguments[: arguments.index("--")] if "--" in arguments else arguments
        with ending(as_json="--json" in options):
            return super().invoke(ctx)


@contextmanager
def ending(*, as_json: bool) -> Iterator[None]:
    """Ends the process as whatever its body raises says.

    Raises:
        typer.Exit: The command is over.
    """
    try:
        try:
            yield
        except typer.Exit:
            sys.stdout.flush()
            raise
        sys.stdout.flush()
    except (typer.Exit, typer.Abort, BrokenPipeError):
        raise  # a reader that goes away is told nothing
    except (Exception, KeyboardInterrupt) as error:
        failure = failure_of(error)
        # Typer shows what its parser raises, with the usage of the command.
        is_parsers = hasattr(error, "format_message")
        try:
            tell(failure, as_json=as_json, is_told=is_parsers)
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError:
            _drop_output()  # a full disk, most likely, of which stderr has told
        if is_parsers:
            raise
        raise typer.Exit(failure.code) from None


def _make_streams_safe() -> None:
    """A character that the terminal or pipe has no way to say is written as its number; a closed stream is a silent one."""
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115
        elif name != "stdin" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """What is still to be written goes nowhere: writing it at the end of the process would fail once more."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
