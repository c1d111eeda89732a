"""One actor in a plain process, without Ray: `python -m bench.running.host`, started by `bench.running.assembly`.

Reads one JSON object from standard input (what to be), writes one with the address, then answers one line with one line until
the input ends. So it lives no longer than the process that started it. Works inside a network namespace alike.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from outrider.actors.draft.service.draft_server import DraftServer
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.engine.checkpoint.model_source import resolve_model
from outrider.actors.engine.engine_settings import DEMO_PREFIX
from outrider.actors.process.actor_runner import Server, settle_memory
from outrider.actors.process.logs import LogSettings, configure_logs
from outrider.actors.target.service.target_server import TargetServer
from outrider.actors.target.state.target_settings import TargetSettings
from outrider.client.connection import event_loop
from outrider.cluster.config.coordinator_settings import CoordinatorSettings
from outrider.cluster.config.host_port import join_host_port
from outrider.cluster.config.schema import parse_config
from outrider.cluster.gateway.coordinator import Coordinator
from outrider.cluster.placement.actor_specs import ActorSettings, actor_specs, for_start
from outrider.cluster.roster.roster import EMPTY


def main() -> None:
    """Serves until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # Whatever prints must not be taken for an answer.
    configure_logs(LogSettings(), actor="bench")
    event_loop.run(_serve(json.loads(sys.stdin.readline()), answers))


async def _serve(order: dict[str, Any], answers: Any) -> None:
    for alteration in order.get("alterations", ()):
        module, _, function = alteration.partition(":")
        getattr(import_module(module), function)()
    server = _server(settings_of(order))
    address = await server.start()
    try:
        if isinstance(server, Coordinator):
            await server.update_roster(EMPTY)
        settle_memory()
        _answer(answers, {"address": address, "pid": os.getpid()})
        while line := await asyncio.to_thread(sys.stdin.readline):
            _answer(answers, _look(server, line.strip()))
    finally:
        await server.stop(0.0)


def settings_of(order: dict[str, Any]) -> ActorSettings:
    """What an actor of a service is told, as the supervisor would tell it.

    Args:
        order: `config` is a whole service, `name` the actor, `host` where it listens, `port` the port if it matters and `incarnation`
            which start it is, the first if absent; for a coordinator `targets` and `drafters` are who is there.
    """
    config = parse_config(order["config"], source="the benchmark")
    spec = next(spec for spec in actor_specs(config) if spec.name == order["name"])
    incarnation = order.get("incarnation", 1)
    settings = for_start(spec, incarnation=incarnation, host=order["host"])
    if not isinstance(settings, CoordinatorSettings):
        return replace(settings, listen=join_host_port(order["host"], order.get("port", 0)))
    tokenizer = settings.tokenizer
    if tokenizer.startswith(DEMO_PREFIX):
        tokenizer = resolve_model(tokenizer).location
    return replace(
        settings,
        tokenizer=tokenizer,
        targets=tuple(order["targets"]),
        drafters=tuple((name, address) for name, address in order["drafters"]),
    )


def _server(settings: ActorSettings) -> Server:
    match settings:
        case TargetSettings():
            return TargetServer(settings)
        case DraftSettings():
            return DraftServer(settings)
        case CoordinatorSettings():
            return Coordinator(settings)


def _look(server: Server, what: str) -> dict[str, Any]:
    match what:
        case "drafted" if isinstance(server, DraftServer):
            return asdict(server.stats)
        case "costs":
            return costs()
        case "observations":
            from bench.figures.observations import take_observations

            return {"observations": take_observations()}
    return {"error": f"asked for {what!r}; ask for costs or observations, and drafters for drafted"}


def costs() -> dict[str, Any]:
    """What this process has used so far.

    Returns:
        `cpu_s`: seconds of processor time by thread: `loop` is the main one, `worker` the one that computes, `native` those
        that Python did not start (gRPC's), `other` the rest. `page_faults`: minor ones, each four KiB of memory newly taken
        from the system. `collections`: young-generation garbage collections, one for some thousand new containers.
        `blocks`: Python objects alive.
    """
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    by_thread = {"loop": 0.0, "worker": 0.0, "native": 0.0, "other": 0.0}
    for task in Path("/proc/self/task").iterdir():
        try:
            run_ns = int((task / "schedstat").read_text().split()[0])
        except (OSError, ValueError):
            continue  # The thread has ended meanwhile.
        by_thread[thread_kind(int(task.name), names)] += run_ns * 1e-9
    return {
        "cpu_s": by_thread,
        "page_faults": resource.getrusage(resource.RUSAGE_SELF).ru_minflt,
        "collections": gc.get_stats()[0]["collections"],
        "blocks": sys.getallocatedblocks(),
    }


def thread_kind(thread: int, names: dict[int | None, str]) -> str:
    """Which part of an actor a thread is.

    Args:
        thread: Its id.
        names: Names of those that Python started, by id.
    """
    name = names.get(thread)
    if name is None:
        return "native"
    if name == "MainThread":
        return "loop"
    return "worker" if name.endswith("-worker") else "other"


def _answer(answers: Any, answer: Sequence[Any] | dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
