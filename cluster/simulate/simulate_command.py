"""`outrider simulate`: runs scenarios in virtual time and tells what came of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import structlog

from outrider.cluster.config.config_errors import ConfigError
from outrider.cluster.process.command_failed import USAGE, CommandFailed
from outrider.cluster.simulate.compare import ComparedFigures, compare
from outrider.cluster.simulate.scenario import load_scenario
from outrider.cluster.simulate.simulated_service import SimulatedMode

HEADINGS = (
    "scenario",
    "plain tokens/s",
    "x plain",
    "x lock-step",
    "worst window",
    "tokens a round",
    "bytes a token",
    "eta",
    "target us a round",
    "",
)
"""Of the columns of `row_of`."""

VIRTUAL_TIME = "devices by their profiles, in virtual time"
"""What is emulated about every figure."""


def simulate(
    files: Sequence[Path],
    *,
    seconds: float | None = None,
    report: Callable[[ComparedFigures], None],
) -> bool:
    """Runs scenarios, one after another.

    Args:
        files: Of scenarios, or folders of them.
        seconds: Virtual seconds of each, in place of the file's.
        report: Told the figures of each as soon as they are there.

    Returns:
        Whether all bounds hold.

    Raises:
        CommandFailed: A file is no scenario; nothing was run.
    """
    try:
        scenarios = [load_scenario(file) for file in _files(files)]
    except ConfigError as error:
        raise CommandFailed(str(error), USAGE) from None
    if seconds is not None:
        scenarios = [one.model_copy(update={"seconds": seconds}) for one in scenarios]
    holds = True
    with quiet():
        for scenario in scenarios:
            figures = compare(scenario)
            holds = holds and not figures.broken
            report(figures)
    return holds


def row_of(figures: ComparedFigures) -> tuple[str, ...]:
    """Cells of a table."""
    return (
        figures.scenario,
        f"{figures.tokens_per_s[SimulatedMode.PLAIN]:.0f}",
        f"{figures.speed_up:.2f}",
        f"{figures.over_lockstep:.2f}",
        "-" if figures.window is None else f"{figures.window:.2f}",
        f"{figures.tokens_per_pass:.2f}",
        "-" if figures.bytes_per_token is None else f"{figures.bytes_per_token:.0f}",
        "-" if figures.eta is None else f"{figures.eta:.2f}",
        f"{max(figures.cpu_us.values()):.0f}",
        "; ".join(figures.broken) or "holds",
    )


def told(figures: ComparedFigures) -> dict[str, Any]:
    """For programs."""
    return {**asdict(figures), "emulated": VIRTUAL_TIME}


@contextmanager
def quiet() -> Iterator[None]:
    """Without what actors log of each session."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    try:
        yield
    finally:
        structlog.configure(**before)


def _files(given: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for file in given:
        try:
            # A name that is too long is no folder either, and Python raises.
            found.extend(_scenarios_of(file) if file.is_dir() else [file])
        except OSError as error:
            reason = error.strerror or str(error)
            raise CommandFailed(f"{file}: cannot be read: {reason}", USAGE) from None
    if not found:
        raise CommandFailed("there is no scenario: name a file, or a folder with *.yaml", USAGE)
    return found


def _scenarios_of(folder: Path) -> list[Path]:
    """The files of a folder; `Path.glob` would find none where it may not look."""
    return sorted(one for one in folder.iterdir() if one.suffix == ".yaml")
