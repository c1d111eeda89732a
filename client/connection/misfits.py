"""Why a connection came to nothing, where gRPC does not say: TLS on one side only, or a certificate that one side does not take.

Asks the port once more, by the standard library's own TLS, which tells how far the two sides come.
"""

from __future__ import annotations

import socket
import ssl

from outrider.client.connection.access import Tls
from outrider.client.connection.errors import OutriderError, Unauthorized, Unavailable

PROBE_S = 1.0
"""Bound on each step of the question."""

_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
_NOT_TLS = "WRONG_VERSION_NUMBER"
_CUT = ("Socket closed", "Connection reset", "recvmsg", "Broken pipe", "handshake")
"""In what gRPC says of a connection that was made and then ended."""


def explained(error: OutriderError, address: str, tls: Tls | None) -> OutriderError:
    """The error, or one that tells the cause, if it is one of these. Takes a few seconds at most.

    Args:
        error: What a call to the address ended with.
        address: A gRPC target, as `parse_addresses` gives it.
        tls: As the client connects.
    """
    why = _cause(error.message, address, tls) if isinstance(error, Unavailable) else ""
    if not why:
        return error
    return Unauthorized(
        f"{address}: {why}",
        code=error.code,
        request_id=error.request_id,
        received_tokens=error.received_tokens,
    )


def _cause(told: str, address: str, tls: Tls | None) -> str:
    if tls is not None and _UNTRUSTED in told:
        reason = told.rpartition(f"{_UNTRUSTED}:")[2].partition(": OK")[0].strip()
        return (
            f"the service's certificate is not trusted ({reason or 'gRPC does not say why'}); tls.ca (--tls-ca) names the "
            "authorities that are"
        )
    if tls is not None and "Hostname Verification" in told:
        return "the service's certificate is for another name; tls.server_name (--tls-name) says for which"
    if tls is not None and _NOT_TLS in told:
        return "the port does not speak TLS, and this client does; leave out tls (--tls, --tls-ca)"
    if address.startswith("unix:") or not any(sign in told for sign in _CUT):
        return ""
    speaks, is_cut = _asked(address, tls)
    if tls is None and speaks:
        return "the port speaks TLS, and this client does not; give tls=Tls(...) (--tls, --tls-ca)"
    if tls is not None and is_cut and tls.cert is None:
        return "the service asks for a client's certificate; give tls.cert and tls.key (--tls-cert, --tls-key)"
    if tls is not None and is_cut:
        return (
            "the service does not take this client's certificate: it has expired, or an authority vouches for it that is not "
            "the service's; the service's log says which"
        )
    return ""


def _asked(address: str, tls: Tls | None) -> tuple[bool, bool]:
    """Whether the port speaks TLS, and whether it hangs up once it has seen the client's certificate, or none."""
    host, _, port = address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    speaks = False
    try:
        if tls is not None and tls.cert is not None and tls.key is not None:
            context.load_cert_chain(tls.cert, tls.key, password=lambda: "")
        with (
            socket.create_connection((host.strip("[]"), int(port)), timeout=PROBE_S) as plain,
            context.wrap_socket(plain, server_hostname=tls.server_name if tls else None) as wrapped,
        ):
            speaks = True
            # With TLS 1.3 the other side looks at the client's certificate after our part of the handshake. A service that takes
            # it speaks first; gRPC's servers hang up without a word, others send an alert.
            return True, not wrapped.recv(1)
    except ssl.SSLError as error:
        is_alert = "ALERT" in (error.reason or "")
        return speaks or is_alert, is_alert
    except OSError:
        return speaks, False
