"""A batch over the nodes of a Ray cluster: Ray Data deals the input out to a pool of client actors.

Each actor puts its answers beside the output as parts, as `parts.py` says, and whoever started them makes one file of the
parts in the end. A task that Ray runs again, because its actor died, leaves some answers in two parts; they are one in
the output. The only file of the client that knows Ray; imported when it is asked for.
"""

from __future__ import annotations

import math
import os
import pickle
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import ray
import ray.data
from ray.data.datasource import FileBasedDatasource

from outrider.client.batch.batch_job import Job
from outrider.client.batch.batch_run import BatchRun, RunSettings, Written
from outrider.client.batch.parts import PartsOutput
from outrider.client.batch.places import BOM, is_remote, local_path, remote
from outrider.client.batch.record import BatchRecord, parse
from outrider.client.connection import event_loop
from outrider.client.connection.errors import InvalidRequest, OutriderError

BLOCKS_OF_AN_ACTOR = 8
"""Blocks that the input is split into, for each actor: a slow actor gets fewer of them."""

CPUS_OF_AN_ACTOR = 0.25
"""An actor mostly waits for the service."""


def connect() -> None:
    """Joins the Ray that RAY_ADDRESS names, as it does in a Ray job. Starts none, and looks for none: it could be anybody's.

    Raises:
        InvalidRequest: RAY_ADDRESS is not set.
        OutriderError: Ray refuses.
    """
    if ray.is_initialized():
        return
    address = os.environ.get("RAY_ADDRESS")
    if not address:
        raise InvalidRequest(
            "--shards needs a Ray cluster: submit the command as a Ray job, or set RAY_ADDRESS"
        )
    try:
        ray.init(address=address, log_to_driver=False)
    except (OSError, RuntimeError, ValueError) as error:
        raise OutriderError(f"the Ray cluster at {address} cannot be joined: {error}") from None


def run_shards(
    job: Job,
    wanted: Collection[str],
    settings: RunSettings,
    fingerprints: Mapping[str, str],
    on_written: Callable[[Written], None],
) -> None:
    """Answers the wanted records. Returns when all of their answers are in parts.

    Args:
        job: What to do; every node reaches its source, its destination and its address.
        wanted: The ids of the records to run.
        settings: Bounds of the run; `concurrency` is that of all shards together.
        fingerprints: Of the models, by name.
        on_written: Is told of each answer.

    Raises:
        OutriderError: A shard cannot go on; what was written stays.
    """
    ray.data.DataContext.get_current().enable_progress_bars = (
        False  # whoever watches has one already
    )
    filesystem, path = remote(job.source)
    job = _anywhere(job)
    each = replace(settings, concurrency=math.ceil(settings.concurrency / job.shards))
    lines = ray.data.read_datasource(
        Lines(path, filesystem=filesystem),
        override_num_blocks=job.shards * BLOCKS_OF_AN_ACTOR,
    )
    answered = lines.map_batches(
        Shard,
        fn_constructor_args=(job, ray.put(frozenset(wanted)), each, dict(fingerprints)),
        batch_size=None,
        compute=ray.data.ActorPoolStrategy(size=job.shards),
        num_cpus=CPUS_OF_AN_ACTOR,
    )
    for row in answered.iter_rows():
        if row["error"]:
            raise pickle.loads(row["error"])
        on_written(Written(is_ok=bool(row["is_ok"]), tokens=int(row["tokens"])))


def _anywhere(job: Job) -> Job:
    """The same job for Ray's workers, which are in another folder."""
    destination, tls, token = job.destination, job.tls, job.token
    if not is_remote(destination):
        destination = str(local_path(destination).absolute())
    if tls is not None:
        ca, cert, key = (file and Path(file).absolute() for file in (tls.ca, tls.cert, tls.key))
        tls = replace(tls, ca=ca, cert=cert, key=key)
    if isinstance(token, Path):
        token = token.absolute()
    return replace(job, destination=destination, tls=tls, token=token)


class Lines(FileBasedDatasource):
    """Files of lines, as bytes. Ray's own reader of texts wants UTF-8 in all of a file, and ends lines at other characters too."""

    def _read_stream(self, f: Any, path: str) -> Iterator[pa.Table]:
        """See `FileBasedDatasource`."""
        yield pa.table({"line": pa.array(f.readall().split(b"\n"), pa.large_binary())})


class Shard:
    """Answers batches of lines, in an actor of Ray Data."""

    def __init__(
        self, job: Job, wanted: Any, settings: RunSettings, fingerprints: Mapping[str, str]
    ) -> None:
        """Args: as of `run_shards`; `wanted` is a reference, which Ray keeps once a node."""
        self._job = job
        self._wanted: frozenset[str] = ray.get(wanted)
        self._settings = settings
        self._fingerprints = fingerprints

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Answers the wanted records of some lines.

        Returns:
            A row for each answer: `is_ok`, `tokens`, and no `error`. If the shard cannot go on, one more row with the
            error, pickled.
        """
        entries = [
            parse(0, line.removeprefix(BOM).strip(), model=self._job.model)
            for line in batch["line"]
        ]
        records = [e for e in entries if isinstance(e, BatchRecord) and e.id in self._wanted]
        written: list[Written] = []
        error = b""
        try:
            event_loop.run(self._answer(records, written))
        except OutriderError as problem:
            error = pickle.dumps(problem)
        is_ok = [one.is_ok for one in written]
        tokens = [one.tokens for one in written]
        errors = [b""] * len(written)
        if error:
            is_ok, tokens, errors = [*is_ok, False], [*tokens, 0], [*errors, error]
        return {
            "is_ok": np.array(is_ok, dtype=bool),
            "tokens": np.array(tokens, dtype=np.int64),
            "error": np.array(errors, dtype=object),
        }

    async def _answer(self, records: list[BatchRecord], written: list[Written]) -> None:
        """Sends the records; their answers are in parts when this returns, also by an error."""
        output = PartsOutput(self._job.destination)
        try:
            async with self._job.client() as client:
                run = BatchRun(
                    client,
                    output,
                    settings=self._settings,
                    fingerprints=self._fingerprints,
                    on_written=written.append,
                )
                await run.run(iter(records))
        finally:
            output.close()
