"""`python -m bench [SUITE ...] [--quick]`: runs suites, everything by default; `report` writes the tables and plots.

`python -m bench gpu [--help]` times passes on a GPU, and `gpu-served` the whole service on one. `python -m bench scale [--help]` starts fifty actors and scales them down. `python -m bench families [NAME ...]` tries small models of all
architectures of transformers and writes docs/models.md.
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any

from bench.report import rows as results
from bench.report import written_report

SUITES = {
    "equality": "bench.suites.drafters.equality_suite",
    "precision": "bench.suites.parts.precision_suite",
    "single": "bench.suites.service.single_suite",
    "delay": "bench.suites.service.delay_suite",
    "netns": "bench.suites.service.netns_suite",
    "load": "bench.suites.service.load_suite",
    "costs": "bench.suites.parts.costs_suite",
    "messages": "bench.suites.parts.messages_suite",
    "feedback": "bench.suites.parts.feedback_suite",
    "fanout": "bench.suites.service.fanout_suite",
    "reliability": "bench.suites.service.reliability_suite",
    "drafters": "bench.suites.drafters.drafters_suite",
    "sorted": "bench.suites.drafters.sorted_suite",
    "blocks": "bench.suites.parts.blocks_suite",
    "verifiers": "bench.verifiers",
    "startup": "bench.suites.service.startup_suite",
    "batch": "bench.suites.service.batch_suite",
    "apply": "bench.suites.service.apply_suite",
    "emulated": "bench.suites.service.emulated_suite",
    "emulated_verifiers": "bench.suites.service.emulated_verifiers_suite",
    "grid": "bench.suites.virtual.grid_suite",
    "prices": "bench.suites.parts.prices_suite",
    "predicted": "bench.suites.virtual.predicted_suite",
    "predicted_models": "bench.suites.virtual.real_models_suite",
    "plan": "bench.suites.virtual.plan_suite",
    "random_scenarios": "bench.suites.virtual.random_scenarios_suite",
    "selectors": "bench.suites.virtual.selectors_suite",
}
"""The module of each: it has `run`, which yields rows; `KEYS`, if its rows are replaced one by one; `CHOICES`, a check of each word of the
options that it names; and takes the options that its parameters name."""

MOST_TEMPERATURE = 100.0
"""Of a request."""


def main() -> None:
    """Runs what is asked for."""
    if sys.argv[1:2] == ["gpu"]:
        # Needs a GPU, so no part of everything, and has options of its own.
        import_module("bench.gpu.gpu_suite").main(sys.argv[2:])
        return
    if sys.argv[1:2] == ["gpu-served"]:
        # As that.
        import_module("bench.gpu.served_suite").main(sys.argv[2:])
        return
    if sys.argv[1:2] == ["scale"]:
        # Needs memory for fifty actors, so no part of everything.
        import_module("bench.suites.service.scale_suite").main(sys.argv[2:])
        return
    if sys.argv[1:2] == ["families"]:
        # Judges, and times nothing, so no part of everything either.
        import_module("bench.families.families_suite").main(sys.argv[2:])
        return
    # Ended from outside we leave as after an error: services stopped, namespaces removed.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("suites", nargs="*", default=[*SUITES, "report"], metavar="SUITE")
    parser.add_argument("--target", help="folder, hub id or demo:NAME")
    parser.add_argument("--draft", help="folder, hub id or demo:NAME")
    parser.add_argument("--quick", action="store_true", help="just enough to see that it works")
    parser.add_argument("--runs", type=_whole(1), help="runs of each timing")
    parser.add_argument(
        "--only",
        metavar="PART,...",
        help="parts of a suite: costs of a target, delays, numbers of requests",
    )
    parser.add_argument(
        "--temperatures", metavar="T,...", type=_each(_temperature), help="which temperatures"
    )
    parser.add_argument("--part", help="one target cost, for suites with other parts")
    parser.add_argument(
        "--levels", metavar="N,...", type=_each(_whole(1)), help="requests at once: emulated"
    )
    parser.add_argument(
        "--profiles",
        metavar="PROFILE[:DRAFTER'S],...",
        help="of emulated devices, for instance h100-8b,10ms+10us:1ms+3us",
    )
    parser.add_argument(
        "--laws", metavar="LAW,...", help="of emulated models, for instance agree70"
    )
    parser.add_argument(
        "--drafting",
        metavar="WAY,...",
        help="always, adaptive: emulated; led, served: drafters",
    )
    parser.add_argument("--lengths", metavar="KIND,...", help="of answers, equal or mixed: load")
    parser.add_argument(
        "--drafters", metavar="N", type=_whole(1), help="processes that draft: emulated"
    )
    parser.add_argument(
        "--seed", metavar="N", type=_whole(0), help="of the first: random_scenarios"
    )
    parser.add_argument("--count", metavar="N", type=_whole(1), help="how many: random_scenarios")
    args = parser.parse_args()
    known = (*SUITES, "report")
    unknown = [suite for suite in args.suites if suite not in known]
    if unknown:
        parser.error(f"unknown suite {unknown[0]!r}; choose among {', '.join(known)}")
    options = {
        "target": args.target,
        "draft": args.draft,
        "runs": args.runs,
        "part": args.part,
        "parts": _listed(args.only),
        "levels": args.levels,
        "profiles": _listed(args.profiles),
        "laws": _listed(args.laws),
        "drafting": _listed(args.drafting),
        "lengths": _listed(args.lengths),
        "drafters": args.drafters,
        "seed": args.seed,
        "count": args.count,
        "temperatures": args.temperatures,
        "is_quick": args.quick or None,
    }
    given = {name: value for name, value in options.items() if value is not None}
    # Of all suites before the first one runs, which may take an hour.
    for suite in args.suites:
        if suite != "report" and (problem := problem_of(suite, given)):
            parser.error(problem)
    for suite in args.suites:
        if suite == "report":
            written_report.show() if args.quick else written_report.write()
        else:
            run_suite(suite, given)


def _listed(value: str | None) -> list[str] | None:
    return value.split(",") if value else None


def _each(of: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    """What stands between commas."""
    return lambda text: [of(word) for word in text.split(",")]


def _whole(least: int) -> Callable[[str], int]:
    def read(word: str) -> int:
        try:
            found = int(word)
        except ValueError:
            found = least - 1
        if found < least:
            raise argparse.ArgumentTypeError(
                f"must be a whole number, at least {least}, but is {word!r}"
            )
        return found

    return read


def _temperature(word: str) -> float:
    try:
        found = float(word)
    except ValueError:
        found = math.nan
    if not 0.0 <= found <= MOST_TEMPERATURE:
        raise argparse.ArgumentTypeError(
            f"must be a number from 0 to {MOST_TEMPERATURE:g}, but is {word!r}"
        )
    return found


def problem_of(suite: str, options: dict[str, Any]) -> str:
    """What a suite cannot take of the options, in a sentence; empty if nothing."""
    for name, check in getattr(import_module(SUITES[suite]), "CHOICES", {}).items():
        given = options.get(name, ())
        for word in [given] if isinstance(given, str) else given:
            try:
                check(word)
            except ValueError as error:
                return f"{suite}: --{'only' if name == 'parts' else name}: {error}"
    return ""


def run_suite(suite: str, options: dict[str, Any]) -> None:
    """Runs one suite and writes each row as soon as it is there, so that what was measured stays."""
    module = import_module(SUITES[suite])
    keys: Sequence[str] = getattr(module, "KEYS", ())
    rows: Iterable[dict[str, Any]] = module.run(**_taken(module.run, suite, options))
    kept: list[dict[str, Any]] = []
    for row in rows:
        kept.append(row)
        file = results.merge(
            suite, [row] if keys else kept, keys=keys, is_quick=options.get("is_quick", False)
        )
        print(f"{suite}: a row into {file}", file=sys.stderr, flush=True)
    if not kept:
        print(f"{suite}: no row; nothing of what is asked for was measured", file=sys.stderr)


def _taken(run: Callable[..., object], suite: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options that a suite has; others are told and left out."""
    names = run.__code__.co_varnames[: run.__code__.co_argcount + run.__code__.co_kwonlyargcount]
    for name in options.keys() - set(names):
        print(f"{suite}: has no {name}, goes on without", file=sys.stderr)
    return {name: value for name, value in options.items() if name in names}


if __name__ == "__main__":
    main()
