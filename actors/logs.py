"""How the processes of the service write logs: one line an event, on stderr."""

from __future__ import annotations

import logging
import sys

import structlog

LEVELS = ("debug", "info", "warning", "error")
"""Log levels, as the command line names them."""


def configure_logs(level: str) -> None:
    """Writes events of at least `level` to stderr.

    Raises:
        ValueError: The level is not one of `LEVELS`.
    """
    if level not in LEVELS:
        raise ValueError(f"log level is {level!r}; allowed: {', '.join(LEVELS)}")
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(level=number, stream=sys.stderr, force=True)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S.%f", utc=False),
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
