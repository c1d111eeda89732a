"""`Apply`: from a configuration to what runs, one change at a time, told as it goes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import grpc

from outrider.cluster.changes import Change, NeedsRestart, check_changeable, plan
from outrider.cluster.config import Config, parse_config
from outrider.cluster.config_errors import ConfigError
from outrider.cluster.fleet import fleet
from outrider.cluster.keeper import LaunchFailed
from outrider.cluster.placement import PlacementError
from outrider.cluster.supervisor import Supervisor
from outrider.v1 import cluster_pb2


class Applier:
    """Changes what a supervisor keeps."""

    def __init__(self, config: Config, supervisor: Supervisor) -> None:
        """Takes what runs."""
        self._config = config
        self._supervisor = supervisor
        self._is_busy = False

    async def apply(
        self, request: cluster_pb2.ApplyRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[cluster_pb2.ApplyEvent]:
        """See `ClusterService.Apply`."""
        try:
            wanted = parse_config(json.loads(request.config_json), source="the configuration")
            check_changeable(self._config, wanted)
        except (ValueError, ConfigError) as error:
            code = (
                grpc.StatusCode.FAILED_PRECONDITION
                if isinstance(error, NeedsRestart)
                else grpc.StatusCode.INVALID_ARGUMENT
            )
            await context.abort(code, str(error))
            raise
        changes = plan(self._supervisor.configured, fleet(wanted))
        yield cluster_pb2.ApplyEvent(plan=cluster_pb2.ApplyPlan(changes=map(_to_proto, changes)))
        if request.is_dry_run:
            return
        if self._is_busy:
            await context.abort(
                grpc.StatusCode.ABORTED, "another change is being carried out; wait for its end"
            )
        self._is_busy = True
        news: asyncio.Queue[cluster_pb2.ApplyEvent | None] = asyncio.Queue()
        # A task of its own: what began goes on if the caller leaves.
        work = asyncio.create_task(self._carry_out(wanted, changes, request.drain_s, news))
        while (event := await news.get()) is not None:
            yield event
        failure = await work
        if failure:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, failure)

    async def _carry_out(
        self,
        wanted: Config,
        changes: tuple[Change, ...],
        drain_s: float,
        news: asyncio.Queue[cluster_pb2.ApplyEvent | None],
    ) -> str:
        """Returns why nothing was changed; empty if everything was."""

        def tell(text: str) -> None:
            if text:
                news.put_nowait(cluster_pb2.ApplyEvent(progress=text))

        try:
            ending = await self._supervisor.change(changes, drain_s=drain_s, tell=tell)
        except (PlacementError, LaunchFailed) as error:
            return f"{error}; what ran goes on as it was"
        else:
            self._config = wanted
            news.put_nowait(cluster_pb2.ApplyEvent(applied=cluster_pb2.Applied()))
            self._is_busy = False  # A further change may begin while the old drains.
            await ending
            return ""
        finally:
            self._is_busy = False
            news.put_nowait(None)


def _to_proto(change: Change) -> cluster_pb2.ApplyChange:
    return cluster_pb2.ApplyChange(
        kind=change.kind.value,
        name=change.name,
        role=cluster_pb2.Role.Value(f"ROLE_{change.role.name}"),
        reason=change.reason,
        cost=change.cost,
    )
