"""`outrider apply`: changes what a running service is."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer


def apply(
    config: Annotated[
        Path, typer.Argument(metavar="FILE", help="Configuration file, YAML or JSON.")
    ],
    admin: Annotated[
        Path,
        typer.Option(
            "--admin-file",
            metavar="FILE",
            envvar="OUTRIDER_ADMIN_FILE",
            help="What `outrider serve --admin-file` wrote.",
        ),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Apply the file again whenever it changes.")
    ] = False,
    drain_s: Annotated[
        float,
        typer.Option(
            "--drain", metavar="SECONDS", min=0.0, help="How long requests go on at what ends."
        ),
    ] = 600.0,
) -> None:
    """Make a running service what a configuration file says, without ending a request.

    Shows the plan, starts what is new, and ends what is replaced or removed when its requests have ended.
    """
    module = import_module("outrider.cluster.start.apply")

    def report(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    if watch and not dry_run:
        module.watch(config=config, admin=admin, drain_s=drain_s, report=report)
    else:
        module.apply(config=config, admin=admin, is_dry_run=dry_run, drain_s=drain_s, report=report)
