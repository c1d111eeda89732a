"""What is said of a job, beside the command that it runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from outrider.cluster.config.node_labels import KEY, SELECTOR
from outrider.cluster.process.command_failed import USAGE, CommandFailed

MOST = 2**63
"""Of anything that a job sets aside for itself: Ray counts in numbers of 64 bits."""

OWN = {
    "CPU": "--entrypoint-cpus",
    "GPU": "--entrypoint-gpus",
    "memory": "--entrypoint-memory",
    "object_store_memory": "another name",
}
"""Resources that Ray takes by no name, and what to write in their place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """The options of `outrider submit` that make the request. Text is as it was typed."""

    submission_id: str | None = None
    """None: one is made."""

    working_dir: str | None = None
    """A folder of this machine or the URI of an archive; the job runs in a copy of it."""

    runtime_env: Path | None = None
    """A file with a runtime environment of Ray, YAML or JSON."""

    env: Sequence[str] = ()
    """KEY=VALUE for the job's environment."""

    pip: Sequence[str] = ()
    """Packages, or files of requirements."""

    cpus: float | None = None
    """Cores set aside for the command itself, beside what its actors ask for."""

    gpus: float | None = None
    """As `cpus`."""

    memory: int | None = None
    """As `cpus`, in bytes."""

    resources: Sequence[str] = ()
    """NAME=AMOUNT, as `cpus`."""

    labels: Sequence[str] = ()
    """KEY=VALUE: labels of the node that the command runs on."""

    paths_on_cluster: bool = False
    """Files that the command names are the cluster's: nothing is read here or carried along."""


def check_own(options: JobOptions) -> None:
    """Refuses what no node can set aside, which Ray takes as it comes, or not at all.

    Raises:
        CommandFailed: A number is not finite, or none of 64 bits.
    """
    asked = {"cpus": options.cpus, "gpus": options.gpus, "memory": options.memory}
    for name, amount in asked.items():
        if amount is not None and not 0 <= amount < MOST:
            raise CommandFailed(
                f"--entrypoint-{name} {amount:g} is more than any node has, or no number", USAGE
            )


def assignments(entries: Sequence[str], *, option: str) -> dict[str, str]:
    """The mapping that entries KEY=VALUE make.

    Raises:
        CommandFailed: An entry is not of that form, or names a key twice.
    """
    made: dict[str, str] = {}
    for entry in entries:
        key, sign, value = entry.partition("=")
        if not sign or not key:
            raise CommandFailed(f"{option} {entry!r} is not KEY=VALUE", USAGE)
        if key in made:
            raise CommandFailed(f"{option} names {key!r} twice", USAGE)
        made[key] = value
    return made


def amounts(entries: Sequence[str], *, option: str) -> dict[str, float]:
    """The amounts that entries NAME=AMOUNT make.

    Raises:
        CommandFailed: An entry is not of that form, names a resource twice or one of Ray's own, or is no positive number.
    """
    made: dict[str, float] = {}
    for name, text in assignments(entries, option=option).items():
        if name in OWN:
            raise CommandFailed(
                f"{option} {name}={text}: {name} is a resource of Ray's own; write {OWN[name]}",
                USAGE,
            )
        try:
            amount = float(text)
        except ValueError:
            amount = 0.0
        if not 0 < amount < float("inf"):
            raise CommandFailed(f"{option} {name}={text}: {text!r} is no positive number", USAGE)
        made[name] = amount
    return made


def label_selector(entries: Sequence[str], *, option: str) -> dict[str, str]:
    """The labels that entries KEY=VALUE ask for.

    Raises:
        CommandFailed: An entry is not of that form, names a key twice, or is nothing that Ray can look for.
    """
    made = assignments(entries, option=option)
    for key, value in made.items():
        if re.match(KEY, key) is None or re.match(SELECTOR, value) is None:
            raise CommandFailed(
                f"{option} {key}={value} is no label that a node can have; Ray's form is KEY=h100, KEY=!spot or KEY=in(a,b)",
                USAGE,
            )
    return made
