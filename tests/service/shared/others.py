"""The services beside the one that the tests of this folder share."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.service.processes import ServiceProcess


@dataclass(frozen=True)
class Killed:
    """What is left of a service that was killed."""

    ready: Path
    """Its ready file."""
    folder: Path
    """Its private folder."""


@dataclass(frozen=True)
class Heard:
    """A service, and the process that takes its output."""

    service: ServiceProcess
    reader: subprocess.Popen[bytes]
