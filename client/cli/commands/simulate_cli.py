"""`outrider simulate` and `outrider plan`: the service in virtual time, and what that is good for."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from outrider.client.cli.shared import flags
from outrider.client.cli.shared.exits import ExitCode
from outrider.client.cli.shared.printing import print_json, print_table, table_of


def _print(table: Table, emulated: str) -> None:
    """With a line that says so."""
    print_table(table)
    print(f"all figures are emulated: {emulated}")


def simulate(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Scenarios, YAML or JSON, or folders of them."),
    ],
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds", min=0.1, max=86_400.0, help="Virtual seconds, in place of the files'."
        ),
    ] = None,
    as_json: flags.AsJson = False,
) -> None:
    """Run scenarios in virtual time: the real scheduling on emulated devices and simulated links.

    Each is run plainly, in lock-step and as the service does; outputs must be equal. Ends with 1 if a bound of a scenario
    does not hold.
    """
    module = import_module("outrider.cluster.simulate.simulate_command")
    table = table_of(*module.HEADINGS, names=("scenario", ""))

    def report(figures: object) -> None:
        if as_json:
            print_json(module.told(figures))
        else:
            row = module.row_of(figures)
            print(f"{row[0]}: {row[-1]}", file=sys.stderr, flush=True)
            table.add_row(*row)

    try:
        holds = module.simulate(files, seconds=seconds, report=report)
    finally:
        if table.row_count:
            _print(table, module.VIRTUAL_TIME)
    if not holds:
        raise typer.Exit(ExitCode.FAILURE)


def plan(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="Devices and prices, drafters, network and traffic; YAML or JSON."
        ),
    ],
    trials: Annotated[
        int,
        typer.Option(
            "--trials",
            min=1,
            help="Ways that are tried in virtual time, and more until one is fast enough.",
        ),
    ] = 4,
    as_json: flags.AsJson = False,
) -> None:
    """Tell which drafter, which tree and how many of each serve a traffic at the least cost, and where drafting stops paying.

    A closed form ranks all ways; the best are tried in virtual time, with the scheduling that ships.
    """
    module = import_module("outrider.cluster.plan.plan_command")
    request, made = module.make_plan(
        file, trials=trials, tell=lambda line: print(line, file=sys.stderr, flush=True)
    )
    if as_json:
        print_json(module.told(made))
        return
    table = table_of(*module.HEADINGS, names=("way",))
    for row in module.rows_of(request, made):
        table.add_row(*row)
    _print(table, module.VIRTUAL_TIME)
    for line in module.lines_of(request, made):
        print(line)
