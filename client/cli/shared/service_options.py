"""Where a service is and how to reach it: the options that every command has that talks to one."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from outrider.client.async_client import AsyncClient
from outrider.client.blocking import Client
from outrider.client.cli.shared.flags import with_parameters
from outrider.client.connection.access import Tls
from outrider.client.connection.channel import DEFAULT_ADDRESS
from outrider.client.connection.timeouts import REQUEST_TIMEOUT_S

_PANEL = "Service"

TOKEN = "OUTRIDER_TOKEN"
"""Environment variable of the token itself. There is no option for it: others would see it in the list of processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAddress:
    """What the options say."""

    address: str = DEFAULT_ADDRESS
    tls: Tls | None = None
    token: str | Path | None = field(default=None, repr=False)

    def client(self, *, timeout_s: float = REQUEST_TIMEOUT_S) -> Client:
        """A client of it.

        Raises:
            InvalidRequest: The address cannot be read, or a file cannot be used.
        """
        return Client(self.address, timeout_s=timeout_s, tls=self.tls, token=self.token)

    def async_client(self, *, timeout_s: float = REQUEST_TIMEOUT_S) -> AsyncClient:
        """As `client`, for asyncio."""
        return AsyncClient(self.address, timeout_s=timeout_s, tls=self.tls, token=self.token)


def connecting(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options of a service, in place of its parameter `service`."""
    own = inspect.signature(command, eval_str=True)
    shared = inspect.signature(_service, eval_str=True).parameters

    @functools.wraps(command)
    def run(**given: Any) -> None:
        service = _service(**{name: given.pop(name) for name in shared})
        command(service=service, **given)

    others = [parameter for name, parameter in own.parameters.items() if name != "service"]
    # As keywords, they may stand in any order.
    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in (*shared.values(), *others)
    ]
    return with_parameters(run, parameters)


def _file(option: str, help_text: str) -> Any:
    name = f"OUTRIDER_{option.removeprefix('--').replace('-', '_').upper()}"
    return typer.Option(option, metavar="FILE", envvar=name, rich_help_panel=_PANEL, help=help_text)


def _service(
    address: Annotated[
        str,
        typer.Option(
            "--address",
            "-a",
            envvar="OUTRIDER_ADDRESS",
            metavar="HOST:PORT",
            help="Where the service listens; several addresses of one service are separated by commas.",
        ),
    ] = DEFAULT_ADDRESS,
    tls: Annotated[
        bool,
        typer.Option(
            "--tls",
            envvar="OUTRIDER_TLS",
            rich_help_panel=_PANEL,
            help="The port speaks TLS. Any of the options below says so, too.",
        ),
    ] = False,
    tls_ca: Annotated[
        Path | None,
        _file("--tls-ca", "Authorities that vouch for the service. Default: the public ones."),
    ] = None,
    tls_cert: Annotated[
        Path | None, _file("--tls-cert", "Own certificate, where the service asks for one.")
    ] = None,
    tls_key: Annotated[Path | None, _file("--tls-key", "Its key.")] = None,
    tls_name: Annotated[
        str | None,
        typer.Option(
            "--tls-name",
            envvar="OUTRIDER_TLS_NAME",
            metavar="NAME",
            rich_help_panel=_PANEL,
            help="Name in the service's certificate. Default: the host of the address.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        _file("--token-file", f"File with a token. Default: the token in {TOKEN}, if any."),
    ] = None,
) -> ServiceAddress:
    """A service from the options' values."""
    wanted = tls or any(value is not None for value in (tls_ca, tls_cert, tls_key, tls_name))
    return ServiceAddress(
        address=address,
        tls=Tls(ca=tls_ca, cert=tls_cert, key=tls_key, server_name=tls_name) if wanted else None,
        token=token_file or os.environ.get(TOKEN) or None,
    )
