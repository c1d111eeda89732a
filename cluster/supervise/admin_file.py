"""The file that lets this user change a running service: where its supervisor is, the secret that calls to it carry, and the files of
its certificate."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from outrider.actors.rpc.credentials import Credentials
from outrider.actors.rpc.small_file import read_small
from outrider.actors.rpc.tls import TlsFiles
from outrider.cluster.process.ready_file_writer import held


class BadAdminFile(ValueError):
    """The file was not written by a service, or that is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admin:
    """How to reach a supervisor."""

    address: str
    credentials: Credentials


@contextmanager
def written(path: Path, admin: Admin) -> Iterator[None]:
    """Inside, the file is there; see `held`.

    Raises:
        OSError: It cannot be written.
    """
    tls = admin.credentials.tls
    content = {
        "address": admin.address,
        "secret": admin.credentials.secret,
        "tls": dataclasses.asdict(tls) if tls is not None else None,
    }
    with held(path, content):
        yield


def read(path: Path) -> Admin:
    """Reads an admin file.

    Raises:
        BadAdminFile: There is none, or it is something else.
    """
    try:
        content = json.loads(read_small(path))
        address, secret, tls = content["address"], content["secret"], content.get("tls")
        credentials = Credentials(str(secret), TlsFiles(**tls) if tls is not None else None)
    except OSError as error:
        raise BadAdminFile(
            f"cannot read {path}: {error.strerror}; `outrider serve --admin-file` writes it while the service runs"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BadAdminFile(f"{path} is not the admin file of a service") from None
    return Admin(address=str(address), credentials=credentials)
