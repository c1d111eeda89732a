"""Who asks, as a number: so that what one client was answered is not used for another."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from outrider.cluster.gateway.bearer import token_of

NOBODY = 0
"""Number of those who show neither token nor certificate: they are one."""


NAMES = ("x509_common_name", "x509_subject_alternative_name", "x509_subject")
"""What gRPC tells of a client's certificate and stays the same when it is renewed."""


def tenant_of(
    metadata: Iterable[tuple[str, str | bytes]], auth_context: Mapping[str, Iterable[bytes]]
) -> int:
    """A number of 64 bits that is the same for the same client at every coordinator, and tells nothing of the token.

    Args:
        metadata: Of the call; its token counts first.
        auth_context: Of the call; names in the client's certificate, if it has one.
    """
    token = token_of(metadata)
    names = [name for key in NAMES for name in (key.encode(), *sorted(auth_context.get(key, ())))]
    if token is not None:
        shown = b"token\0" + token.encode()
    elif len(names) > len(NAMES):
        shown = b"certificate\0" + b"\0".join(names)
    else:
        return NOBODY
    digest = hashlib.sha256(b"outrider tenant\0" + shown).digest()
    return int.from_bytes(digest[:8], "little") or 1
