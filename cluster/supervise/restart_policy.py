"""When a dead actor is started again. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.cluster.config.config_service import Restarts


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartCount:
    """How often an actor was restarted in a row."""

    in_a_row: int = 0
    """Restarts since it last lived for `healthy_after_s`."""

    def after_death(self, *, served_s: float, policy: Restarts) -> RestartCount:
        """The count when an actor has died after serving for `served_s` seconds."""
        earlier = 0 if served_s >= policy.healthy_after_s else self.in_a_row
        return RestartCount(in_a_row=earlier + 1)

    def wait_s(self, policy: Restarts) -> float:
        """Seconds to wait before the restart that this count asks for."""
        # The exponent is bounded because 2.0 ** 1024 overflows; no back-off needs 2 ** 30.
        doublings = min(self.in_a_row - 1, 30)
        return min(policy.backoff_s * 2.0**doublings, policy.max_backoff_s)
