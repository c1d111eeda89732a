"""`outrider submit`: other commands as jobs on a Ray cluster that runs already."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer
from rich.text import Text

from outrider.client.cli.shared import flags
from outrider.client.cli.shared.printing import print_json, print_line, print_table, table_of

VERBS = {
    "serve": "Serve in the cluster: `outrider serve` as a job.",
    "batch": "Answer a file of requests: `outrider batch` as a job.",
    "train": "Train models: `outrider train` as a job.",
    "bench": "Measure a service: `outrider bench` as a job.",
}

_JOB = "The job"
_ENTRYPOINT = "Where the command runs"

submit_app = typer.Typer(
    help="Run a command as a job on a Ray cluster.\n\nThese options stand before the command; what follows the command is its "
    "own: outrider submit --address http://head:8265 serve --config service.yaml",
    no_args_is_help=True,
)
JobId = Annotated[str, typer.Argument(metavar="ID", help="Submission id.")]


@submit_app.callback()
def options(
    ctx: typer.Context,
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            metavar="URL",
            help="Job server, http://HOST:8265. Default: RAY_API_SERVER_ADDRESS, then RAY_ADDRESS.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="Holds the cluster's token. Default: where Ray looks (RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH, ~/.ray).",
        ),
    ] = None,
    submission_id: Annotated[
        str | None,
        typer.Option("--submission-id", metavar="ID", help="Names the job. Default: a new name."),
    ] = None,
    working_dir: Annotated[
        str | None,
        typer.Option(
            "--working-dir",
            metavar="DIR",
            rich_help_panel=_JOB,
            help="The job runs in a copy of this folder, or of the archive at a URI.",
        ),
    ] = None,
    runtime_env: Annotated[
        Path | None,
        typer.Option(
            "--runtime-env",
            metavar="FILE",
            rich_help_panel=_JOB,
            help="Ray's runtime environment, YAML or JSON.",
        ),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env", metavar="KEY=VALUE", rich_help_panel=_JOB, help="Variable. Repeatable."
        ),
    ] = None,
    pip: Annotated[
        list[str] | None,
        typer.Option(
            "--pip",
            metavar="PACKAGE",
            rich_help_panel=_JOB,
            help="Package to install, or a file of requirements ending in .txt. Repeatable.",
        ),
    ] = None,
    paths_on_cluster: Annotated[
        bool,
        typer.Option(
            "--paths-on-cluster",
            rich_help_panel=_JOB,
            help="Files that the command names are the cluster's: none is read here or carried along.",
        ),
    ] = False,
    cpus: Annotated[
        float | None,
        typer.Option(
            "--entrypoint-cpus", min=0, rich_help_panel=_ENTRYPOINT, help="Cores for itself."
        ),
    ] = None,
    gpus: Annotated[
        float | None,
        typer.Option(
            "--entrypoint-gpus", min=0, rich_help_panel=_ENTRYPOINT, help="GPUs for itself."
        ),
    ] = None,
    memory: Annotated[
        int | None,
        typer.Option(
            "--entrypoint-memory",
            metavar="BYTES",
            min=0,
            rich_help_panel=_ENTRYPOINT,
            help="Memory for itself.",
        ),
    ] = None,
    resources: Annotated[
        list[str] | None,
        typer.Option(
            "--entrypoint-resources",
            metavar="NAME=AMOUNT",
            rich_help_panel=_ENTRYPOINT,
            help="Custom resource for itself. Repeatable.",
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            "--label",
            metavar="KEY=VALUE",
            rich_help_panel=_ENTRYPOINT,
            help="Label of the node. Repeatable.",
        ),
    ] = None,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait/--no-wait", help="Follow the job to its end, or print its id and return."
        ),
    ] = True,
    stop_on_interrupt: Annotated[
        bool,
        typer.Option(
            "--stop-on-interrupt", help="Ctrl-C and SIGTERM stop the job; else it goes on."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the request as JSON; send nothing.")
    ] = False,
) -> None:
    """Run a command as a job on a Ray cluster."""
    ctx.obj = {
        "cluster": {"address": address, "token_file": token_file},
        "job": {
            "submission_id": submission_id,
            "working_dir": working_dir,
            "runtime_env": runtime_env,
            "env": tuple(env or ()),
            "pip": tuple(pip or ()),
            "cpus": cpus,
            "gpus": gpus,
            "memory": memory,
            "resources": tuple(resources or ()),
            "labels": tuple(label or ()),
            "paths_on_cluster": paths_on_cluster,
        },
        "wait": wait,
        "stop_on_signal": stop_on_interrupt,
        "dry_run": dry_run,
    }


def submitting(verb: str) -> Callable[[typer.Context], None]:
    """The command that submits a verb with all that follows it."""

    def command(ctx: typer.Context) -> None:
        parse = parser(ctx, verb)
        parse(
            ctx.args
        )  # What the command refuses is refused before the serving packages are imported.
        jobs = job_commands()
        cluster = jobs.JobCluster(**ctx.obj["cluster"])
        job = jobs.JobOptions(**ctx.obj["job"])
        if ctx.obj["dry_run"]:
            print_json(jobs.plan(cluster, verb, ctx.args, job, parse))
            return
        code = jobs.submit(
            cluster,
            verb,
            ctx.args,
            job,
            parse,
            wait=ctx.obj["wait"],
            stop_on_signal=ctx.obj["stop_on_signal"],
        )
        raise typer.Exit(code)

    return command


for _verb, _help in VERBS.items():
    submit_app.command(
        _verb,
        help=_help,
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(submitting(_verb))


@submit_app.command("list")
def list_jobs(ctx: typer.Context, as_json: flags.AsJson = False) -> None:
    """Show every submitted job."""
    show(ctx, None, ended=True, as_json=as_json)


@submit_app.command("status")
def job_status(
    ctx: typer.Context,
    job: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Default: those that run or wait.")
    ] = None,
    as_json: flags.AsJson = False,
) -> None:
    """Show how a job is."""
    show(ctx, job, ended=False, as_json=as_json)


@submit_app.command("logs")
def job_logs(
    ctx: typer.Context,
    job: JobId,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="To its end; then its exit code.")
    ] = False,
) -> None:
    """Print what a job has written."""
    jobs = job_commands()
    code = jobs.job_logs(
        jobs.JobCluster(**ctx.obj["cluster"]),
        job,
        follow=follow,
        stop_on_signal=ctx.obj["stop_on_signal"],
    )
    raise typer.Exit(code)


@submit_app.command("stop")
def stop(ctx: typer.Context, job: JobId) -> None:
    """Stop a job, and wait for its end."""
    jobs = job_commands()
    jobs.stop(jobs.JobCluster(**ctx.obj["cluster"]), job, wait=ctx.obj["wait"])


def parser(ctx: typer.Context, verb: str) -> Callable[[Sequence[str]], Mapping[str, Any]]:
    """What reads the arguments of `outrider VERB` as that command does, and refuses what it would.

    It is the command of this machine; that of the cluster may be of another version.
    """
    root = ctx.find_root()
    command: Any = root.command

    def parse(arguments: Sequence[str]) -> Mapping[str, Any]:
        parent, inner, rest = root, command, [verb, *arguments]
        while getattr(inner, "commands", None) is not None:
            name, inner, rest = inner.resolve_command(parent, rest)
            parent = inner.make_context(name, list(rest), parent=parent)
            rest = [*parent._protected_args, *parent.args]
        return dict(parent.params)

    return parse


def job_commands() -> ModuleType:
    """The serving side, imported only when one of these commands runs."""
    return import_module("outrider.cluster.jobs.job_commands")


def show(ctx: typer.Context, job: str | None, *, ended: bool, as_json: bool) -> None:
    """Jobs as a table or as JSON."""
    jobs = job_commands()
    found = jobs.jobs(jobs.JobCluster(**ctx.obj["cluster"]), job, ended=ended)
    if as_json:
        print_json({"jobs": found})
        return
    table = table_of("job", "status", "exit", "began", "command", names=("job", "command"))
    for each in found:
        table.add_row(
            Text(each["id"]),
            each["status"].lower(),
            "" if each["exit_code"] is None else str(each["exit_code"]),
            _moment(each["started_ms"]),
            Text(each["command"]),
        )
    print_table(table)
    if job is not None:
        print_line(found[0]["message"] or "")


def _moment(ms: int | None) -> str:
    """When something was, in local time; empty if it has not been."""
    return "" if ms is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ms / 1e3))
