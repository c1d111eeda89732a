"""How often, and how long, the client tries again. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.client.connection.wanted import number, of_kind, wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Bounds of trying again when nobody answers, the service is full, or a stream breaks.

    The timeout of the request always holds too: where the next try would come after it, the last error is raised at once.
    """

    open_attempts: int = 3
    """Tries at each address while no service has answered yet; 1 never tries again."""

    patience_s: float = 600.0
    """Seconds without a new token after which a request that the service has answered is given up: one that is refused for
    load, one whose stream broke, and one that lost its place in the queue with the service. 0 neither waits for room nor resumes."""

    initial_backoff_s: float = 0.1
    """Seconds before the second try at the same addresses; it doubles from there."""

    max_backoff_s: float = 5.0
    """Greatest number of seconds between two tries, unless the service advises more."""

    def __post_init__(self) -> None:
        """Raises: InvalidRequest: A bound is no number, or out of range."""
        if of_kind("open_attempts", self.open_attempts, int) < 1:
            raise wrong("open_attempts", self.open_attempts, "at least 1")
        for name in ("patience_s", "initial_backoff_s", "max_backoff_s"):
            value, needed = getattr(self, name), "a finite number of seconds, 0 or more,"
            if not 0 <= number(name, value, needed) < float("inf"):
                raise wrong(name, value, needed)

    def delay_s(
        self, failures: int, *, num_addresses: int, jitter: float, advised_s: float | None = None
    ) -> float:
        """Seconds to wait before the next try, which goes to the next address.

        Args:
            failures: Failed tries in a row, at least 1.
            num_addresses: How many addresses the tries go round; the others are tried at once.
            jitter: In [0, 1); spreads clients that failed together over the upper half of the wait.
            advised_s: What the service advised, if it did.
        """
        rounds, rest = divmod(failures, num_addresses)
        if rest:  # advice holds for the one who gave it, not for the next address
            return 0.0
        own_s = self._backoff_s(rounds) * (0.5 + 0.5 * jitter)
        return own_s if advised_s is None else max(own_s, advised_s)

    def wait_s(self, failures: int, *, jitter: float, advised_s: float | None = None) -> float:
        """Seconds to wait before the next try at an address that answered: never less than it advised.

        Args:
            failures: Failed tries in a row, at least 1.
            jitter: In [0, 1); spreads clients that were told the same over half as long again.
            advised_s: What the service advised, if it did.
        """
        return max(self._backoff_s(failures), advised_s or 0.0) * (1.0 + 0.5 * jitter)

    def _backoff_s(self, rounds: int) -> float:
        """The longest wait after so many rounds of tries."""
        return min(self.max_backoff_s, self.initial_backoff_s * 2.0 ** min(rounds - 1, 30))


NO_RETRY = RetryPolicy(open_attempts=1, patience_s=0.0)
"""One try, no wait for room, no resume."""
