"""How every internal gRPC server and channel is made: limits, keepalive, health, reflection, addresses."""

from __future__ import annotations

import os
import socket

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from outrider.actors.rpc.call_metadata import CarryingChannel
from outrider.actors.rpc.credentials import OPEN, Credentials, Guard
from outrider.actors.rpc.tls import TlsFiles, channel_credentials, server_credentials

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""Largest internal message: a prompt of a million tokens fits, a runaway does not."""

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # A dead peer is noticed within half a minute, also while nothing is being decoded.
    ("grpc.keepalive_time_ms", 15_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # Servers put up with probes of idle streams this often; by default only every five minutes, and the third that comes
    # earlier ends the connection with "too many pings".
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    # Reconnecting starts fast: a restarted actor should be found within a second.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)
"""Options of internal channels and servers alike."""


def internal_server(credentials: Credentials = OPEN) -> grpc.aio.Server:
    """A server with the internal limits, not bound yet. Calls without the credentials are refused."""
    return grpc.aio.server(
        interceptors=[Guard(credentials)], options=[*CHANNEL_OPTIONS, ("grpc.so_reuseport", 0)]
    )


def internal_channel(
    address: str, credentials: Credentials = OPEN, *, is_shared: bool = True
) -> grpc.aio.Channel:
    """A channel with the internal limits, whose calls carry the credentials. With TLS it keeps the certificate that it began
    with: who reconnects after a failure does so by a new channel.

    Args:
        address: HOST:PORT.
        credentials: What calls carry.
        is_shared: False: a connection of its own, so that large messages stand in nobody's way.

    Raises:
        UnfitTls: The files of the certificate cannot be used, and never could be in this process.
    """
    tls = credentials.tls
    # gRPC shares connections among channels to one address. With TLS it would keep those of an older certificate, too.
    options: tuple[tuple[str, int | str], ...] = (
        *CHANNEL_OPTIONS,
        # Actors are no sites beyond a firewall, for which `http_proxy` is set; who means them sets `grpc_proxy`.
        ("grpc.enable_http_proxy", int("grpc_proxy" in os.environ)),
    )
    if tls is not None or not is_shared:
        options = (*options, ("grpc.use_local_subchannel_pool", 1))
    if tls is None:
        channel = grpc.aio.insecure_channel(address, options=options)
    else:
        # Addresses of actors are not known when their certificates are made: all have one name.
        options = (*options, ("grpc.ssl_target_name_override", tls.name))
        channel = grpc.aio.secure_channel(address, channel_credentials(tls), options=options)
    return CarryingChannel(channel, credentials.metadata)


async def serve_health(server: grpc.aio.Server, *services: str) -> health.aio.HealthServicer:
    """Adds the stock health servicer, SERVING for the given services and overall, and reflection."""
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    for service in ("", *services):
        await servicer.set(service, health_pb2.HealthCheckResponse.SERVING)
    reflection.enable_server_reflection(
        (*services, health.SERVICE_NAME, reflection.SERVICE_NAME), server
    )
    return servicer


def bind(server: grpc.aio.Server, listen: str, tls: TlsFiles | None = None) -> int:
    """Binds a server.

    Args:
        server: The server.
        listen: HOST:PORT.
        tls: Its certificate; None: plain connections.

    Returns:
        The port.

    Raises:
        OSError: The address cannot be bound.
        UnfitTls: The files of the certificate cannot be used.
    """
    try:
        if tls is None:
            port = server.add_insecure_port(listen)
        else:
            port = server.add_secure_port(listen, server_credentials(tls))
    except RuntimeError as error:
        raise OSError(f"cannot listen on {listen}: is the port taken? ({error})") from error
    if port == 0:
        raise OSError(f"cannot listen on {listen}: is the port taken?")
    return port


def check_free(listen: str) -> None:
    """Makes sure that nobody listens at an address. For servers that may later share it with others of the same service: they
    bind in a way that would let strangers of the same user share it, too.

    Raises:
        OSError: Somebody does, or it is no address of this machine.
    """
    host, _, port = listen.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]") or None, int(port), type=socket.SOCK_STREAM)
        for family, kind, protocol, _, address in found[:1]:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
    except OSError as error:
        raise OSError(f"cannot listen on {listen}: is the port taken? ({error})") from error


def advertised(listen: str, host: str | None, port: int) -> str:
    """The address that others reach a server at."""
    shown = host or listen.rpartition(":")[0]
    return (
        f"[{shown}]:{port}" if ":" in shown.strip("[]") and "[" not in shown else f"{shown}:{port}"
    )
