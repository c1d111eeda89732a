"""How the processes of the service write logs: one line an event, on stderr, for people or as JSON.

Every line carries the name of its actor; lines about one request carry `request_id` at coordinator, target and drafter alike.
A line that cannot be written, because the disk is full or nobody reads any more, is lost, and the work that it tells of goes on.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TextIO

import structlog

LEVELS = ("debug", "info", "warning", "error")
"""Log levels, as the command line names them."""

FORMAT_VARIABLE = "OUTRIDER_LOG_FORMAT"
"""Says how logs are written where the configuration does not."""

_TRACEBACKS = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)
"""Without the values of variables: those are prompts, secrets and weights, and take seconds to write."""


class LogFormat(StrEnum):
    """How lines look."""

    CONSOLE = "console"
    """For people."""

    JSON = "json"
    """One JSON object a line, times in UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """What a process is told about its logs."""

    level: str = "warning"
    """Least level of the events; one of `LEVELS`."""

    format: LogFormat | None = None
    """None: as the environment says, else for people."""


def configure_logs(settings: LogSettings, *, actor: str) -> None:
    """Writes events to stderr, those of other libraries and Python's warnings included.

    Args:
        settings: How.
        actor: Name on every line.

    Raises:
        ValueError: The level, or the format that the environment names, does not exist.
    """
    level = settings.level
    if level not in LEVELS:
        raise ValueError(f"log level is {level!r}; allowed: {', '.join(LEVELS)}")
    number = logging.getLevelNamesMapping()[level.upper()]
    is_json = (settings.format or _format_of_environment()) is LogFormat.JSON

    def named(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event.setdefault("actor", actor)
        return event

    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        named,
        structlog.processors.TimeStamper(fmt="iso", utc=True)
        if is_json
        else structlog.processors.TimeStamper(fmt="%H:%M:%S.%f", utc=False),
    ]
    stream: Any = _Lossy(sys.stderr)  # not a whole `TextIO`, but all that loggers ask of one
    last: list[structlog.types.Processor] = (
        [_TRACEBACKS, structlog.processors.JSONRenderer(default=repr)]
        if is_json
        else [
            structlog.dev.ConsoleRenderer(
                colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
        ]
    )
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(stream),
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    # What other libraries tell at debug level, each look of gRPC at its loop among it, drowns our own.
    logging.basicConfig(level=max(number, logging.INFO), handlers=[handler], force=True)
    logging.captureWarnings(True)


class _Lossy(io.TextIOBase):
    """A stream for lines that may get lost."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str, /) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()


def _format_of_environment() -> LogFormat:
    value = os.environ.get(FORMAT_VARIABLE, LogFormat.CONSOLE.value)
    try:
        return LogFormat(value)
    except ValueError:
        raise ValueError(
            f"{FORMAT_VARIABLE} is {value!r}; allowed: {', '.join(LogFormat)}"
        ) from None
