"""What the commands of the command line do on the serving side. No argument parsing and no colours: that is the client's.

Every function raises `CommandFailed` with an exit code for whatever a user can fix.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from outrider.actors.engine.checkpoint.hub import unseen
from outrider.actors.train.trainer_options import TargetTrainerOptions
from outrider.actors.train.trainer_spec import TrainerSpec, TrainResult
from outrider.actors.train.training_errors import TrainError, TrainingFailed
from outrider.cluster.config.config_errors import ConfigError
from outrider.cluster.config.config_file import read_mapping
from outrider.cluster.config.drafter_folders import found_drafters
from outrider.cluster.config.schema import Config, load_config, parse_config, schema, with_flags
from outrider.cluster.process.command_failed import (
    FAILED,
    USAGE,
    CommandFailed,
    Report,
)
from outrider.cluster.process.ready_file_writer import remove_if_left, written
from outrider.cluster.process.signals import ending_by_signal
from outrider.cluster.start.local_checks import problems_here
from outrider.cluster.supervise.admin_file import Admin
from outrider.cluster.supervise.admin_file import written as written_admin_file

WRONG_PATH = (
    FileNotFoundError,
    FileExistsError,
    NotADirectoryError,
    IsADirectoryError,
    PermissionError,
)
"""Errors of a path that cannot be right, unlike those of a disk that is full."""

HEALTH_CHECK_S = 1.0
"""How often a running service is asked whether it can still serve."""

LOG_LEVELS = ("debug", "info", "warning", "error")
"""Values of `--log-level`."""


def _told(line: str) -> None:
    """Tells whoever started the command, if that can be told: a service neither ends nor cuts its requests off for it."""
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def serve(
    *,
    config: Path | None = None,
    targets: Sequence[str] = (),
    drafts: Sequence[str] = (),
    listen: str | None = None,
    emulate: str | None = None,
    ready_file: Path | None = None,
    admin_file: Path | None = None,
    log_level: str = "warning",
    report: Report = _told,
) -> None:
    """Serves until SIGINT or SIGTERM, then drains and ends everything that was started. Blocks.

    Args:
        config: The configuration file; flags are laid over it.
        targets: Target models, in place of the file's.
        drafts: Draft models, in place of the file's; `prompt_lookup` needs no model.
        listen: Public address, in place of the file's.
        emulate: Profiles of emulated devices, in place of the file's devices.
        ready_file: Is written once the service serves, and removed when it begins to end. One that a service has left
            that was killed is removed at once.
        admin_file: Is written while the service runs, for `outrider apply`; likewise.
        log_level: Least level of the events that actors log; one of `LOG_LEVELS`.
        report: Takes lines on how it goes.

    Raises:
        CommandFailed: Usage, or the service cannot start or go on.
    """
    if log_level not in LOG_LEVELS:
        raise CommandFailed(
            f"--log-level is {log_level!r}; allowed: {', '.join(LOG_LEVELS)}", USAGE
        )
    given = (("--ready-file", ready_file), ("--admin-file", admin_file))
    files = {flag: file for flag, file in given if file is not None}
    _check_files(files, config)
    settings = service_config(
        config, targets=targets, drafts=drafts, listen=listen, emulate=emulate
    )
    for flag, file in files.items():
        if (other := remove_if_left(file)) is not None:
            raise CommandFailed(
                f"{flag} {file} is that of the service at {other.address}, which runs (process {other.pid}); "
                "end that one, or take another file",
                USAGE,
            )
    # Only now: Ray takes a second to import, which a mistyped flag should not cost.
    from outrider.cluster.ray.own_node import StartCancelled
    from outrider.cluster.roster.actor_status import progress_line
    from outrider.cluster.start.launch import ServiceFailed, start_service

    with ending_by_signal() as ending:
        try:
            with ExitStack() as running:
                service = running.enter_context(
                    start_service(
                        settings,
                        log_level=log_level,
                        show_logs=True,
                        progress=lambda actor: report(progress_line(actor)),
                        is_cancelled=ending.is_set,
                    )
                )
                address, metrics = service.address, service.metrics_address
                service.note_files(files.values())
                if admin_file is not None:
                    supervisor, credentials = service.admin()
                    admin = Admin(address=supervisor, credentials=credentials)
                    running.enter_context(written_admin_file(admin_file, admin))
                # Last: who waits for it finds all else there.
                if ready_file is not None:
                    running.enter_context(
                        written(
                            ready_file,
                            address=address,
                            metrics=metrics,
                            actors=service.actors(),
                        )
                    )
                if metrics:
                    report(f"metrics at http://{metrics}/metrics")
                report(f"serving at {address}; Ctrl-C or SIGTERM ends it")
                while not ending.wait(HEALTH_CHECK_S):
                    failure = service.failure()
                    # A signal to all processes at once ends the actors, too, which is no failure then.
                    if failure is not None and not ending.is_set():
                        raise ServiceFailed(failure)
                report("ending: running requests may finish")
        except ServiceFailed as error:
            raise CommandFailed(str(error)) from error
        except StartCancelled:
            report("ended while starting")
    report("ended")


def _check_files(files: Mapping[str, Path], config: Path | None) -> None:
    """Makes sure that files can be written, by the flags that name them, so that no service starts in vain.

    Raises:
        CommandFailed: One cannot, or one would take the place of another or of the configuration.
    """
    named = {config.resolve(): "--config"} if config is not None else {}
    for flag, file in files.items():
        folder = file.absolute().parent
        if not folder.is_dir():
            raise CommandFailed(f"{flag} {file}: the folder {folder} does not exist", USAGE)
        if file.is_dir():
            raise CommandFailed(f"{flag} {file} is a folder; a file is written", USAGE)
        if (other := named.setdefault(file.resolve(), flag)) != flag:
            raise CommandFailed(f"{other} and {flag} both name {file}; take another file", USAGE)
        try:
            NamedTemporaryFile(prefix=f".{file.name}.", dir=folder).close()
        except OSError as error:
            raise CommandFailed(
                f"{flag} {file} cannot be written: {error.strerror}", USAGE
            ) from None


def service_config(
    path: Path | None = None,
    *,
    targets: Sequence[str] = (),
    drafts: Sequence[str] = (),
    listen: str | None = None,
    emulate: str | None = None,
) -> Config:
    """The configuration of a service: the file, if any, with flags laid over it.

    Raises:
        CommandFailed: Something in it is not allowed.
    """
    try:
        data = read_mapping(path) if path is not None else {}
        merged = with_flags(
            data, targets=tuple(targets), drafts=tuple(drafts), listen=listen, emulate=emulate
        )
        return parse_config(merged, source=str(path) if path is not None else "command line")
    except ConfigError as error:
        raise CommandFailed(str(error), USAGE) from error


def config_validate(path: Path) -> dict[str, Any]:
    """Checks a configuration file. Returns the whole configuration, defaults filled in.

    Raises:
        CommandFailed: Something in it is not allowed; names every problem.
    """
    try:
        config = load_config(path)
        if problems := problems_here(config):
            raise ConfigError(str(path), problems)
    except ConfigError as error:
        raise CommandFailed(str(error), USAGE) from error
    return config.model_dump(mode="json")


def config_found(path: Path) -> tuple[str, ...]:
    """What the checkpoints that a valid configuration file names as drafters were found to be, and which models could not be looked at,
    a sentence each."""
    config = load_config(path)
    found, _ = found_drafters(config.drafters, config.targets)
    targets = [one.model for one in config.targets]
    drafts = [one.model for one in config.drafters if one.model is not None]
    return (*found, *filter(None, map(unseen, dict.fromkeys(targets + drafts))))


def config_schema() -> dict[str, Any]:
    """The JSON schema of the configuration file."""
    return schema()


def trainers() -> Mapping[str, TrainerSpec]:
    """Every trainer, by name."""
    # Only here: they import torch, for which no service should wait.
    from outrider.actors.train.choice.trainer_registry import TRAINERS

    return TRAINERS


def train(name: str, given: Mapping[str, Any]) -> TrainResult:
    """Runs a trainer.

    Args:
        name: One of `trainers()`.
        given: Values of its options.

    Raises:
        CommandFailed: An option is not allowed, there is nothing to learn from, or a file cannot be read or written.
    """
    from outrider.cluster.ray.ray_training import train_on_ray

    spec = trainers()[name]
    try:
        options = spec.options(**given)
    except ValueError as error:
        raise CommandFailed(str(error), USAGE) from error
    try:
        if isinstance(options, TargetTrainerOptions) and options.workers > 1:
            return train_on_ray(name, options)
        return spec.run(options)
    except TrainError as error:
        raise CommandFailed(
            str(error), FAILED if isinstance(error, TrainingFailed) else USAGE
        ) from error
    except OSError as error:
        if error.filename is None:
            raise
        raise CommandFailed(
            f"{error.filename}: {error.strerror}",
            USAGE if isinstance(error, WRONG_PATH) else FAILED,
        ) from error
