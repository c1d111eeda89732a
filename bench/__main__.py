"""`python -m bench [equality] [single] [report]`: runs suites, everything by default."""

from __future__ import annotations

import argparse

from bench import equality, report, results, single


def main() -> None:
    """Runs what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("suites", nargs="*", default=["equality", "single", "report"])
    parser.add_argument("--target", default="demo:target", help="folder, hub id or demo:NAME")
    parser.add_argument("--draft", default="demo:draft", help="folder, hub id or demo:NAME")
    parser.add_argument("--runs", type=int, default=5, help="runs of each timing")
    args = parser.parse_args()
    for suite in args.suites:
        match suite:
            case "equality":
                file = results.write(suite, equality.run(target=args.target, draft=args.draft))
            case "single":
                rows = single.run(target=args.target, draft=args.draft, runs=args.runs)
                file = results.write(suite, rows)
            case "report":
                report.write()
                continue
            case _:
                parser.error(f"unknown suite {suite!r}; choose among equality, single, report")
        print(f"{suite}: {file}")


if __name__ == "__main__":
    main()
