"""`outrider batch`: a file of requests, each answered once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from outrider.client.batch.batch_job import Job
from outrider.client.batch.whole_batch import BatchReport, look_through, run_job
from outrider.client.cli.reports.batch_report import Bar, print_report
from outrider.client.cli.shared import flags
from outrider.client.cli.shared.exits import ExitCode
from outrider.client.cli.shared.service_options import ServiceAddress, connecting
from outrider.client.connection.errors import OutriderError


@connecting
def batch(
    service: ServiceAddress,
    source: Annotated[
        str,
        typer.Argument(
            metavar="IN.jsonl",
            help="Records in OpenAI's batch format: a path, or s3:// and others.",
        ),
    ],
    destination: Annotated[
        str, typer.Argument(metavar="OUT.jsonl", help="Answers. If it exists, the run goes on.")
    ],
    model: Annotated[
        str,
        typer.Option(
            "--model", "-m", help="Target model of records that name none. Default: the first."
        ),
    ] = "",
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            min=1,
            max=4096,
            help="Records at once. Default: as many as the service's targets hold.",
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Do nothing if a line cannot be run, in place of answering it so."
        ),
    ] = False,
    attempts: Annotated[
        int,
        typer.Option("--attempts", min=1, help="Tries of a record whose failure may pass."),
    ] = 3,
    patience_s: Annotated[
        float,
        typer.Option(
            "--patience",
            metavar="SECONDS",
            min=0,
            help="Without a single answer for so long, refused or cut off, the run ends.",
        ),
    ] = 600.0,
    baseline: Annotated[
        int,
        typer.Option(
            "--baseline",
            metavar="N",
            min=0,
            help="Decode N of the records plainly too: same text? how much faster?",
        ),
    ] = 0,
    shards: Annotated[
        int,
        typer.Option(
            "--shards",
            metavar="N",
            min=0,
            help="Send from N actors of the Ray cluster that the command runs in, by Ray Data.",
        ),
    ] = 0,
    summary: Annotated[
        Path | None,
        typer.Option("--summary", metavar="FILE.json", help="Write the summary here, too."),
    ] = None,
    timeout_s: flags.TimeoutS = flags.TIMEOUT_DEFAULT,
) -> None:
    """Answer a file of requests, each exactly once, however often the run is killed and started again.

    Ends with 0 if every record succeeded, 1 if some failed, 2 if the input is wrong or has changed, 3 if the service
    stayed away: the same command then goes on.
    """
    job = Job(
        source=source,
        destination=destination,
        summary=summary,
        address=service.address,
        tls=service.tls,
        token=service.token,
        timeout_s=timeout_s,
        model=model,
        strict=strict,
        concurrency=concurrency,
        attempts=attempts,
        patience_s=patience_s,
        baseline=baseline,
        shards=shards,
    )
    found = look_through(job)
    with Bar() as bar:
        report = run_job(job, found, watcher=bar)
    # First: whatever happens to the terminal, the file is there.
    if summary is not None:
        write_summary(summary, report)
    print_report(report)
    if not report.is_ok:
        raise typer.Exit(ExitCode.FAILURE)


def write_summary(file: Path, report: BatchReport) -> None:
    """The summary for programs.

    Raises:
        OutriderError: The file cannot be written.
    """
    try:
        file.write_text(json.dumps(report.as_dict(), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise OutriderError(f"{file} cannot be written: {error.strerror}") from None
