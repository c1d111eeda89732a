"""Whether the target's expectation of a candidate agrees with what becomes of it, for each drafter.

Each drafter serves alone, with the target noting every candidate (see `bench.figures.observations`). Two temperatures go into one
diagram, because one calibration serves both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from bench.figures.observations import calibration_error, diagram
from bench.running.asked import among, target_cost
from bench.running.assembly import Assembly
from bench.running.bench_prompts import Prompt, load
from bench.running.bench_service import TARGET, pair_config
from bench.running.targets import prepared
from bench.suites.service.single_suite import ROOM
from outrider.client import Client, SamplingOptions, SpeculationOptions

KEYS = ("drafter",)
"""What tells rows apart."""

DRAFTERS: dict[str, dict[str, Any]] = {
    "draft": {"model": "demo:draft"},
    "draft-small": {"model": "demo:draft-small"},
    "prompt-lookup": {"method": "prompt_lookup"},
}
"""Those that the package can start without anything else."""

CHOICES = {"part": target_cost, "parts": among(DRAFTERS)}
"""What its options may say."""


def run(
    *,
    target: str = "demo:target",
    part: str = "12",
    parts: Sequence[str] | None = None,
    temperatures: Sequence[float] = (0.0, 0.8),
    is_quick: bool = False,
) -> Iterator[dict[str, Any]]:
    """One row a drafter.

    Args:
        target: The target model.
        part: Which target cost, see `bench.running.targets`; a slow target lets every drafter be in time.
        parts: Which drafters.
        temperatures: Those that are measured.
        is_quick: Few prompts.
    """
    prompts = load(4 if is_quick else 60)
    max_tokens = 24 if is_quick else 48
    with prepared(target, "shipped" if is_quick else part) as model:
        for name in parts or tuple(DRAFTERS):
            config = pair_config(model.model, both=ROOM)
            config["drafters"] = [{"name": name, "num_threads": 1, **DRAFTERS[name]}]
            # Where candidates do not pay the target would rest; here every one is wanted.
            config["speculation"]["adaptive"] = False
            watched = {TARGET: ["bench.figures.observations:record_observations"]}
            with (
                Assembly(config, alterations=watched) as assembly,
                Client(assembly.address) as client,
            ):
                for temperature in temperatures:
                    _decode(client, prompts, temperature, max_tokens)
                observed = assembly.ask(assembly.target, "observations")["observations"]
            yield {"drafter": name, "part": model.part, "target": model.label, **_row(observed)}


def _decode(client: Client, prompts: Sequence[Prompt], temperature: float, max_tokens: int) -> None:
    for prompt in prompts:
        client.generate(
            **prompt.request(),
            sampling=SamplingOptions(
                temperature=temperature, max_tokens=max_tokens, seed=prompt.id, ignore_eos=True
            ),
            speculation=SpeculationOptions(enabled=True),
            timeout_s=300.0,
        )


def _row(observed: Sequence[tuple[float, float, bool]]) -> dict[str, Any]:
    stated = diagram([(stated, is_drawn) for stated, _, is_drawn in observed])
    expected = diagram([(expected, is_drawn) for _, expected, is_drawn in observed])
    return {
        "candidates": len(observed),
        "stated_error": calibration_error(stated),
        "expected_error": calibration_error(expected),
        "stated": [asdict(bin_) for bin_ in stated],
        "expected": [asdict(bin_) for bin_ in expected],
    }
