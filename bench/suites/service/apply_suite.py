"""Changing what runs under load: is anything lost, does a text change, and how much is decoded meanwhile, next to plain decoding?

Endless clients decode the same prompts over and over, plainly and by speculation by turns of three seconds, all the time: both ways meet the
same changes and the same pace of the machine. Models are tables on emulated devices, as targets and drafters have devices of their own
where speculation is for. The two models are one table, with another end-of-text token in the second: another fingerprint, the same texts.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.running.clients import SLICE_S, Clients, Compared
from bench.suites.service.emulated_suite import TEMPERATURE, prompts_of
from outrider.actors.engine.profiles import DEVICE_PREFIX
from outrider.actors.engine.tables.trigram_laws import law_table
from outrider.client import AsyncClient

LAW = "agree85"
DEVICES = ("10ms+10us", "1ms+3us")
"""Of targets and drafters."""

NUM_CLIENTS = 4
NUM_PROMPTS = 24
MAX_TOKENS = 64
"""Of a request: one way has to end before the other has its turn."""

COMMAND_S = 300.0
"""Bound on one `outrider` command."""

COMMAND = (sys.executable, "-c", "from outrider.client.cli import main; main()")

DRAFTER = {"model": f"law:{LAW}/draft", "device": DEVICE_PREFIX + DEVICES[1]}


@dataclass(frozen=True, slots=True)
class Step:
    """One change."""

    name: str
    model: int
    """Which of the two."""

    drafters: tuple[Mapping[str, Any], ...]
    replicas: int = 1


SECOND = {**DRAFTER, "model": f"law:{LAW}/draft-2", "name": "second"}
PAIR, ONE = (DRAFTER, SECOND), (DRAFTER,)

STEPS = (
    Step("drafter added", 0, PAIR),
    Step("drafter removed", 0, ONE),
    Step("target scaled to 2", 0, ONE, replicas=2),
    Step("target scaled to 1", 0, ONE),
    Step("model exchanged", 1, ONE),
    Step("model exchanged back", 0, ONE),
)


def run(*, is_quick: bool = False) -> Iterator[dict[str, Any]]:
    """One row.

    Args:
        is_quick: Only a drafter and the model change.
    """
    with tempfile.TemporaryDirectory(prefix="outrider-apply-") as name:
        folder = Path(name)
        law = law_table(LAW)
        models = [folder / "first.npz", folder / "second.npz"]
        for end, model in enumerate(models):
            replace(law, eos_token_ids=(end,)).save(model)
        steps = (STEPS[0], STEPS[4]) if is_quick else STEPS
        yield asyncio.run(_changed(folder, models, steps))


def configuration(step: Step, models: Sequence[Path]) -> dict[str, Any]:
    """What the service is to be in a step."""
    target = {"name": "target", "model": f"tabular:{models[step.model]}", "replicas": step.replicas}
    # A quarter of a processor each: there must be room for both sets while one replaces the other.
    own = {"num_slots": 8, "max_context": 512, "num_cpus": 0.25}
    return {
        "service": {"listen": "127.0.0.1:0"},
        "targets": [{**target, **own, "device": DEVICE_PREFIX + DEVICES[0]}],
        "drafters": [{**one, "num_cpus": 0.25} for one in step.drafters],
    }


async def _changed(folder: Path, models: Sequence[Path], steps: Sequence[Step]) -> dict[str, Any]:
    """The whole run: changes, and stretches without any between them."""
    file, admin = folder / "service.json", folder / "admin"
    file.write_text(json.dumps(configuration(Step("start", 0, ONE), models)))
    windows: list[dict[str, Any]] = []
    async with _serving(folder, file, admin) as address, AsyncClient(address) as client:
        requests = [{"tokens": tokens} for tokens in prompts_of(NUM_PROMPTS)]
        clients = Clients(client, requests, temperature=TEMPERATURE, max_tokens=MAX_TOKENS)
        await clients.learn()
        async with clients.running(NUM_CLIENTS):
            windows.append(_row("before", await clients.compare(_nothing())))
            for step in steps:
                file.write_text(json.dumps(configuration(step, models)))
                applying = _command("apply", str(file), "--admin-file", str(admin))
                windows.append(_row(step.name, await clients.compare(applying)))
                windows.append(_row(f"after: {step.name}", await clients.compare(_nothing())))
    return {
        "law": LAW,
        "profile": ":".join(DEVICES),
        "clients": NUM_CLIENTS,
        "max_tokens": MAX_TOKENS,
        "slice_s": SLICE_S,
        "requests": clients.num_done,
        "failed": clients.failures,
        "different": clients.num_different,
        "models": sorted(clients.fingerprints),
        "windows": windows,
    }


async def _nothing() -> None:
    """No change."""


def _row(name: str, compared: Compared) -> dict[str, Any]:
    """A stretch of the run."""
    return {
        "name": name,
        "took_s": round(compared.took_s, 1),
        "slices": len(compared.plain) + len(compared.speculative),
        "plain": [round(rate, 1) for rate in compared.plain],
        "speculative": [round(rate, 1) for rate in compared.speculative],
        "ratio": compared.ratio,
    }


@asynccontextmanager
async def _serving(folder: Path, file: Path, admin: Path) -> AsyncIterator[str]:
    """A service as users start it; its address."""
    ready = folder / "ready"
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(*COMMAND, "serve", "--config", str(file)),
            *("--ready-file", str(ready), "--admin-file", str(admin)),
            stdout=log,
            stderr=log,
        )
    try:
        async with asyncio.timeout(COMMAND_S):
            while not ready.exists():
                if process.returncode is not None:
                    raise RuntimeError((folder / "log").read_text(errors="replace"))
                await asyncio.sleep(0.1)
        yield str(json.loads(ready.read_text())["address"])
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), COMMAND_S)
            except TimeoutError:
                process.kill()


async def _command(*arguments: str) -> None:
    """Runs `outrider` to its end.

    Raises:
        RuntimeError: It failed; says what it wrote.
    """
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await asyncio.wait_for(process.communicate(), COMMAND_S)
    if process.returncode != 0:
        raise RuntimeError(f"`outrider {' '.join(arguments)}` failed: {said.decode()}")
