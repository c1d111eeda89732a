"""A cluster's job server, asked over HTTP with bounds on every wait.

Ray's own client waits for ever, and prefers an address in the environment to the one that it is given.
"""

from __future__ import annotations

import http.client
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from urllib.parse import urlsplit

import ray
from ray.dashboard.modules.dashboard_sdk import SubmissionClient
from ray.dashboard.utils import ray_address_to_api_server_url
from ray.exceptions import AuthenticationError, RayError
from ray.job_submission import JobSubmissionClient

from outrider.cluster.jobs.ray_token import RayToken
from outrider.cluster.process.command_failed import FAILED, UNAVAILABLE, USAGE, CommandFailed
from outrider.cluster.ray.ray_errors import first_line

CONNECT_S = 10.0
"""For a connection, and for each piece of an upload."""

ANSWER_S = 60.0
"""For an answer. The server answers from memory, but shares its machine with the cluster's head."""

VARIABLES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
"""Name the address when no option does, in this order, as for Ray."""


class JobServer(JobSubmissionClient):  # type: ignore[misc, unused-ignore]
    """Ray's client of a job server whose address is known. Its calls are made inside `asking`."""

    def __init__(self, url: str, credentials: RayToken) -> None:
        """Asks the server for its version; raises as `asking` expects."""
        self._client_ray_version = ray.__version__
        self._credentials = credentials
        SubmissionClient.__init__(self, address=url, headers=credentials.headers)
        self._check_connection_and_version(min_version="2.8")

    def asking(self) -> AbstractContextManager[None]:
        """As the function `asking`."""
        return asking(self.get_address(), self._credentials)

    def _do_request(self, method: str, endpoint: str, **kwargs: Any) -> Any:
        kwargs.setdefault("timeout", (CONNECT_S, ANSWER_S))
        return super()._do_request(method, endpoint, **kwargs)


def named_address(option: str | None, environment: Mapping[str, str]) -> str | None:
    """The address that the option or else the environment names, as it is written."""
    candidates = (option, *(environment.get(name) for name in VARIABLES))
    return next((address for address in candidates if address), None)


def connect(address: str | None, credentials: RayToken) -> JobServer:
    """A job server that answers and takes the token.

    Args:
        address: `http://HOST:8265`; HOST:PORT or `auto`, of which Ray knows where the job server is.
        credentials: Of the cluster.

    Raises:
        CommandFailed: No address, nobody there, no job server, or a wrong token.
    """
    if address is None:
        raise CommandFailed(
            f"which cluster? --address http://HOST:8265, or {' or '.join(VARIABLES)}", USAGE
        )
    for name in ("ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk"):
        logging.getLogger(name).setLevel(logging.ERROR)
    url = _url(address.rstrip("/"))
    with asking(url, credentials):
        return JobServer(url, credentials)


@contextmanager
def asking(url: str, credentials: RayToken) -> Iterator[None]:
    """Says what a failed request means.

    Raises:
        CommandFailed: In place of Ray's and the network's errors.
    """
    try:
        yield
    except AuthenticationError:
        raise CommandFailed(
            f"the job server at {url} refuses the token"
            if credentials.token is not None
            else f"the job server at {url} asks for a token: --token-file FILE, RAY_AUTH_TOKEN_PATH or RAY_AUTH_TOKEN",
            FAILED,
        ) from None
    # Errors of `requests` are OSErrors; those of a page that is no JSON, too.
    except (KeyError, OSError) as error:
        raise CommandFailed(
            f"no answer of a job server at {url}: {first_line(error)}", UNAVAILABLE
        ) from error
    except RuntimeError as error:
        raise CommandFailed(
            f"the job server at {url} could not do it: {first_line(error)}", FAILED
        ) from error


def _url(address: str) -> str:
    """The job server's address. Asks Ray for it if what is given answers, but not as a web server."""
    scheme, sign, _ = address.partition("://")
    if sign and scheme not in ("http", "https"):
        raise CommandFailed(
            f"{address} is no job server's address; that is http://HOST:8265", USAGE
        )
    if sign:
        _host_and_port(address, address)
        return address
    if address != "auto" and _speaks_http(address):
        return f"http://{address}"
    try:
        return str(ray_address_to_api_server_url(address))
    except (OSError, RayError, RuntimeError, ValueError) as error:
        raise CommandFailed(
            f"Ray knows of no job server for {address!r}: {first_line(error)}", UNAVAILABLE
        ) from error


def _speaks_http(address: str) -> bool:
    """Whether a web server listens at HOST:PORT.

    Raises:
        CommandFailed: Nobody does.
    """
    host, port = _host_and_port(f"//{address}", address)
    if port is None:
        raise _no_address(address)
    connection = http.client.HTTPConnection(host, port, timeout=CONNECT_S)
    try:
        connection.connect()
    except OSError as error:
        raise CommandFailed(
            f"nobody answers at {address}: {os.strerror(error.errno) if error.errno else error}",
            UNAVAILABLE,
        ) from error
    try:
        connection.request("GET", "/api/version")
        connection.getresponse()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True


def _host_and_port(url: str, address: str) -> tuple[str, int | None]:
    """What a URL names; no port, if it names none.

    Args:
        url: It.
        address: What was given, for the reason.

    Raises:
        CommandFailed: It names no host, or what can be no port.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _no_address(address) from None
    if not host:
        raise _no_address(address)
    return host, port


def _no_address(address: str) -> CommandFailed:
    return CommandFailed(f"{address!r} is no address: http://HOST:8265, HOST:PORT or auto", USAGE)
