"""Disturbs a service while requests run: jitter, connections cut, drafters and the target killed and started again.

Nothing counts that found nobody at work: before each blow the drafter that is hit has sent candidates, and the blow counts once it, or the
process that took its place, has sent more.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from types import TracebackType
from typing import Self

from bench.network.relay import Relay
from bench.running.assembly import Assembly

DELAYS_S = (0.0, 0.001, 0.003, 0.01, 0.04)
"""One way, drawn each `TURN_S`."""

TURN_S = 0.05
"""Seconds between two looks at a drafter."""

QUIET_S = (0.5, 2.0)
"""Seconds at work before a blow."""

AT_WORK_S = 60.0
"""Bound on the wait for a drafter to send candidates."""

LEAST_RESTARTS = 3
"""Of drafters that a disturbed row must have seen, of each one at least."""


class Disturbance:
    """A thread that disturbs until this is left. A context manager."""

    def __init__(self, assembly: Assembly, relay: Relay, *, seed: int) -> None:
        """
        Args:
            assembly: The service, whose drafters reach the target through the relay.
            relay: That one.
            seed: Of times and delays.
        """
        self.cuts = 0
        """Times that all connections to the target were cut."""
        self.target_restarts = 0
        self.resyncs = 0
        """Times that a drafter asked for tokens that it lacked; without those of processes between the last look and their end."""
        self.may_begin = threading.Event()
        """Set but while a drafter is started again: what runs goes on without it, and what began then would hardly meet it."""
        self.may_begin.set()
        self.failure: Exception | None = None
        """What ended the disturbance early."""
        self._restarts = dict.fromkeys(assembly.drafters, 0)
        self._assembly, self._relay = assembly, relay
        self._random = random.Random(seed)
        self._is_over = threading.Event()
        self._last: dict[str, dict[str, int]] = {}
        self._thread = threading.Thread(target=self._run, name="disturbance", daemon=True)

    @property
    def restarts(self) -> int:
        """Starts of drafters that took the place of one that was killed at work, and came to work."""
        return sum(self._restarts.values())

    @property
    def is_enough(self) -> bool:
        """Whether what happened proves something."""
        return (
            self.restarts >= LEAST_RESTARTS
            and min(self._restarts.values()) > 0
            and min(self.cuts, self.resyncs, self.target_restarts) > 0
        )

    def __enter__(self) -> Self:
        for name in (*self._assembly.drafters, self._assembly.target):
            # Processes that take places are there already, so that requests meet them while they run.
            self._assembly.prepare_restart(name)
        for name in self._assembly.drafters:
            self._last[name] = self._assembly.ask(name, "drafted")
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()
        self._relay.delay_s = 0.0

    def _run(self) -> None:
        try:
            for blow in itertools.cycle((self._cut, self._restart, self._restart_target)):
                for name in self._assembly.drafters:
                    if not self._is_at_work(name):
                        return
                    self._wait(self._random.uniform(*QUIET_S))
                    if not self._is_at_work(name):
                        return
                    blow(name)
        except Exception as error:  # noqa: BLE001 - who waits for enough tells it
            self.failure = error
        finally:
            self.may_begin.set()

    def _cut(self, name: str) -> None:
        self._relay.cut()
        self.cuts += self._is_at_work(name)

    def _restart(self, name: str) -> None:
        self.may_begin.clear()
        self._assembly.restart(name)
        self.may_begin.set()
        self._last[name] = dict.fromkeys(self._last[name], 0)
        self._restarts[name] += self._is_at_work(name)
        self._assembly.prepare_restart(name)

    def _restart_target(self, name: str) -> None:
        """Once: it takes long, and then nothing is drafted."""
        if not self.target_restarts:
            self._assembly.restart(self._assembly.target)
            self.target_restarts += self._is_at_work(name)

    def _is_at_work(self, name: str) -> bool:
        """Waits until the drafter has sent candidates since the last look; False: requests are over before.

        Raises:
            TimeoutError: No candidates came in time.
        """
        deadline = time.monotonic() + AT_WORK_S
        while not self._is_over.is_set():
            before, now = self._last[name], self._look(name)
            if now["messages"] > before["messages"]:
                return True
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{name} sent no candidate in {AT_WORK_S:g} s, though requests run"
                )
            self._wait(TURN_S)
        return False

    def _look(self, name: str) -> dict[str, int]:
        now: dict[str, int] = self._assembly.ask(name, "drafted")
        self.resyncs += now["resyncs"] - self._last[name]["resyncs"]
        self._last[name] = now
        return now

    def _wait(self, seconds: float) -> None:
        """Lets time pass in which the delay changes."""
        end = time.monotonic() + seconds
        while (left_s := end - time.monotonic()) > 0.0 and not self._is_over.is_set():
            self._relay.delay_s = self._random.choice(DELAYS_S)
            self._is_over.wait(min(left_s, TURN_S))
