"""The `outrider` command."""

from __future__ import annotations

from typing import Annotated

import typer

import outrider
from outrider.client.cli.commands import serving
from outrider.client.cli.commands.apply_cli import apply
from outrider.client.cli.commands.batch_cli import batch
from outrider.client.cli.commands.bench_cli import bench
from outrider.client.cli.commands.chat_cli import chat
from outrider.client.cli.commands.generate_cli import generate
from outrider.client.cli.commands.simulate_cli import plan, simulate
from outrider.client.cli.commands.status_cli import health, models, status
from outrider.client.cli.commands.submit_cli import submit_app
from outrider.client.cli.commands.trace_cli import trace
from outrider.client.cli.commands.train_cli import train_app
from outrider.client.cli.shared.exits import EXIT_CODES_HELP
from outrider.client.cli.shared.root_command import RootCommand

_TALK = "Talk to a service"
_RUN = "Run a service"

app = typer.Typer(
    name="outrider",
    cls=RootCommand,
    help="Speculative decoding as a service: the target model's own output, faster.",
    epilog=EXIT_CODES_HELP + " OUTRIDER_ADDRESS is the default of --address.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def show_version(is_asked: bool) -> None:
    """Prints the version and ends."""
    if is_asked:
        print(f"outrider {outrider.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Speculative decoding as a service: the target model's own output, faster."""


app.command(rich_help_panel=_RUN)(serving.demo)
app.command(rich_help_panel=_RUN)(serving.serve)
app.command(rich_help_panel=_RUN)(apply)
app.command(rich_help_panel=_RUN)(simulate)
app.command(rich_help_panel=_RUN)(plan)
app.add_typer(serving.config_app, name="config", rich_help_panel=_RUN)
app.add_typer(train_app, name="train", rich_help_panel=_RUN)
app.add_typer(submit_app, name="submit", rich_help_panel=_RUN)
app.command(rich_help_panel=_TALK)(generate)
app.command(rich_help_panel=_TALK)(chat)
app.command(rich_help_panel=_TALK)(status)
app.command(rich_help_panel=_TALK)(models)
app.command(rich_help_panel=_TALK)(health)
app.command(rich_help_panel=_TALK)(trace)
app.command(rich_help_panel=_TALK)(batch)
app.command(rich_help_panel=_TALK)(bench)


def main() -> None:
    """Runs the command line."""
    app(prog_name="outrider")
