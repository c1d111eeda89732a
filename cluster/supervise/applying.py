"""`Apply`: from a configuration to what runs, one change at a time, told as it goes; and from another number of replicas."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import grpc
import structlog

from outrider.cluster.config.config_errors import ConfigError
from outrider.cluster.config.schema import Config, parse_config
from outrider.cluster.placement.actor_specs import actor_specs, kept, scales, starting
from outrider.cluster.placement.placement import PlacementError
from outrider.cluster.roster.roster import ReplicaScale
from outrider.cluster.supervise.actor_supervisor import LaunchFailed
from outrider.cluster.supervise.changes import (
    Change,
    NeedsRestart,
    changed_in_place,
    check_changeable,
    plan,
)
from outrider.cluster.supervise.replica_policy import ReplicaDecision
from outrider.cluster.supervise.supervisor import Supervisor
from outrider.v1 import cluster_pb2

log = structlog.get_logger(__name__)


class Applier:
    """Changes what a supervisor keeps."""

    def __init__(self, config: Config, supervisor: Supervisor) -> None:
        """Takes what runs."""
        self.config = config
        """What was asked for last."""
        self.is_busy = False
        """Whether a change is being carried out."""
        self._supervisor = supervisor
        self._scaling: asyncio.Task[Any] | None = None
        self._replicas = starting(config)
        self._scales: dict[str, ReplicaScale] = {}
        self._note(scales(config, self._replicas))

    @property
    def replicas(self) -> dict[str, int]:
        """How many there are of each target and drafter, by its name in the configuration."""
        return dict(self._replicas)

    @property
    def scales(self) -> tuple[ReplicaScale, ...]:
        """The same with bounds and reasons."""
        return tuple(self._scales.values())

    def tell(self, entry: str, wanted: int, reason: str) -> None:
        """Tells everyone how many replicas the load asks for, and why, or why there are not as many."""
        self._note(
            {**self._scales, entry: replace(self._scales[entry], wanted=wanted, reason=reason)}
        )

    async def scale(self, decisions: Mapping[str, ReplicaDecision], *, drain_s: float) -> None:
        """Changes the number of replicas. A call of `apply` cancels it, or goes before if it came first.

        Args:
            decisions: How many there should be, by the names of entries.
            drain_s: Seconds that requests may go on at actors that end.

        Raises:
            PlacementError, LaunchFailed: More cannot start. What ran goes on as it was.
        """
        if self.is_busy:
            return
        wanted = {**self._replicas, **{entry: one.count for entry, one in decisions.items()}}
        for entry, one in decisions.items():
            self.tell(entry, one.wanted, one.reason)
            log.info("scaling", entry=entry, replicas=one.count, reason=one.reason)
        changes = plan(self._supervisor.configured, actor_specs(self.config, wanted))
        self.is_busy, self._scaling = True, asyncio.current_task()
        try:
            await self._supervisor.change(changes, drain_s=drain_s, tell=lambda text: None)
            self._replicas = wanted
        except asyncio.CancelledError:
            for entry in decisions:
                self.tell(entry, self._replicas[entry], "")
            raise
        finally:
            self.is_busy, self._scaling = False, None

    async def apply(
        self, request: cluster_pb2.ApplyRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[cluster_pb2.ApplyEvent]:
        """See `ClusterService.Apply`."""
        try:
            wanted = parse_config(json.loads(request.config_json), source="the configuration")
            check_changeable(self.config, wanted)
        except (ValueError, ConfigError) as error:
            code = (
                grpc.StatusCode.FAILED_PRECONDITION
                if isinstance(error, NeedsRestart)
                else grpc.StatusCode.INVALID_ARGUMENT
            )
            await context.abort(code, str(error))
            raise
        if self._scaling is not None and not request.is_dry_run:
            self._scaling.cancel()
            await asyncio.wait([self._scaling])
        replicas = kept(self.config, wanted, self._replicas)
        changes = plan(self._supervisor.configured, actor_specs(wanted, replicas))
        planned = [
            cluster_pb2.ApplyEvent(plan=cluster_pb2.ApplyPlan(changes=map(_to_proto, changes))),
            *(
                cluster_pb2.ApplyEvent(progress=f"{key}: needs no new actor")
                for key in changed_in_place(self.config, wanted)
            ),
        ]
        if request.is_dry_run:
            for told in planned:
                yield told
            return
        if self.is_busy:
            await context.abort(
                grpc.StatusCode.ABORTED, "another change is being carried out; wait for its end"
            )
        # Before anything is told: while the caller reads the plan nothing else may overtake it.
        self.is_busy = True
        news: asyncio.Queue[cluster_pb2.ApplyEvent | None] = asyncio.Queue()
        # A task of its own: what began goes on if the caller leaves.
        work = asyncio.create_task(self._carry_out(wanted, changes, request.drain_s, news))
        for told in planned:
            yield told
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
            try:
                ending = await self._supervisor.change(changes, drain_s=drain_s, tell=tell)
                self.config, self._replicas = wanted, kept(self.config, wanted, self._replicas)
                self._note(scales(wanted, self._replicas))
            finally:
                # A further change may begin while the old drains: from here on it is no longer ours to say that there is none.
                self.is_busy = False
            news.put_nowait(cluster_pb2.ApplyEvent(applied=cluster_pb2.Applied()))
            await ending
        except (PlacementError, LaunchFailed) as error:
            return f"{error}; what ran goes on as it was"
        else:
            return ""
        finally:
            news.put_nowait(None)

    def _note(self, found: dict[str, ReplicaScale]) -> None:
        self._scales = found
        self._supervisor.servicer.registry.note_scales(self.scales)


def _to_proto(change: Change) -> cluster_pb2.ApplyChange:
    return cluster_pb2.ApplyChange(
        kind=change.kind.value,
        name=change.name,
        role=cluster_pb2.Role.Value(f"ROLE_{change.role.name}"),
        reason=change.reason,
        cost=change.cost,
    )
