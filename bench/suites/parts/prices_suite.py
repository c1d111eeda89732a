"""What each step of target, drafter and coordinator costs in processor time: `python -m bench prices` writes the simulation's prices.

The simulated service runs with the real cores; each of their calls is timed, making and reading of messages included, and a line
over sessions and rows is fitted to each step. Some are timed after a sleep, too, as processes sleep while devices work. Models are tables, whose
passes are left out. What gRPC takes for a message is timed apart (`message_price.py`).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from scipy.optimize import least_squares, nnls  # type: ignore[import-untyped]

from bench.figures.machine import describe
from bench.figures.message_price import PAUSE_S, TURNS, message_us
from outrider.actors.draft.state.draft_events import VerdictsReceived
from outrider.actors.draft.state.drafter import DraftPass
from outrider.actors.exchange import commits
from outrider.actors.target.state.passes import Pass
from outrider.actors.target.state.target_events import CandidatesReceived
from outrider.cluster.simulate.prices import FILE, Sleep
from outrider.cluster.simulate.scenario import Scenario
from outrider.cluster.simulate.simulate_command import quiet
from outrider.cluster.simulate.simulated_service import SimulatedMode, SimulatedService

LEVELS = (1, 2, 4, 8, 16, 32, 64)
"""Requests at once."""

ROUNDS = 120
"""Of each level."""

SLEEPS_S = (0.001, 0.005, 0.025)
"""Before each step, to see how much slower a process is that has slept: as long as draft passes and passes of a target take, so that no longer sleep has to be guessed."""

SLEEP_LEVEL = 4
"""Requests at once meanwhile."""

REQUEST_US = 500.0
"""Of a request at a coordinator, its messages and commits left out: checks, queue, end. By `bench costs`, not timed here."""

Sample = tuple[int, int, float]
"""Sessions, rows, seconds."""

Steps = dict[str, list[Sample]]


def run(*, is_quick: bool = False) -> Iterator[dict[str, Any]]:
    """One row with all prices; not quick, it becomes the simulation's.

    Args:
        is_quick: Few rounds, and nothing is written.
    """
    samples: Steps = {}
    rounds = 10 if is_quick else ROUNDS
    with quiet():
        for level in LEVELS[:2] if is_quick else LEVELS:
            for mode in (SimulatedMode.PLAIN, SimulatedMode.PIPELINED):
                _sample(level, rounds, mode, samples)
        took = [_took(rounds, sleep_s) for sleep_s in (0.0, *SLEEPS_S)]
    sleep = sleep_of([slept / took[0] for slept in took[1:]])
    message = message_us(10 if is_quick else TURNS)
    # It was measured after a sleep.
    message["wake_us"] = round(message["wake_us"] / Sleep(**sleep).factor(PAUSE_S), 1)
    machine = describe()
    prices = {
        "machine": f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}, commit {machine['commit']}",
        "sleep": sleep,
        "message": message,
        "target": {
            "take": _fitted(samples["target take"], samples["target take more"]),
            **{name: _fitted(samples[f"target {name}"]) for name in ("begin", "finish")},
        },
        "drafter": {
            name: _fitted(samples[f"drafter {name}"]) for name in ("take", "begin", "finish")
        },
        "coordinator": {
            "take": _fitted(samples["coordinator take"]),
            "request": {"fixed_us": REQUEST_US},
        },
    }
    if not is_quick:
        header = "# Written by `python -m bench prices`. Microseconds of processor time.\n"
        FILE.write_text(header + yaml.safe_dump(prices, sort_keys=False), encoding="utf-8")
    yield prices


def _took(rounds: int, sleep_s: float) -> float:
    """Seconds of all kinds of steps together, by the median of each, after a sleep."""
    samples: Steps = {}
    _sample(SLEEP_LEVEL, rounds, SimulatedMode.PIPELINED, samples, sleep_s)
    return sum(statistics.median(sample[2] for sample in found) for found in samples.values())


def sleep_of(factors: Sequence[float]) -> dict[str, float]:
    """The prices of sleep: the curve that is nearest to what was measured, by least squares.

    Args:
        factors: How many times longer steps take after each of `SLEEPS_S`.
    """
    slept_s, measured = np.array(SLEEPS_S), np.array(factors)

    def missed(guess: NDArray[np.float64]) -> NDArray[np.float64]:
        more, within_s = guess
        off: NDArray[np.float64] = 1.0 - more * np.expm1(-slept_s / within_s) - measured
        return off

    # A curve that still rises after the longest sleep would tell what nobody has measured.
    most_s = SLEEPS_S[-1] / 5.0
    more, within_s = least_squares(
        missed, (1.0, 0.001), bounds=((0.0, 1e-5), (99.0, most_s)), x_scale=(1.0, 0.001)
    ).x
    return {"times": round(1.0 + float(more), 3), "within_us": round(1e6 * float(within_s), 1)}


def _sample(
    level: int, rounds: int, mode: SimulatedMode, samples: Steps, sleep_s: float = 0.0
) -> None:
    """Runs a service and times the steps of its processes, each after a sleep if one is asked for."""
    service = SimulatedService(_scenario(level, rounds), mode)
    (target,) = service.targets.values()
    coordinator = service.coordinator
    _time(
        target,
        "on_drafter",
        samples,
        "target take",
        lambda _: _size(target._events[-1][1]),
        sleep_s,
    )
    _time(target.core, "take", samples, "target take more", _size, sleep_s)
    _time(target.core, "begin", samples, "target begin", _size, sleep_s)
    _time(target, "_finish", samples, "target finish", _size, sleep_s)
    _time(coordinator, "_committed", samples, "coordinator take", _size, sleep_s)
    for drafter in service.drafters.values():
        _time(drafter.core, "take", samples, "drafter take", _size, sleep_s)
        _time(drafter.core, "begin", samples, "drafter begin", _size, sleep_s)
        _time(drafter, "_conclude", samples, "drafter finish", _size, sleep_s)
    service.run()


def _scenario(level: int, rounds: int) -> Scenario:
    return Scenario.model_validate(
        {
            "name": "prices",
            "seconds": 0.01 * rounds,
            "prices": "free",
            "targets": [
                {"name": "t", "model": "law:agree70", "profile": "10ms+1us", "slots": level}
            ],
            "drafters": [
                {"name": "d", "model": "law:agree70/draft", "profile": "1ms+1us", "slots": level}
            ],
            "load": [{"clients": level, "tokens": 2000, "prompt": 16}],
        }
    )


def _time(
    owner: object,
    name: str,
    samples: Steps,
    step: str,
    size: Callable[[Any], tuple[int, int]],
    sleep_s: float = 0.0,
) -> None:
    """Times a method of this object from now on. Its first argument or, of `begin`, its result tells the size of the step."""
    method = getattr(owner, name)
    found = samples.setdefault(step, [])

    def timed(first: Any, *others: Any) -> Any:
        if sleep_s:
            time.sleep(sleep_s)
        began = time.thread_time_ns()
        result = method(first, *others)
        seconds = 1e-9 * (time.thread_time_ns() - began)
        of = size(result if name == "begin" else first)
        if of != NOTHING:
            found.append((*of, seconds))
        return result

    setattr(owner, name, timed)


NOTHING = (0, 0)


def _size(of: Any) -> tuple[int, int]:
    """Sessions and rows of a pass, a frame or its event; `NOTHING` of what is not priced."""
    match of:
        case CandidatesReceived():
            return len(of.candidates.handles_E), of.candidates.num_nodes
        case VerdictsReceived():
            return len(of.verdicts.handles_E), len(of.verdicts.tokens_T)
        case bytes():
            told = commits.decode(of)
            return len(told), sum(len(one.tokens) for one in told)
        case Pass() | DraftPass() if of.batch is not None:
            return len(of.batch), of.batch.num_rows
        case _:
            return NOTHING


def _fitted(*steps: list[Sample]) -> dict[str, float]:
    """Microseconds: fixed, a session, a row, none below 0; of several steps that follow one another, their sum."""
    total = np.zeros(3)
    for samples in steps:
        of = np.array(samples)
        # The median of equal sizes, so that a moment in which others ran does not count.
        sizes, inverse = np.unique(of[:, :2], axis=0, return_inverse=True)
        medians = np.array([np.median(of[inverse == i, 2]) for i in range(len(sizes))])
        weights = np.sqrt(np.bincount(inverse)) / medians
        terms = np.column_stack([np.ones(len(sizes)), sizes])
        fitted, _ = nnls(terms * weights[:, None], medians * weights)
        total += 1e6 * fitted
    names = ("fixed_us", "session_us", "row_us")
    return {name: round(float(value), 2) for name, value in zip(names, total, strict=True)}
