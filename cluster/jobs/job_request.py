"""A job as it is asked for: the command, its environment, where it runs, and what goes with it. Made here, sent elsewhere."""

from __future__ import annotations

import re
import secrets
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import outrider
from outrider.actors.rpc.small_file import read_small
from outrider.cluster.config.config_errors import ConfigError
from outrider.cluster.config.config_file import read_mapping
from outrider.cluster.jobs.arguments import Carried, Parse, check_outputs, is_uri, with_files
from outrider.cluster.jobs.job_options import (
    JobOptions,
    amounts,
    assignments,
    check_own,
    label_selector,
)
from outrider.cluster.jobs.package import Package, collect
from outrider.cluster.jobs.ray_token import Mode
from outrider.cluster.process.command_failed import USAGE, CommandFailed

END_S = 30
"""Seconds that a stopped command may take to end before Ray kills it; Ray's own choice is 3."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What `submit_job` of Ray's client takes. None is Ray's default."""

    entrypoint: str
    submission_id: str
    runtime_env: dict[str, Any]
    metadata: dict[str, str]
    entrypoint_num_cpus: float | None
    entrypoint_num_gpus: float | None
    entrypoint_memory: int | None
    entrypoint_resources: dict[str, float] | None
    entrypoint_label_selector: dict[str, str] | None

    def as_dict(self) -> dict[str, Any]:
        """The arguments, those that are None left out."""
        return {key: value for key, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True)
class Submission:
    """A request and the archive that goes before it."""

    request: Request
    package: Package | None
    """None: there is nothing to take, or the job's folder is an archive elsewhere."""


def build(
    verb: str, arguments: Sequence[str], options: JobOptions, *, mode: Mode, parse: Parse
) -> Submission:
    """The submission of `outrider VERB ARGUMENTS`.

    Args:
        verb: `serve`, `batch`, `train` or `bench`.
        arguments: What follows it.
        options: Everything else.
        mode: Ray's authentication.
        parse: Reads the arguments as the command will; raises for what it would refuse.

    Raises:
        CommandFailed: Something is not allowed, missing or too large.
    """
    submission_id = checked_id(options.submission_id or new_id(verb))
    check_own(options)
    check_outputs(verb, parse(arguments))
    runtime_env = _runtime_env(options)
    folder = _folder(runtime_env)
    package = collect(folder, excludes=runtime_env.pop("excludes", None) or ())
    end_s, carried = END_S, tuple[Carried, ...]()
    if options.paths_on_cluster or "working_dir" in runtime_env:
        _check_configured(verb, parse(arguments))
    elif verb == "serve":
        # Imports the configuration and every drafter's options, which other commands of jobs need not wait for.
        from outrider.cluster.jobs.service_job import with_configuration

        arguments, file, end_s = with_configuration(arguments, parse, folder=folder, mode=mode)
        carried = (file,)
    else:
        arguments, carried = with_files(verb, arguments, parse, folder=folder, names=package.names)
    variables = {"RAY_AUTH_MODE": mode, "RAY_JOB_STOP_WAIT_TIME_S": str(end_s)}
    runtime_env["env_vars"] = {**variables, **runtime_env.get("env_vars", {})}
    request = Request(
        # In place of the shell that Ray starts: whoever ends the job ends the command.
        entrypoint=f"exec {shlex.join(['outrider', verb, *arguments])}",
        submission_id=submission_id,
        runtime_env=runtime_env,
        metadata={"outrider": outrider.__version__, "outrider_command": verb},
        entrypoint_num_cpus=options.cpus,
        entrypoint_num_gpus=options.gpus,
        entrypoint_memory=options.memory,
        entrypoint_resources=amounts(options.resources, option="--entrypoint-resources") or None,
        entrypoint_label_selector=label_selector(options.labels, option="--label") or None,
    )
    return Submission(request, package.carrying(carried) if folder or carried else None)


def new_id(verb: str) -> str:
    """A name for a job that says what and when, in UTC, and that no other job has."""
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    return f"outrider-{verb}-{moment}-{secrets.token_hex(3)}"


def checked_id(name: str) -> str:
    """The name, which will be a file's name and part of an address.

    Raises:
        CommandFailed: It cannot be.
    """
    if _ID.fullmatch(name) is None:
        raise CommandFailed(
            f"{name!r} cannot name a job: letters, digits and . _ - only, at most 100", USAGE
        )
    return name


def _runtime_env(options: JobOptions) -> dict[str, Any]:
    """The runtime environment of the file, with the other options laid over it."""
    try:
        made = read_mapping(options.runtime_env) if options.runtime_env is not None else {}
    except ConfigError as error:
        raise CommandFailed(f"--runtime-env {error}", USAGE) from error
    variables = made.get("env_vars") or {}
    if not isinstance(variables, Mapping):
        raise CommandFailed(f"--runtime-env {options.runtime_env}: env_vars is no mapping", USAGE)
    added = assignments(options.env, option="--env")
    if variables or added:
        made["env_vars"] = {**variables, **added}
    for key, option, given in (
        ("working_dir", "--working-dir", options.working_dir),
        ("pip", "--pip", _packages(options.pip)),
    ):
        if not given:
            continue
        if key in made:
            raise CommandFailed(
                f"{option} and {key} of {options.runtime_env} are both given; leave one out", USAGE
            )
        made[key] = given
    try:
        from ray.runtime_env import RuntimeEnv

        # A folder is looked at below; Ray would take it for an archive that is missing.
        RuntimeEnv(**{key: value for key, value in made.items() if key != "working_dir"})
    except (TypeError, ValueError, RuntimeError) as error:
        raise CommandFailed(f"the runtime environment is not allowed: {error}", USAGE) from error
    return made


def _packages(entries: Sequence[str]) -> list[str]:
    """The packages: names as they are, and the lines of files of requirements."""
    packages: list[str] = []
    for entry in entries:
        if not entry.endswith(".txt"):
            packages.append(entry)
            continue
        try:
            lines = read_small(Path(entry)).decode().splitlines()
        except OSError as error:
            raise CommandFailed(f"--pip {entry} cannot be read: {error.strerror}", USAGE) from None
        except UnicodeDecodeError:
            raise CommandFailed(f"--pip {entry} cannot be read: is no UTF-8 text", USAGE) from None
        packages += [line.strip() for line in lines if line.strip() and line.strip()[0] != "#"]
    return packages


def _folder(runtime_env: dict[str, Any]) -> Path | None:
    """The folder of this machine that the job gets a copy of; taken out of the environment."""
    place = runtime_env.get("working_dir")
    if place is None or is_uri(str(place)):
        return None
    folder = Path(str(runtime_env.pop("working_dir")))
    if not folder.is_dir():
        raise CommandFailed(f"--working-dir {folder} is no folder", USAGE)
    return folder


def _check_configured(verb: str, parameters: Mapping[str, Any]) -> None:
    """A service whose configuration is not read here must have one: without, it would start a Ray of its own."""
    if verb == "serve" and parameters.get("config") is None:
        raise CommandFailed(
            "name the configuration, with `cluster: {address: auto}` in it (--config): none can be carried along with "
            "--paths-on-cluster or an archive as working directory",
            USAGE,
        )
