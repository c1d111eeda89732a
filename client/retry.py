"""How often, and how long, the client tries again. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Bounds of trying again when nobody answers or a stream breaks. The request's own timeout always holds too."""

    open_attempts: int = 3
    """Tries at each address before a request is admitted; 1 never tries again."""

    resume_attempts: int = 20
    """Tries in a row, without a new token between them, to take up a broken stream; 0 never resumes."""

    outage_s: float = 30.0
    """Seconds without a new token after which a broken stream is given up."""

    initial_backoff_s: float = 0.1
    """Seconds before the second try at the same addresses; it doubles from there."""

    max_backoff_s: float = 2.0
    """Greatest number of seconds between two tries."""

    def __post_init__(self) -> None:
        if self.open_attempts < 1:
            raise ValueError(f"open_attempts is {self.open_attempts}; at least 1 is needed")
        if self.resume_attempts < 0:
            raise ValueError(f"resume_attempts is {self.resume_attempts}; it cannot be below 0")
        for name in ("outage_s", "initial_backoff_s", "max_backoff_s"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} is {getattr(self, name)}; a finite number >= 0 is needed")

    def delay_s(self, failures: int, *, num_addresses: int, jitter: float) -> float:
        """Seconds to wait before the next try.

        Args:
            failures: Failed tries in a row, at least 1.
            num_addresses: How many addresses the tries go round; the others are tried at once.
            jitter: In [0, 1); spreads clients that failed together over the upper half of the wait.
        """
        rounds, rest = divmod(failures, num_addresses)
        if rest:
            return 0.0
        longest = min(self.max_backoff_s, self.initial_backoff_s * 2.0 ** min(rounds - 1, 30))
        return longest * (0.5 + 0.5 * jitter)


NO_RETRY = RetryPolicy(open_attempts=1, resume_attempts=0)
"""One try, no resume."""
