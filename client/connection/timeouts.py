"""Every call ends: the default bounds, and the check of given ones."""

from __future__ import annotations

from outrider.client.connection.wanted import number, wrong

CONNECT_TIMEOUT_S = 10.0
"""Default time for one attempt to connect, TCP and HTTP/2 together."""

REQUEST_TIMEOUT_S = 300.0
"""Default time for a whole generation: waiting while the service is full and resuming included."""

CALL_TIMEOUT_S = 30.0
"""Default time for the short calls: status, models, tokens."""

MAX_TIMEOUT_S = 7 * 24 * 3600.0
"""Greatest timeout, a week; beyond some years gRPC's own clock arithmetic fails."""


def check_timeout(name: str, seconds: float) -> float:
    """The timeout, if it is one.

    Raises:
        InvalidRequest: It is not a number above 0 and at most a week.
    """
    needed = f"a number of seconds above 0 and at most {MAX_TIMEOUT_S:g}"
    if not 0 < (found := number(name, seconds, needed)) <= MAX_TIMEOUT_S:
        raise wrong(name, seconds, needed)
    return found
