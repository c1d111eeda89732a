"""The tasks that keep links connected, one each. On one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import structlog

log = structlog.get_logger(__name__)


class LinkTasks:
    """Those of links that belong together, by name."""

    def __init__(self, on_defect: Callable[[str], None]) -> None:
        """
        Args:
            on_defect: Called with what happened when a link has ended, which only a defect can bring about.
        """
        self._on_defect = on_defect
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def run(self, name: str, work: Coroutine[None, None, None]) -> None:
        """Runs a link until it is removed."""
        task = asyncio.get_running_loop().create_task(work, name=f"link to {name}")
        task.add_done_callback(self._report)
        self._tasks[name] = task

    def remove(self, name: str) -> None:
        """Breaks a link."""
        self._tasks.pop(name).cancel()

    async def stop(self) -> None:
        """Breaks all of them."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _report(self, task: asyncio.Task[None]) -> None:
        """A link ends only by cancellation; anything else is a defect, and nobody would ever connect again."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a link ended", link=task.get_name(), exc_info=error)
            self._on_defect(f"the link {task.get_name()} ended: {error!r}")
