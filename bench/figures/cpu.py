"""Processor time of the service's processes, in the models and outside them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import grpc

from outrider.actors.rpc.credentials import OPEN, Credentials
from outrider.cluster.roster.roster import Role
from outrider.cluster.start.launch import RunningService
from outrider.v1 import draft_pb2, draft_pb2_grpc, target_pb2, target_pb2_grpc

TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
"""Unit of the kernel's counters, in seconds; differences over whole runs are long against it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """Seconds of processor time, by actor."""

    total_s: Mapping[str, float]
    """Whole process."""

    model_s: Mapping[str, float]
    """In passes of its model; 0 for the coordinator."""

    passes: Mapping[str, int]
    """Passes of its model."""

    @classmethod
    def of(cls, service: RunningService) -> Self:
        """The counters at this moment."""
        total: dict[str, float] = {}
        model: dict[str, float] = {}
        passes: dict[str, int] = {}
        _, credentials = service.admin()
        for actor in service.actors():
            total[actor.name] = process_seconds(Path(f"/proc/{actor.pid}/stat"))
            model[actor.name], passes[actor.name] = model_cpu(
                actor.role, actor.address, credentials
            )
        return cls(total_s=total, model_s=model, passes=passes)

    def outside_ms(self, before: Self, rounds: int) -> dict[str, float]:
        """Milliseconds outside the models for each round, by actor."""
        return {
            name: 1e3
            * ((total - before.total_s[name]) - (self.model_s[name] - before.model_s[name]))
            / rounds
            for name, total in self.total_s.items()
        }

    def pass_ms(self, before: Self) -> dict[str, float]:
        """Mean processor milliseconds of a pass, by actor that has a model."""
        return {
            name: 1e3 * (self.model_s[name] - before.model_s[name]) / count
            for name, passes in self.passes.items()
            if (count := passes - before.passes[name]) > 0
        }


def process_seconds(stat: Path) -> float:
    """Processor seconds of a process so far, its threads together."""
    fields = stat.read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def model_cpu(role: Role, address: str, credentials: Credentials = OPEN) -> tuple[float, int]:
    """Processor seconds of an actor's model so far, and its passes; nothing for a coordinator."""
    metadata = credentials.metadata
    with grpc.insecure_channel(address) as channel:
        if role is Role.TARGET:
            target = target_pb2_grpc.TargetServiceStub(channel).GetInfo(
                target_pb2.GetTargetInfoRequest(), timeout=10.0, metadata=metadata
            )
            return target.model_cpu_s, target.passes
        if role is Role.DRAFTER:
            drafter = draft_pb2_grpc.DraftServiceStub(channel).GetInfo(
                draft_pb2.GetDrafterInfoRequest(), timeout=10.0, metadata=metadata
            )
            return drafter.model_cpu_s, drafter.passes
    return 0.0, 0
