"""The configuration of a service that runs as a job: read and checked here, and made to join the cluster of the job."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from outrider.cluster.config.config_errors import ConfigError
from outrider.cluster.config.config_file import read_mapping, written
from outrider.cluster.config.schema import Config, parse_config, with_flags
from outrider.cluster.jobs.arguments import CARRIED, Carried, Parse, existing_file, replaced
from outrider.cluster.jobs.ray_token import Mode
from outrider.cluster.process.command_failed import USAGE, CommandFailed

NAME = f"{CARRIED}/service.yaml"
"""Where the job finds its configuration."""

END_MARGIN_S = 40
"""Seconds that a service may take to end beyond `cluster.drain_s`, before Ray kills it."""


def with_configuration(
    arguments: Sequence[str], parse: Parse, *, folder: Path | None, mode: Mode
) -> tuple[list[str], Carried, int]:
    """The arguments of `serve` with the job's configuration, and that configuration.

    It is the file's, or an empty one, with `cluster.address` and `cluster.auth` filled in where it does not say them.

    Args:
        arguments: What follows `serve`.
        parse: Reads them.
        folder: Where a relative path is sought first.
        mode: Ray's authentication.

    Returns:
        Arguments, the file, and the seconds that the service may take to end.

    Raises:
        CommandFailed: The configuration is missing or not allowed, or would not join the cluster.
    """
    parameters = parse(arguments)
    path: Path | None = parameters.get("config")
    try:
        data = read_mapping(existing_file(path, folder)) if path is not None else {}
        completed = _joining(data, mode=mode, source=str(path))
        flags: dict[str, Any] = {
            "targets": tuple(parameters.get("target") or ()),
            "drafts": tuple(parameters.get("draft") or ()),
            "listen": parameters.get("listen"),
            "emulate": parameters.get("emulate"),
        }
        config = parse_config(with_flags(completed, **flags), source=str(path or "command line"))
    except ConfigError as error:
        raise CommandFailed(str(error), USAGE) from error
    file = Carried(NAME, content=written(completed))
    if path is None:
        return ["--config", NAME, *arguments], file, _end_s(config)
    return replaced(arguments, parse, "config", NAME), file, _end_s(config)


def _joining(data: Mapping[str, Any], *, mode: Mode, source: str) -> dict[str, Any]:
    """A configuration that joins the cluster that it runs in."""
    cluster = data.get("cluster") or {}
    if not isinstance(cluster, Mapping):
        return dict(data)  # Refused with everything else that is wrong.
    if cluster.get("address") == "local":
        raise CommandFailed(
            f"{source}: cluster.address is local: the job would start a Ray of its own inside the cluster; leave the key "
            "out, and the service joins the job's cluster",
            USAGE,
        )
    if cluster.get("auth", mode) != mode:
        raise CommandFailed(
            f"{source}: cluster.auth is {cluster['auth']}, but the job is submitted with RAY_AUTH_MODE={mode}; leave the "
            "key out, and the service takes the latter",
            USAGE,
        )
    return {**data, "cluster": {"address": "auto", "auth": mode, **cluster}}


def _end_s(config: Config) -> int:
    return math.ceil(config.cluster.drain_s) + END_MARGIN_S
