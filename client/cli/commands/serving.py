"""The commands that need the serving packages: imported only when one of them runs."""

from __future__ import annotations

import json
import os
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from outrider.client.cli.shared import flags
from outrider.client.cli.shared.printing import print_json

config_app = typer.Typer(help="Check configuration files.", no_args_is_help=True)

ConfigFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="Configuration file, YAML or JSON.")
]


Emulate = Annotated[
    str | None,
    typer.Option(
        "--emulate",
        metavar="PROFILE[,PROFILE]",
        help="Run laws on an emulated device, for instance h100-8b, and drafters on another, for instance h100-8b,h100-1b.",
    ),
]


def serve(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", metavar="FILE", help="Configuration file.")
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            metavar="PATH_OR_ID",
            help="Target model, in place of the file's. Repeatable.",
        ),
    ] = None,
    draft: Annotated[
        list[str] | None,
        typer.Option(
            "--draft",
            metavar="PATH_OR_ID",
            help="Draft model, in place of the file's; prompt_lookup needs none. Repeatable.",
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen", metavar="HOST:PORT", help="Public address; port 0 takes a free one."
        ),
    ] = None,
    emulate: Emulate = None,
    ready_file: Annotated[
        Path | None,
        typer.Option("--ready-file", metavar="FILE", help="Is written once the service serves."),
    ] = None,
    admin_file: Annotated[
        Path | None,
        typer.Option(
            "--admin-file",
            metavar="FILE",
            envvar="OUTRIDER_ADMIN_FILE",
            help="Is written while the service runs, for `outrider apply`; readable by you only.",
        ),
    ] = None,
    log_level: Annotated[
        str, typer.Option("--log-level", help="debug, info, warning or error.")
    ] = "warning",
) -> None:
    """Serve until Ctrl-C or SIGTERM, then drain and end everything that was started.

    Without any option: the shipped demonstration models, on this machine.
    """
    commands = import_module("outrider.cluster.start.commands")
    commands.serve(
        config=config,
        targets=tuple(target or ()),
        drafts=tuple(draft or ()),
        listen=listen,
        emulate=emulate,
        ready_file=ready_file,
        admin_file=admin_file,
        log_level=log_level,
    )


@config_app.command("validate")
def config_validate(
    file: ConfigFile,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the whole configuration, or the problems.")
    ] = False,
) -> None:
    """Check a configuration file and name everything that is wrong with it."""
    commands = import_module("outrider.cluster.start.commands")
    whole = commands.config_validate(file)
    if as_json:
        print_json(whole)
    else:
        print(f"{file} is valid")
        for sentence in commands.config_found(file):
            print(sentence)


@config_app.command("schema")
def config_schema() -> None:
    """Print the JSON schema of the configuration file."""
    commands = import_module("outrider.cluster.start.commands")
    print(json.dumps(commands.config_schema(), indent=2))


def demo(
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", "-n", min=1, help="Output tokens for each prompt.")
    ] = 128,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and shorter texts.")] = False,
    trace: Annotated[
        Path,
        typer.Option(
            "--trace",
            metavar="FILE",
            help="Gets the timeline, for ui.perfetto.dev or chrome://tracing.",
        ),
    ] = Path("outrider-trace.json"),
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target", metavar="PATH_OR_ID", help="Target model, in place of the shipped one."
        ),
    ] = None,
    draft: Annotated[
        list[str] | None,
        typer.Option(
            "--draft",
            metavar="PATH_OR_ID",
            help="Draft model, in place of the shipped one. Repeatable.",
        ),
    ] = None,
    emulate: Emulate = None,
    no_color: Annotated[bool, typer.Option("--no-color", help="Plain text.")] = False,
    as_json: flags.AsJson = False,
) -> None:
    """Start everything on this machine and show what speculation does.

    Decodes varied prompts plainly and speculatively with the shipped models, checks that the texts are the same,
    colours each token by who proposed it, and leaves a timeline of drafting against verification.
    """
    module = import_module("outrider.client.cli.demo.demonstration")
    if no_color:
        os.environ["NO_COLOR"] = "1"  # what writes in colours heeds it (no-color.org)
    code = module.run_demo(
        max_tokens=max_tokens,
        quick=quick,
        trace=trace,
        as_json=as_json,
        targets=tuple(target or ()),
        drafts=tuple(draft or ()),
        emulate=emulate,
    )
    raise typer.Exit(code)
