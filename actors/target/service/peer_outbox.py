"""Messages to one peer of a target. Bounded: holding the others back for one that does not read would be worse than cutting it off."""

from __future__ import annotations

from typing import TypeVar

import structlog

from outrider.actors.rpc.outbox import Outbox

T = TypeVar("T")

OUTGOING_MESSAGES = 4096
"""Messages queued for a peer that does not read; some seconds of the fastest decoding. Beyond it the peer is cut off."""

_log = structlog.get_logger(__name__)


class PeerOutbox(Outbox[T]):
    """Of one stream."""

    def __init__(self) -> None:
        """Makes an empty one."""
        super().__init__(OUTGOING_MESSAGES)

    def tell_overrun(self, target: str, **peer: str) -> None:
        """Says of a stream that ended why, if its peer was to blame."""
        if self.is_overrun:
            reason = f"it did not read {OUTGOING_MESSAGES} messages"
            _log.warning("stream cut off", target=target, reason=reason, **peer)
