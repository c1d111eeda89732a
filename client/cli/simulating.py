"""`outrider simulate`: the service in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from outrider.client.cli import flags
from outrider.client.cli.exits import ExitCode
from outrider.client.cli.output import print_json, print_table, table_of
from outrider.client.cli.serving import failed_commands, serving_module


def simulate(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Scenarios, YAML or JSON, or folders of them."),
    ],
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", min=0.1, help="Virtual seconds, in place of the files'."),
    ] = None,
    as_json: flags.AsJson = False,
) -> None:
    """Run scenarios in virtual time: the real scheduling on emulated devices and simulated links.

    Each is run plainly, in lock-step and as the service does; outputs must be equal. Ends with 1 if a bound of a scenario
    does not hold.
    """
    commands = serving_module("outrider.cluster.commands")
    module = serving_module("outrider.cluster.simulate.command")
    table = table_of(*module.HEADINGS, names=("scenario", ""))

    def report(figures: object) -> None:
        if as_json:
            print_json(module.told(figures))
        else:
            table.add_row(*module.row_of(figures))

    try:
        with failed_commands(commands, as_json=as_json):
            holds = module.simulate(files, seconds=seconds, report=report)
    finally:
        if table.row_count:
            print_table(table)
    if not holds:
        raise typer.Exit(ExitCode.FAILURE)
