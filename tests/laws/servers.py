"""A real target and real drafters in processes of their own, talking over loopback gRPC."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing as mp
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from unittest.mock import patch

import structlog
import torch
from tests.laws import sabotage

from outrider.actors.draft.frozen import frozen_levels
from outrider.actors.draft.service.draft_server import DraftServer
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.tables.tabular_engine import Table
from outrider.actors.frozen.sparse_rows import SparseRow
from outrider.actors.speculation.sampling.random_acts import Float64s
from outrider.actors.target.service.target_server import TargetServer
from outrider.actors.target.state.target_settings import TargetSettings

ROUNDS = int(os.environ.get("OUTRIDER_LAW_ROUNDS", "1000"))
"""That verified a tree, in each mode: 100,000 by `make laws`, fewer in every test run, which may take minutes only."""

MAX_CONTEXT = max(8192, 2 * ROUNDS)
"""Tokens of one text; far more than any test needs. Each costs memory in every session, which is cleared when one begins."""

START_S = 300.0
"""Bound on the start of a process: a few seconds on an idle machine."""

STOP_S = 30.0
"""Bound on its end."""

PATIENCE_S = 10.0
"""How long the target waits for a tree before it decodes plainly: on a busy machine, too, rounds are rounds."""

LISTED = 2
"""Tokens that draft rows list. The others share a weight, as most of a large vocabulary do."""

Settings = TargetSettings | DraftSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Where they listen."""

    target: str
    drafters: dict[str, str]
    """By name."""


@contextmanager
def running(
    folder: Path,
    target: Table,
    drafts: dict[str, Table],
    *,
    num_slots: int,
    wrong: str = "",
) -> Iterator[Addresses]:
    """Runs the target in one process and the drafters in another, until the end of the block.

    The target waits for each tree, so that every pass is a round; the drafters draft ahead as they always do.

    Args:
        folder: For the tables.
        target: The target's distributions.
        drafts: Those of each drafter, by its name.
        num_slots: Sessions that all of them take at a time.
        wrong: Name of a sabotage, see `sabotage.py`; empty: none.
    """

    def engine(table: Table, name: str) -> EngineSettings:
        table.save(folder / f"{name}.npz")
        return EngineSettings(
            model=f"tabular:{folder / name}.npz",
            num_slots=num_slots,
            max_context=MAX_CONTEXT,
            num_threads=1,
        )

    told = TargetSettings(
        name="target",
        incarnation=1,
        model_name="table",
        engine=engine(target, "target"),
        max_batch_nodes=64 * num_slots,
        max_patience_s=PATIENCE_S,
        lockstep=True,
    )
    drafters = [
        DraftSettings(name=name, incarnation=1, engine=engine(table, name))
        for name, table in drafts.items()
    ]
    with _process([told], wrong) as [address], _process(drafters, wrong) as addresses:
        yield Addresses(target=address, drafters=dict(zip(drafts, addresses, strict=True)))


@contextmanager
def _process(settings: Sequence[Settings], wrong: str) -> Iterator[list[str]]:
    context = _processes()
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(settings, wrong, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(START_S):
            raise TimeoutError(f"{settings[0].name} did not start within {START_S:g} s")
        yield ours.recv()
    finally:
        ours.close()
        process.join(STOP_S)
        if process.is_alive():
            process.kill()
            process.join()


@cache
def _processes() -> ForkServerContext:
    """Processes that begin with everything imported: once for all of them, by a process that never serves."""
    context = mp.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    # It looks for modules where any new interpreter would.
    with patch.dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)):
        ensure_running()
    return context


def _serve(settings: Sequence[Settings], wrong: str, pipe: Connection) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    torch.set_num_threads(1)
    _list_few_tokens()
    sabotage.apply(wrong)
    asyncio.run(_serve_until_closed(settings, pipe))


def _list_few_tokens() -> None:
    from_module = vars(frozen_levels)
    freeze = from_module["freeze"]

    def short(probs_V: Float64s, least: float, keep: int, *, rest_share: float) -> SparseRow:
        row: SparseRow = freeze(probs_V, least, min(keep, LISTED), rest_share=rest_share)
        return row

    from_module["freeze"] = short


async def _serve_until_closed(settings: Sequence[Settings], pipe: Connection) -> None:
    """Serves until the other end of the pipe is closed, be it by the death of the test."""
    servers = [
        TargetServer(told) if isinstance(told, TargetSettings) else DraftServer(told)
        for told in settings
    ]
    pipe.send([await server.start() for server in servers])
    while not await asyncio.to_thread(_is_closed, pipe):
        pass
    for server in servers:
        await server.stop(0.0)


def _is_closed(pipe: Connection) -> bool:
    """Whether the other end is closed; asks for a while."""
    if not pipe.poll(0.2):
        return False
    try:
        pipe.recv()
    except EOFError:
        return True
    return False
